"""Requests from strangers, straight to the server: no crash, no file shown, no host asked."""

import gc
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from gradio.queueing import Queue
from gradio.state_holder import StateHolder
from starlette.requests import Request

from ccs.ui import clicks, door
from tests.support.browser_page import MARKS, served
from tests.support.visitor import Visitor

pytestmark = MARKS
OF_ADDRESS = door.OF_ADDRESS  # as it is outside these tests


@pytest.fixture(scope="module")
def address(app):
    with pytest.MonkeyPatch.context() as patch:  # what is refused here is refused for what it is
        patch.setattr(door, "OF_ADDRESS", 10**6)
        patch.setattr(door, "SILENT", 0.5)
        for _, url in served(app):
            yield urlsplit(url).netloc


def visitor(address, source="127.0.0.1"):
    return Visitor(f"http://{address}", source)


@pytest.fixture(scope="module")
def click(address):
    """`click(page)`: a click of no effect; the status of the answer."""
    with visitor(address) as one:
        listener = one.events()[1]
    return lambda page: page.join(*listener, {"do": "dismiss"}).status_code


def ask(address, method, path, body=None, **headers):
    """The status and what is answered. The path is sent as it is."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def upload(**fields):
    return {"do": "upload", "files": [{**fields, "name": "a", "meta": {"_type": "gradio.FileData"}}]}


# `served` sees to it that no connection leaves this machine.
ELSEWHERE = ["http://93.184.215.14/x.png", "http://127.0.0.1:9/x.png", "/etc/passwd"]
REFUSED = [
    {"do": "classify", "classes": " " * 2 * 2**20},
    {},
    {"do": ["toggle"]},
    {"do": "upload", "files": 7},
    {"do": "upload", "files": ["/etc/passwd"]},
    {"do": "upload", "files": [{"path": "/etc/passwd"}] * 17},
    {"do": "gallery", "path": "/etc/passwd"},
    *(upload(path=place) for place in ELSEWHERE),
    *(upload(path=place, url=place) for place in ELSEWHERE),
]
ODD = [
    {"do": "poll", "turn": {"a": [[[[]]]]}, "page": "?tab=paradox&off=none" + "&" * 100_000},
    {"do": "tab", "value": {"a": []}},
    {"do": "open", "query": "tab=paradox&model=%00%ff&k=\u202e&off=<script>"},
    {"do": "row", "value": 10**400},
    {"do": "upload", "files": [{"path": ["/etc/passwd"]}]},
    {"do": "upload", "files": [{}] * 10_000},
]


def test_bad_actions_are_refused_and_odd_ones_end_in_no_fault(address, caplog):
    """What the values of each action can be is in test_links."""
    with visitor(address) as page:
        act = page.events()[1]
        for action in (*ODD, *REFUSED):
            answer = page.join(*act, action)
            assert answer.status_code < 500, action
            found = page.answer() if answer.status_code == 200 else {"error": answer.text}
            said = "".join(found.values())
            if action in REFUSED:
                assert "error" in found or 'class="notice bad' in said, action
                assert "meta" not in str(action) or "not an upload of this page" in said, action
            else:
                assert "error" not in found, action
            for leak in ("root:", "Traceback", "site-packages", "has been logged"):
                assert leak not in said, action
            if 'class="notice' in said:  # the next of the same words would not be sent again
                page.join(*act, {"do": "dismiss"})
                page.answer()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_stream_of_an_unknown_page_ends(address):
    """And is not cut off, with a traceback in the log."""
    status, body = ask(address, "GET", "/gradio_api/queue/data?session_hash=unknown")
    assert status == 200
    assert b"session_not_found" in body


@pytest.mark.parametrize(
    "path",
    [
        *("gradio_api/fil%65=https%3A%2F%2F93.184.215.14/", "static/%2e%2e/%2e%2e/%2e%2e/etc/passwd"),
        *("assets/../../../../../../etc/passwd", "assets//etc/passwd", "static/..%2f..%2fetc%2fpasswd"),
        *("assets/\\etc\\passwd", "assets/x%00.js", "assets/" + "x" * 5000, "theme.css/../file=/etc/passwd"),
    ],
)
def test_no_file_of_the_server_is_served(address, path):
    status, body = ask(address, "GET", f"/{path}")
    assert 400 <= status < 500
    assert b"root:" not in body


@pytest.mark.parametrize(
    "body",
    [
        b'{"fn_index": 1, "session_hash": "\\ud800", "data": []}',  # half a character
        b'{"fn_index": 1, "session_hash": "\xff\xfe"}',
        b"[" * 100_000,
        b'{"session_hash": "a", "data": []}',
        b'{"fn_index": 99999, "session_hash": "a", "data": []}',
        b'{"fn_index": "1", "session_hash": "a", "data": []}',
        b'{"fn_index": 1, "session_hash": "../a", "data": []}',
        b'{"fn_index": 1, "session_hash": "%s", "data": []}' % (b"a" * 65),
        b" " * 2 * 2**20,
        b"",
        b"[]",
    ],
    ids=range(11),
)
def test_an_odd_body_is_refused(address, body):
    status, said = ask(address, "POST", "/gradio_api/queue/join", body)
    assert status == (413 if len(body) > door.MOST["click"] else 400)
    assert b"Traceback" not in said


# Paths by method; the first of POST is the page itself.
CLOSED = {
    "GET": "docs openapi.json robots.txt logout svelte/x login_check monitoring gradio_api/queue/status "
    "gradio_api/heartbeat/x gradio_api/upload_progress?upload_id=x gradio_api/info gradio_api/user "
    "gradio_api/deep_link gradio_api/upload gradio_api/dev/reload gradio_api/queue/join gradio_api/mcp/ "
    "gradio_api/run-history/buckets gradio_api/file=/etc/passwd gradio_api/proxy=http://93.184.215.14/x.png",
    "POST": " login config gradio_api/run/cancel gradio_api/cancel gradio_api/component_server "
    "gradio_api/reset gradio_api/queue/data gradio_api/run/act gradio_api/api/act gradio_api/call/act",
    "PUT": "gradio_api/queue/join",
}


@pytest.mark.parametrize(("method", "paths"), CLOSED.items())
def test_what_the_page_does_not_need_is_not_served(address, method, paths):
    for path in paths.split(" "):
        said = ask(address, method, f"/{path}", b"{}")
        assert said == (404, b'{"detail":"This is not served here."}'), path


def test_what_is_said_twice_is_refused(address):
    assert ask(address, "GET", "/gradio_api/queue/data?session_hash=a&session_hash=b")[0] == 400
    assert ask(address, "GET", "/", Origin="a", origin="b")[0] == 400


def test_a_class_behind_one_router_is_let_in(address, click, monkeypatch):
    """Seventeen pages click twice before any answer is there, and one of them clicks on."""
    monkeypatch.setattr(door, "OF_ADDRESS", OF_ADDRESS)
    go_on, statuses = threading.Event(), []
    monkeypatch.setattr(clicks, "act", lambda *_: iter([(None, {})] * go_on.wait(60)))

    def visit(page, count=2):
        with ThreadPoolExecutor(count) as pool:
            asked = [pool.submit(lambda: statuses.append(click(page))) for _ in range(count)]
            asked[0].result()
            answered = 0
            while answered < count and set(statuses) == {200}:
                said = page.wait()
                assert said, "a stream was refused"
                answered += sum(one["msg"] == "process_completed" for one in said)

    with ExitStack() as stack, ThreadPoolExecutor(17) as pool:
        pages = [stack.enter_context(visitor(address, "127.0.0.2")) for _ in range(17)]
        visits = [pool.submit(visit, page) for page in pages]
        while pages[0].client.get("/waiting").json()["ahead"] < 33 and set(statuses) <= {200}:
            pass
        go_on.set()
        for one in visits:
            one.result()
        for _ in range(door.OF_PAGE + 1):
            visit(pages[0], 1)
    assert statuses == [200] * (34 + door.OF_PAGE + 1)


def test_what_gradio_refuses_is_given_back(address, click, monkeypatch):
    async def full(*_, **__):
        return False, "full", "queue_full"

    with visitor(address, "127.0.0.5") as page:
        with monkeypatch.context() as patch:
            patch.setattr(Queue, "push", full)
            assert [click(page) for _ in range(door.OF_PAGE + 1)] == [503] * (door.OF_PAGE + 1)
        assert click(page) == 200


def test_nothing_is_computed_for_nobody(address, click, monkeypatch):
    seen = []
    monkeypatch.setattr(clicks, "act", lambda app, session, fields: seen.append(fields) or iter(()))
    with visitor(address, "127.0.0.3") as quiet:
        # Two at once, the third when the first has ended.
        assert [click(quiet) for _ in range(3)] == [200, 200, 200]
    with visitor(address) as other:
        assert other.open(off="none")["main"]
    assert seen == []


def test_a_page_that_asks_too_much_is_refused_and_no_other(address, click, monkeypatch):
    monkeypatch.setattr(door, "OF_PAGE", 1)
    with visitor(address, "127.0.0.4") as first, visitor(address, "127.0.0.4") as second:
        assert [click(first), click(first), click(second)] == [200, 429, 200]
        first.wait()
        second.wait()
        assert click(first) == 200
        first.wait()


def test_gradio_keeps_few_pages(address, click, monkeypatch):
    """The whole page of each: half a megabyte."""
    monkeypatch.setattr(clicks, "act", lambda *_: iter([(None, {})]))
    for _ in range(12):
        with visitor(address) as page:
            assert click(page) == 200
            page.wait()
    assert max(len(one.session_data) for one in gc.get_objects() if type(one) is StateHolder) == 10


def test_an_upload_is_bounded(address, monkeypatch):
    monkeypatch.setitem(door.MOST, "upload", 1000)
    kind = {"Content-Type": "multipart/form-data; boundary=x"}

    def status(body, path="upload", **more):
        return ask(address, "POST", f"/gradio_api/{path}", body, **kind, **more)[0]

    assert status(iter([b"--x\r\n" * 400])) == 413  # in chunks, so without a length
    assert status(b"", **{"Content-Length": "1001"}) == 413
    assert status(b"--x--\r\n", "upload?upload_id=1") == 404  # Gradio would keep what nobody reads
    assert status(b"--x--\r\n") == 200
    monkeypatch.setattr(door, "DISK_LEFT", 2**60)
    assert status(b"--x--\r\n") == 429


def test_an_address_is_that_of_the_connection_unless_a_proxy_is_trusted(monkeypatch):
    lines = [(b"x-forwarded-for", b"9.9.9.9, 8.8.8.8"), (b"x-forwarded-for", b"1.2.3.4")]
    forged = Request({"type": "http", "client": ("10.0.0.9", 1), "headers": lines})
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert door.client_of(forged) == "10.0.0.9"
    monkeypatch.setenv("SPACE_ID", "user/space")
    assert door.client_of(forged) == "1.2.3.4"
