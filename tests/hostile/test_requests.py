"""Requests from strangers, straight to the server: no crash, no file shown, no host asked."""

from __future__ import annotations

import http.client
import json
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

import ccs
from ccs.ui import guard
from ccs.ui.guard import FairQueue, Guard, content_security_policy
from tests.support import ui_sample
from tests.support.browser_page import MARKS, served

pytestmark = MARKS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    model, folder = ccs.load("organism"), tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", model.weights_hash)
    for _, url in served(folder, tmp_path_factory.mktemp("cache"), model):
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


def ask(address: tuple[str, int], method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*address, timeout=60)
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
    "no JSON": ("classify", b"{"),
    "a list": ("classify", b"[]"),
    "deep": ("classify", b"[" * 100_000),
    "too large": ("classify", b" " * 2 * 2**20),
    "no data": ("head", b"{}"),
    "numbers for texts": ("head", b'{"data": [7, {"x": 1}]}'),
    "a superscript K": (
        "bias",
        '{"data": ["judge", "", "organism", "", "gender", "²", "pool", ""]}'.encode(),
    ),
    "a path as model": ("about", b'{"data": ["/etc"]}'),
    "another's scheme": ("about", b'{"data": ["local-dir:/etc"]}'),
    "a file outside": ("classify", classify(file(path="/etc/passwd"))),
    "a file above": ("classify", classify(file(path="../../../../etc/passwd"))),
    "a file as text": ("classify", classify("/etc/passwd")),
    "a file that is a number": ("classify", classify(7)),
    "a null byte": ("classify", classify(file(path="a\0b"))),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_bad_call_is_refused(address: tuple[str, int], kind: str) -> None:
    answer = call(address, *CALLS[kind])
    assert b"event: complete" not in answer
    assert b"root:" not in answer
    assert b"Traceback" not in answer
    assert b"site-packages" not in answer


PUBLIC = "http://93.184.215.14/x.png"


@pytest.mark.parametrize("url", [PUBLIC, "http://127.0.0.1:9/x.png"], ids=["public", "private"])
@pytest.mark.parametrize("names", [["path"], ["path", "url"]], ids=["path", "both"])
def test_no_address_is_asked_for_a_file(address: tuple[str, int], names: list[str], url: str) -> None:
    """`served` sees to it that no connection leaves this machine."""
    answer = call(address, "classify", classify(file(**dict.fromkeys(names, url))))
    assert b"event: error" in answer
    assert b"no address is fetched" in answer


@pytest.mark.parametrize(
    "path",
    [
        f"file={PUBLIC}",
        f"file/{PUBLIC}",
        f"FILE={PUBLIC}",
        f"file=%20{PUBLIC}",
        "fil%65=https%3A%2F%2F93.184.215.14/",
        f"proxy={PUBLIC}",
        "file=/etc/passwd",
        "file=../../etc/passwd",
        "file=app.py",
        "file/etc/passwd",
        "file=http://127.0.0.1:9/",
        "deep_link?session_hash=x",
        "run-history/buckets",
        "runs",
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


def event(page: str, host: str, at: float) -> Any:
    request = SimpleNamespace(client=SimpleNamespace(host=host), headers={})
    return SimpleNamespace(session_hash=page, request=request, enqueue_time=at, concurrency_id="model")


def queue_of(*events: Any, limit: int = 2) -> FairQueue:
    found = FairQueue.__new__(FairQueue)  # of Gradio's own there is no need here
    found.used, found.active_jobs, found.event_queue_per_concurrency_id = defaultdict(deque), [], {}
    waiting: Any = SimpleNamespace(queue=list(events), concurrency_limit=limit, current_concurrency=0)
    found.event_queue_per_concurrency_id["model"] = waiting
    return found


def test_a_visitor_with_many_pages_goes_after_one_who_has_waited_less() -> None:
    flood = [event(f"page {i}", "10.0.0.9", float(i)) for i in range(20)]
    quiet = event("quiet", "10.0.0.1", 99.0)
    queue = queue_of(*flood, quiet)
    first = queue.get_events()
    assert first is not None
    assert first[0] == [flood[0]]
    queue.active_jobs = [first[0]]
    second = queue.get_events()
    assert second is not None
    assert second[0] == [quiet]


def test_the_last_place_is_kept_for_others_and_a_page_has_one_turn_at_a_time() -> None:
    flood = [event(f"page {i}", "10.0.0.9", float(i)) for i in range(3)]
    queue = queue_of(*flood)
    queue.active_jobs = [[flood[0]]]
    assert queue.get_events() is not None  # nobody else has been here
    queue.used["address 10.0.0.1"].append((time.monotonic(), 1.0))
    assert queue.get_events() is None
    queue.active_jobs = []
    assert queue.get_events() is not None
    queue.used["address 10.0.0.9"].append((time.monotonic(), guard.FILL + 1))
    assert queue.get_events() is None
    twice = [event("page", "10.0.0.1", 0.0), event("page", "10.0.0.1", 1.0)]
    queue = queue_of(twice[1])
    queue.active_jobs = [[twice[0]]]
    assert queue.get_events() is None


def test_an_upload_says_how_much_it_is(address: tuple[str, int]) -> None:
    connection = http.client.HTTPConnection(*address, timeout=60)
    body = iter([b"--x\r\n" * 10])  # in chunks, so without a length
    connection.request(
        "POST", "/gradio_api/upload", body, {"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert connection.getresponse().status == 411
    connection.close()


def test_uploads_and_actions_are_limited_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Guard(None, meta=lambda *_: "", picture=lambda *_: b"")
    for _ in range(guard.UPLOADS):
        assert door._refused_upload("10.0.0.9", 1000) is None
    assert door._refused_upload("10.0.0.9", 1000) is not None
    assert door._refused_upload("10.0.0.1", 1000) is None
    assert door._refused_upload("10.0.0.1", guard.UPLOAD_BYTES) is not None
    assert not any(door._too_many("10.0.0.9") for _ in range(guard.RATE))
    assert door._too_many("10.0.0.9")
    assert not door._too_many("10.0.0.1")
    monkeypatch.delenv("SPACE_ID", raising=False)
    forged = {"x-forwarded-for": "1.2.3.4"}.get
    assert guard.address("10.0.0.9", forged) == "10.0.0.9"
    monkeypatch.setenv("SPACE_ID", "user/space")
    assert guard.address("10.0.0.9", forged) == "1.2.3.4"
