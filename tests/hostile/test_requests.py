"""Requests from strangers, straight to the server: no crash, no file shown, no host asked."""

from __future__ import annotations

import http.client
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from PIL import Image

import ccs
from ccs.ui import guard
from ccs.ui.guard import Turns, content_security_policy
from tests.support import ui_sample
from tests.support.browser_page import MARKS, served

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


def call(address: tuple[str, int], name: str, body: bytes) -> bytes:
    """What an API call answers in the end, or why it was refused."""
    status, text = ask(address, "POST", f"/gradio_api/call/{name}", body)
    assert status < 500
    if status != 200:
        return text
    event = json.loads(text)["event_id"]
    return ask(address, "GET", f"/gradio_api/call/{name}/{event}")[1]


def classify(file: Any) -> bytes:
    return json.dumps({"data": [[file], "a dog", "", "organism", "", "occupations:0"]}).encode()


def file(**fields: Any) -> Any:
    return {**fields, "meta": {"_type": "gradio.FileData"}}


CALLS = {
    "deep": ("classify", b"[" * 100_000),
    "too large": ("classify", b" " * 2 * 2**20),
    "no data": ("bias", b"{}"),
    "a superscript K": (
        "bias",
        '{"data": ["judge", "", "organism", "", "gender", "²"]}'.encode(),
    ),
    "a path as model": ("heads", b'{"data": ["/etc"]}'),
    "a file outside": ("classify", classify(file(path="/etc/passwd"))),
    "a file as text": ("classify", classify("/etc/passwd")),
    "a null byte": ("classify", classify(file(path="a\0b"))),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_bad_call_is_refused(address: tuple[str, int], kind: str) -> None:
    answer = call(address, *CALLS[kind])
    assert b"event: complete" not in answer
    assert b"root:" not in answer
    assert b"Traceback" not in answer
    assert b"site-packages" not in answer


def test_an_image_that_is_sent_to_the_api_leaves_no_file(address: tuple[str, int]) -> None:
    image = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(image, "PNG")
    root = f"http://{address[0]}:{address[1]}/gradio_api"
    (path,) = httpx.post(f"{root}/upload", files={"files": ("red.png", image.getvalue())}).json()
    assert Path(path).exists()
    assert b"event: complete" in call(address, "classify", classify(file(path=path)))
    assert not Path(path).exists()
    assert not list(Path(path).parents[1].rglob("*.png"))


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
    answer = call(address, "classify", classify(file(**dict.fromkeys(names, url))))
    assert b"no address is fetched" in answer


@pytest.mark.parametrize(
    "path",
    [
        f"file={PUBLIC}",
        "fil%65=https%3A%2F%2F93.184.215.14/",
        f"proxy={PUBLIC}",
        "file=/etc/passwd",
        "file=http://127.0.0.1:9/",
        "run-history/buckets",
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
NAMED = ("queue/join", "cancel", "reset", "run/act", "api/act")


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
    body = b'{"data": ["organism"]}'
    other = "127.0.0.2"
    found = [ask(address, "POST", "/gradio_api/call/heads", body, other) for _ in range(4)]
    assert [status for status, _ in found] == [200, 200, 200, 429]
    ask(address, "GET", f"/gradio_api/call/heads/{json.loads(found[0][1])['event_id']}", source=other)
    assert ask(address, "POST", "/gradio_api/call/heads", body, other)[0] == 200


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
