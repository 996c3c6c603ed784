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
from tests.support.ui_page import SMALL
from tests.support.visitor import Visitor

pytestmark = MARKS
OF_ADDRESS = door.OF_ADDRESS  # as it is outside these tests


@pytest.fixture(scope="module")
def address(app):
    with pytest.MonkeyPatch.context() as patch:  # what is refused here is refused for what it is
        patch.setattr(door, "OF_ADDRESS", 10**6)
        patch.setattr(door, "SILENT", 1.0)
        for _, url in served(app):
            parts = urlsplit(url)
            yield str(parts.hostname), int(parts.port or 0)


def visitor(address, source="127.0.0.1"):
    return Visitor(f"http://{address[0]}:{address[1]}", source)


def ask(address, method, path, body=None, **headers):
    """The status, the headers and what is answered."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def upload(**fields):
    return {"do": "upload", "files": [{**fields, "name": "a", "meta": {"_type": "gradio.FileData"}}]}


REFUSED = {
    "too large": {"do": "classify", "classes": " " * 2 * 2**20},
    "no data": {},
    "an action that is a list": {"do": ["toggle"]},
    "a head of 5,000 digits": {"do": "toggle", "head": f"L{'9' * 5000}.H0"},
    "a list as text": {"do": "classify", "classes": ["x"], "template": {"a": 1}},
    "a superscript K": {"do": "bias", "gallery": SMALL, "attribute": "gender", "k": "²"},
    "a file outside": upload(path="/etc/passwd"),
    "a file as text": {"do": "upload", "files": ["/etc/passwd"]},
    "a null byte": upload(path="a\0b"),
    "a path of 100,000 characters": {"do": "gallery", "path": "x" * 100_000},
    "a gallery outside": {"do": "gallery", "path": "/etc/passwd"},
    "heads without end": {"do": "off", "off": " ".join(f"L{number}.H0" for number in range(2000))},
    "an example outside": {"do": "example", "value": "../../etc:0"},
    "files that are a number": {"do": "upload", "files": 7},
    "seventeen files outside": {"do": "upload", "files": [{"path": "/etc/passwd"}] * 17},
    "a folder by a name": {"do": "name-model", "name": "/etc"},
    "a scheme of open_clip": {"do": "name-model", "name": "local-dir:/etc"},
    "a gallery that is none": {"do": "bias", "gallery": "../x", "attribute": "gender", "k": "10"},
    "an index that is a list": {"do": "remove", "index": [1]},
}
ODD = [
    {"do": "tab", "value": {"a": []}},
    {"do": "open", "query": "?off=" + "L0.H0," * 10_000},
    {"do": "open", "query": "model=%00%ff&k=\u202e&tab=<script>"},
    {"do": "open", "query": ["off"], "page": "?" + "&" * 100_000},
    {"do": "off", "off": {"L0.H0": True}},
    {"do": "toggle", "head": "L7.H0\0"},
    {"do": "inspect", "head": "L0.H0, L0.H1"},
    {"do": "inspect", "head": ""},
    {"do": "text", "index": "9" * 5000},
    {"do": "text", "index": -1},
    {"do": "guess", "value": "x" * 10**6},
    {"do": "model", "value": "hf-hub:user/model"},
    {"do": "model", "value": None},
    {"do": "name-model", "name": "\u202e<img src=x onerror=alert(1)>"},
    {"do": "name-model", "name": "http://127.0.0.1:9/x"},
    {"do": "upload", "files": [{"path": ["/etc/passwd"]}]},
    {"do": "upload", "files": [{}] * 10_000},
    {"do": "gallery", "path": None},
    {"do": "row", "value": 10**400},
    {"do": "fairer", "loss": "-1"},
    {"do": "plan", "model": "../x", "heads": "L0.H0"},
    {"do": "classify", "classes": "a\0b\u202e", "template": "{}{}{0.__class__}"},
    {"do": "bias", "gallery": SMALL, "attribute": "__class__", "k": "1e9"},
    {"do": "poll", "turn": {"a": [[[[]]]]}},
]
PUBLIC, PRIVATE = "http://93.184.215.14/x.png", "http://127.0.0.1:9/x.png"
# `served` sees to it that no connection leaves this machine.
REFUSED |= {
    f"a file at {url} as {names}": upload(**dict.fromkeys(names, url))
    for url in (PUBLIC, PRIVATE)
    for names in (("path",), ("path", "url"))
}


def answers(address, actions):
    """Each action of one page, and what is answered: regions, or "error" where Gradio is not asked."""
    with visitor(address) as page:
        opened, act = page.events()
        page.join(opened, -1, link="tab=about&off=none")
        page.answer()
        for action in actions:
            answer = page.join(*act, action)
            assert answer.status_code < 500, action
            found = page.answer() if answer.status_code == 200 else {"error": answer.text}
            said = "".join(found.values())
            for leak in ("root:", "Traceback", "site-packages", "has been logged"):
                assert leak not in said, action
            yield action, found, said
            if 'class="notice' in said:  # the next of the same words would not be sent again
                page.join(*act, {"do": "dismiss"})
                page.answer()


def test_bad_actions_are_refused(address):
    for action, found, said in answers(address, REFUSED.values()):
        assert "error" in found or 'class="notice bad' in said, action
        for url in (PUBLIC, PRIVATE):
            assert url not in str(action) or "not an upload of this page" in said, action


def test_odd_actions_end_in_no_fault(address, caplog):
    for action, found, _ in answers(address, ODD):
        assert "error" not in found, action
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_stream_of_an_unknown_page_ends(address):
    """And is not cut off, with a traceback in the log."""
    status, _, body = ask(address, "GET", "/gradio_api/queue/data?session_hash=unknown")
    assert status == 200
    assert b"session_not_found" in body


@pytest.mark.parametrize(
    "path",
    [
        *(f"gradio_api/file={PUBLIC}", "gradio_api/fil%65=https%3A%2F%2F93.184.215.14/"),
        *(f"gradio_api/proxy={PUBLIC}", "gradio_api/file=/etc/passwd", "gradio_api/file=http://127.0.0.1:9/"),
        *("gradio_api/run-history/buckets", "gradio_api/mcp/", "assets/../../../../../../etc/passwd"),
        *("static/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "assets//etc/passwd", "static/..%2f..%2fetc%2fpasswd"),
        *("assets/\\etc\\passwd", "assets/x%00.js", "assets/" + "x" * 5000, "theme.css/../file=/etc/passwd"),
    ],
)
def test_no_file_of_the_server_is_served(address, path):
    status, _, body = ask(address, "GET", f"/{path}")
    assert 400 <= status < 500
    assert b"root:" not in body


BODIES = {
    "half a character": b'{"fn_index": 1, "session_hash": "\\ud800", "data": []}',
    "bytes that are no text": b'{"fn_index": 1, "session_hash": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "no function": b'{"session_hash": "a", "data": []}',
    "a function that there is not": b'{"fn_index": 99999, "session_hash": "a", "data": []}',
    "too large": b" " * 2 * 2**20,
    "nothing": b"",
    "a list": b"[]",
    "a function by a text": b'{"fn_index": "1", "session_hash": "a", "data": []}',
    "a page that is a path": b'{"fn_index": 1, "session_hash": "../a", "data": []}',
    "a page of 65 characters": b'{"fn_index": 1, "session_hash": "%s", "data": []}' % (b"a" * 65),
}
NAMED = ("queue/join", "cancel", "reset", "run/act", "api/act", "call/act")


@pytest.mark.parametrize("kind", BODIES)
def test_an_odd_body_is_refused(address, kind):
    for path in NAMED:
        status, _, text = ask(address, "POST", f"/gradio_api/{path}", BODIES[kind])
        assert 400 <= status < 500, path
        assert b"Traceback" not in text, path


# Paths by method; the first of POST is the page itself.
CLOSED = {
    "GET": "docs openapi.json robots.txt logout svelte/x login_check monitoring gradio_api/queue/status "
    "gradio_api/heartbeat/x gradio_api/upload_progress?upload_id=x gradio_api/info gradio_api/user "
    "gradio_api/deep_link gradio_api/upload gradio_api/dev/reload gradio_api/queue/join",
    "POST": " login config gradio_api/run/cancel gradio_api/cancel gradio_api/component_server "
    "gradio_api/reset gradio_api/queue/data",
    "PUT": "gradio_api/queue/join",
}


@pytest.mark.parametrize(("method", "paths"), CLOSED.items())
def test_what_the_page_does_not_need_is_not_served(address, method, paths):
    for path in paths.split(" "):
        status, _, said = ask(address, method, f"/{path}", b"{}")
        assert (status, said) == (404, b'{"detail":"This is not served here."}'), path


def test_what_is_said_twice_is_refused(address):
    path = "/gradio_api/queue/data?session_hash=a&session_hash=b"
    assert ask(address, "GET", path)[0] == 400
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.putrequest("GET", "/")
    connection.putheader("Host", "another")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


def test_a_class_behind_one_router_is_let_in(address, monkeypatch):
    """Seventeen pages click twice before any answer is there, and one of them clicks on."""
    monkeypatch.setattr(door, "OF_ADDRESS", OF_ADDRESS)
    go_on = threading.Event()
    monkeypatch.setattr(clicks, "act", lambda *_: iter([(None, {})] * go_on.wait(60)))

    statuses = []

    def ask(page):
        statuses.append(page.join(*listener, {"do": "dismiss"}).status_code)

    def visit(page, count=2):
        with ThreadPoolExecutor(count) as pool:
            asked = [pool.submit(ask, page) for _ in range(count)]
            asked[0].result()
            answered = 0
            while answered < count and set(statuses) == {200}:
                said = page.wait()
                assert said, "a stream was refused"
                answered += sum(one["msg"] == "process_completed" for one in said)

    with ExitStack() as stack, ThreadPoolExecutor(17) as pool:
        pages = [stack.enter_context(visitor(address, "127.0.0.2")) for _ in range(17)]
        listener = pages[0].events()[1]
        visits = [pool.submit(visit, page) for page in pages]
        while pages[0].client.get("/waiting").json()["ahead"] < 33 and set(statuses) <= {200}:
            pass
        go_on.set()
        for one in visits:
            one.result()
        for _ in range(door.OF_PAGE + 1):
            visit(pages[0], 1)
    assert statuses == [200] * (34 + door.OF_PAGE + 1)


def test_what_gradio_refuses_is_given_back(address, monkeypatch):
    async def full(*_, **__):
        return False, "full", "queue_full"

    with visitor(address, "127.0.0.5") as page:
        act = page.events()[1]
        with monkeypatch.context() as patch:
            patch.setattr(Queue, "push", full)
            asked = [page.join(*act, {"do": "dismiss"}).status_code for _ in range(door.OF_PAGE + 1)]
        assert asked == [503] * (door.OF_PAGE + 1)
        assert page.join(*act, {"do": "dismiss"}).status_code == 200


def test_nothing_is_computed_for_nobody(address, monkeypatch):
    seen = []
    monkeypatch.setattr(clicks, "act", lambda app, session, fields: seen.append(fields) or iter(()))
    with visitor(address, "127.0.0.3") as quiet:
        act = quiet.events()[1]
        waited = [quiet.join(*act, {"do": "dismiss"}).status_code for _ in range(3)]
        assert waited == [200, 200, 200]  # two at once, the third when the first has ended
    with visitor(address) as other:
        assert other.open(off="none")["main"]
    assert seen == []


def test_a_page_that_asks_too_much_is_refused_and_no_other(address, monkeypatch):
    monkeypatch.setattr(door, "OF_PAGE", 1)
    with visitor(address, "127.0.0.4") as first, visitor(address, "127.0.0.4") as second:
        opened, act = first.events()
        assert [first.join(opened, -1).status_code for _ in range(2)] == [200, 429]
        assert second.join(opened, -1).status_code == 200
        first.wait()
        second.wait()
        assert first.join(*act, {"do": "dismiss"}).status_code == 200
        first.wait()


def test_gradio_keeps_few_pages(address, monkeypatch):
    """The whole page of each: half a megabyte."""
    monkeypatch.setattr(clicks, "act", lambda *_: iter([(None, {})]))
    for _ in range(12):
        with visitor(address) as page:
            assert page.join(*page.events()[1], {"do": "dismiss"}).status_code == 200
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
