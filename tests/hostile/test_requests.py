"""Requests from strangers, straight to the server: no crash, no file shown, no host asked."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import ccs
from ccs.ui import guard
from ccs.ui.guard import Turns, content_security_policy
from tests.support import ui_sample
from tests.support.browser_page import GALLERY, MARKS, served
from tests.support.visitor import Visitor

pytestmark = MARKS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    model, folder = ccs.load("organism"), tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", model.weights_hash)
    with pytest.MonkeyPatch.context() as patch:  # what is refused here is refused for what it is
        patch.setattr(guard, "IN_FLIGHT", 10**6)
        patch.setattr(guard, "UNREAD", 10**6)
        patch.setattr(guard, "LOST", 0.3)
        for _, url in served(folder, tmp_path_factory.mktemp("cache"), model):
            parts = urlsplit(url)
            yield str(parts.hostname), int(parts.port or 0)


def ask(
    address: tuple[str, int], method: str, path: str, body: bytes | None = None, source: str = "127.0.0.1"
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*address, timeout=20, source_address=(source, 0))
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def tried(address: tuple[str, int], body: dict[str, Any], source: str = "127.0.0.1") -> tuple[str, str]:
    """The first screen's regions, joined, after an action; or why it was refused."""
    with Visitor(f"http://{address[0]}:{address[1]}", source) as visitor:
        opened, act = visitor.events()
        visitor.join(opened, -1, link="off=none")
        visitor.answer()
        answer = visitor.join(*act, body)
        assert answer.status_code < 500
        if answer.status_code != 200:
            return "", answer.text
        found = visitor.answer()
        refused = found.pop("error", "")
        return "".join(found.values()), refused


def upload(**fields: Any) -> dict[str, Any]:
    return {"do": "upload", "files": [{**fields, "name": "a", "meta": {"_type": "gradio.FileData"}}]}


ACTIONS = {
    "too large": {"do": "classify", "classes": " " * 2 * 2**20},
    "no data": {},
    "an unknown action": {"do": "__class__"},
    "an action that is a list": {"do": ["toggle"]},
    "a head of 5,000 digits": {"do": "toggle", "head": f"L{'9' * 5000}.H0"},
    "an index below zero": {"do": "remove", "index": -1},
    "a list as text": {"do": "classify", "classes": ["x"], "template": {"a": 1}},
    "a superscript K": {"do": "bias", "gallery": GALLERY, "attribute": "gender", "k": "²"},
    "a path as model": {"do": "model", "value": "/etc"},
    "a file outside": upload(path="/etc/passwd"),
    "a file as text": {"do": "upload", "files": ["/etc/passwd"]},
    "a null byte": upload(path="a\0b"),
    "a gallery outside": {"do": "gallery", "path": "/etc/passwd"},
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_a_bad_action_is_refused(address: tuple[str, int], kind: str) -> None:
    screen, refused = tried(address, ACTIONS[kind])
    assert refused or 'class="notice bad' in screen
    for leak in ("root:", "Traceback", "site-packages", "The error has been logged"):
        assert leak not in screen + refused


def test_the_stream_of_an_unknown_page_ends(address: tuple[str, int]) -> None:
    """And is not cut off, with a traceback in the log."""
    status, body = ask(address, "GET", "/gradio_api/queue/data?session_hash=unknown")
    assert status == 200
    assert b"session_not_found" in body


PUBLIC = "http://93.184.215.14/x.png"


@pytest.mark.parametrize("url", [PUBLIC, "http://127.0.0.1:9/x.png"], ids=["public", "private"])
@pytest.mark.parametrize("names", [["path"], ["path", "url"]], ids=["path", "both"])
def test_no_address_is_asked_for_a_file(address: tuple[str, int], names: list[str], url: str) -> None:
    """`served` sees to it that no connection leaves this machine."""
    assert "no address is fetched" in tried(address, upload(**dict.fromkeys(names, url)))[1]


@pytest.mark.parametrize(
    "path",
    [
        f"file={PUBLIC}",
        "fil%65=https%3A%2F%2F93.184.215.14/",
        f"proxy={PUBLIC}",
        "file=/etc/passwd",
        "file=http://127.0.0.1:9/",
        "run-history/buckets",
        "mcp/",
    ],
)
def test_no_file_of_the_server_is_served(address: tuple[str, int], path: str) -> None:
    status, body = ask(address, "GET", f"/gradio_api/{path}")
    assert 400 <= status < 500
    assert b"root:" not in body


def test_the_page_allows_its_own_scripts_only(address: tuple[str, int]) -> None:
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", "/")
    answer = connection.getresponse()
    policy, page = answer.headers["Content-Security-Policy"], answer.read()
    connection.close()
    assert policy == content_security_policy(page)
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert "http:" not in policy


ODD = {
    "half a character": b'{"fn_index": 1, "session_hash": "\\ud800", "data": [null]}',
    "bytes that are no text": b'{"fn_index": 1, "session_hash": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "no function": b'{"session_hash": "a", "data": []}',
    "a function that there is not": b'{"fn_index": 99999, "session_hash": "a", "data": []}',
    "too large": b" " * 2 * 2**20,
}
NAMED = ("queue/join", "cancel", "reset", "run/act", "api/act", "call/act")


@pytest.mark.parametrize("path", NAMED)
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_body_is_refused(address: tuple[str, int], kind: str, path: str) -> None:
    status, text = ask(address, "POST", f"/gradio_api/{path}", ODD[kind])
    assert 400 <= status < 500
    assert b"Traceback" not in text


def test_clients_take_turns() -> None:
    turns = Turns()
    assert [turns.take("a") for _ in range(3)] == [True, True, False]  # nobody else is here
    turns.give("a")
    assert turns.take("b")
    assert not turns.take("b")  # one at a time as long as a is active
    assert not turns.take("a")
    turns.give("a")
    assert turns.take("a")
    turns.give("nobody")


def test_too_much_at_once_is_refused(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    time.sleep(guard.LEAST + 0.2)
    monkeypatch.setattr(guard, "IN_FLIGHT", 3 * guard.PAGE)
    answers = [ask(address, "GET", "/")[0] for _ in range(6)]
    assert answers[:2] == [200, 200]
    assert 429 in answers
    time.sleep(guard.LEAST + 0.2)
    assert ask(address, "GET", "/")[0] == 200


def test_answers_that_nobody_reads_are_not_made(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "UNREAD", 3)
    url, other = f"http://{address[0]}:{address[1]}", "127.0.0.2"
    with Visitor(url, other) as first, Visitor(url, other) as second:
        (opened, act), quiet = first.events(), {"do": "dismiss"}
        assert second.join(opened, -1).status_code == 200
        assert [first.join(*act, quiet).status_code for _ in range(3)] == [200, 200, 429]
        second.wait()
        assert first.join(*act, quiet).status_code == 200


def test_an_upload_says_how_much_it_is(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for body, more, status in (
        (iter([b"--x\r\n" * 10]), {}, 411),  # in chunks, so without a length
        (b"", {"Content-Length": str(guard.MAX_UPLOAD + 1)}, 413),
    ):
        connection = http.client.HTTPConnection(*address, timeout=60)
        connection.request("POST", "/gradio_api/upload", body, {**kind, **more})
        assert connection.getresponse().status == status
        connection.close()
    monkeypatch.setattr(guard, "DISK_LEFT", 2**60)
    assert guard._refused_upload(10) == (429, "Too much has been uploaded; try again in an hour.")


def test_an_address_is_that_of_the_connection_unless_a_proxy_is_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forged = {"x-forwarded-for": "9.9.9.9, 1.2.3.4"}
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert guard.client_of("10.0.0.9", forged) == "10.0.0.9"
    monkeypatch.setenv("SPACE_ID", "user/space")
    assert guard.client_of("10.0.0.9", forged) == "1.2.3.4"
