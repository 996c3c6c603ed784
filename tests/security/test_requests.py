"""Raw requests to the server: it doesn't crash, serve files, or fetch URLs."""

import asyncio
import http.client
import importlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from uvicorn.config import Config

from ccs.app import __main__, guard, routes
from tests.support.browser_fixtures import serve_app

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def address(app):
    for _, url in serve_app(app):
        yield urlsplit(url).netloc


def send(address, method, path, body=None, **headers):
    """Send a request without normalizing its path; return the status and the body."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


UNLISTED_ROUTES = {
    "GET": "docs openapi.json robots.txt logout monitoring theme.css static/x svelte/x login_check "
    "gradio_api/queue/status gradio_api/upload_progress?upload_id=x gradio_api/user gradio_api/deep_link "
    "gradio_api/upload gradio_api/dev/reload gradio_api/queue/join gradio_api/run-history/buckets "
    "gradio_api/file=/etc/passwd gradio_api/proxy=http://93.184.215.14/x.png gradio_api/stream/a/b/c "
    "gradio_api/runs gradio_api/component_server heads/toggle gradio_api/mcp/sse gradio_api/call/x/y",
    "POST": "login config gradio_api/run/classify gradio_api/api/classify gradio_api/component_server "
    "gradio_api/reset gradio_api/queue/data gradio_api/upload gradio_api/call/private assets/app.js work api",
    "PUT": "gradio_api/queue/join heads/toggle",
    "DELETE": " heads/toggle gradio_api/mcp/",
}


@pytest.mark.parametrize(("method", "paths"), UNLISTED_ROUTES.items())
def test_unlisted_routes_return_404(address, method, paths):
    for path in paths.split(" "):
        assert send(address, method, f"/{path}", b"{}") == (404, b"Not found."), path


def test_websockets_are_rejected(address):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    for path in ("/", "/work", "/gradio_api/queue/join"):
        status, _ = send(address, "GET", path, **upgrade, **{"Sec-WebSocket-Key": "a" * 22 + "=="})
        assert status in (200, 404), path  # 200: Uvicorn has no WebSocket library and sends the page


FILE_PATHS = ["gradio_api/fil%65=https%3A%2F%2F93.184.215.14/", "assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd"]
FILE_PATHS += ["assets/../../../../../../etc/passwd", "assets//etc/passwd", "assets/..%2f..%2fetc%2fpasswd"]
FILE_PATHS += ["assets/\\etc\\passwd", "assets/x%00.js", "assets/" + "x" * 5000, "api/../file=/etc/passwd"]
FILE_PATHS += ["tables/../../etc/passwd", "tables/0123456789abcdef.zip/..", "//etc/passwd", "GRADIO_API/info"]


@pytest.mark.parametrize("path", FILE_PATHS)
def test_server_files_are_not_served(address, path):
    status, body = send(address, "GET", f"/{path}")
    assert 400 <= status < 500
    assert b"root:" not in body


def file_arguments(place):
    """List the forms of arguments that Gradio reads as a file or a URL."""
    data = {"path": place, "meta": {"_type": "gradio.FileData"}, "orig_name": "x.png"}
    return [data, {"path": place}, {"path": place, "url": place}, {"data": [{"deep": [data]}]}]


def test_api_opens_no_path_or_url(address, httpserver):
    for place in (httpserver.url_for("/x.png"), "/etc/passwd", "file:///etc/passwd"):
        for value in file_arguments(place):
            call = {"data": [[value], ["a"]], "images": [value], "fn_index": 0, "params": value}
            for path in ("call/classify", "call/v2/classify", "queue/join", "mcp/"):
                status, answer = send(address, "POST", f"/gradio_api/{path}", json.dumps(call), **JSON)
                assert status == 422, (path, value)
                assert b"root:" not in answer
        text = {"data": [[place], ["a"], "{}", "", "organism"]}
        _, answer = send(address, "POST", "/gradio_api/call/classify", json.dumps(text), **JSON)
        _, by_event = send(address, "GET", f"/gradio_api/call/classify/{json.loads(answer)['event_id']}")
        tool = {"name": "classify", "arguments": {"images": [place], "classes": ["a"]}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool})
        mcp = {**JSON, "Accept": "application/json, text/event-stream"}
        for answer in (by_event, send(address, "POST", "/gradio_api/mcp/", body, **mcp)[1]):
            assert b"isn't base64 text" in answer
            assert b"root:" not in answer
    assert httpserver.log == []  # no request arrived


@pytest.mark.parametrize("path", ["queue/join", "call/classify", "mcp/"])
def test_malformed_json_body_is_rejected(address, path):
    bodies = [b'{"data": "\xff\xfe"}', b"[" * 100_000, b"", b"{", b'{"path": 1}', b'[{"a": {"path": 1}}]']
    bodies += [b'{"fn_index": 1, "session_hash": "\\ud800", "data": [null]}']
    bodies += [b'{"fn_index": 99999, "session_hash": "x", "data": [null]}']
    for body in bodies:
        status, answer = send(address, "POST", f"/gradio_api/{path}", body, **JSON)
        assert status == 422, body
        assert b"Traceback" not in answer


@pytest.mark.parametrize("path", ["heads/toggle", "classify", "analyze"])
def test_malformed_form_causes_no_server_error(address, path, caplog):
    values = ["x" * 10_000, "\x00\u202e<script>{}{{7*7}}", "../../etc/passwd", "9" * 5000, "\ud800"]
    names = [*routes.ROUTES[path].form.model_fields, "page", "at"]
    for value in values:
        for fields in ([(name, value) for name in names], [(names[-1], value)] * 900):
            body = urlencode(fields, errors="surrogatepass")
            status, answer = send(address, "POST", f"/{path}", body, **FORM, **{"x-have": ""})
            assert status in (200, 400, 413, 422), answer
            for leak in (b"root:", b"Traceback", b"site-packages", b"was logged", b"<script>"):
                assert leak not in answer
    assert send(address, "POST", f"/{path}", b"a" * (guard.FORM_BYTES + 1), **FORM)[0] == 413
    assert send(address, "POST", f"/{path}", b"{}", **JSON)[0] in (200, 303, 422)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_large_endless_or_slow_body_is_rejected(address, monkeypatch):
    multipart = {"Content-Type": "multipart/form-data; boundary=x"}
    assert send(address, "POST", "/gradio_api/call/classify", b" " * (60 * 2**20), **JSON)[0] == 413
    monkeypatch.setattr(guard, "ALL_BYTES", 2**20)
    chunks = iter([b"--x\r\n" * 2**18] * 2)  # without a length
    assert send(address, "POST", "/images/add", chunks, **multipart)[0] == 503
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nclasses=")
        assert b" 408 " in slow.recv(1000)


def test_calls_per_address_are_limited(address):
    """Of 500 calls at once, some wait, others are rejected, and other addresses are served."""
    base = f"http://{address}"
    occupations = json.dumps({"data": [["judge"] * 20, "small/faces", "gender", "", "organism"]})
    limits = httpx.Limits(max_connections=40)
    transport = httpx.HTTPTransport(local_address="127.0.0.9", limits=limits)
    with (
        httpx.Client(base_url=base, transport=transport, timeout=60) as client,
        ThreadPoolExecutor(40) as pool,
    ):

        def call(_):
            return client.post("/gradio_api/call/measure_bias", content=occupations, headers=JSON).status_code

        calls = pool.submit(lambda: [pool.submit(call, i) for i in range(500)])
        start = time.monotonic()
        assert send(address, "GET", "/")[0] == 200
        assert time.monotonic() - start < 20
        statuses = [future.result() for future in calls.result()]
    assert set(statuses) <= {200, 429, 503}
    assert statuses.count(200) < 60
    assert send(address, "GET", "/api")[0] == 200


def test_concurrent_requests_are_limited(address, monkeypatch):
    monkeypatch.setattr(guard, "MAX_REQUESTS", 2)
    host, _, port = address.rpartition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(2)]
    for connection in slow:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
    while send(address, "POST", "/show", b"", **FORM)[0] != 429:
        pass
    assert send(address, "GET", "/")[0] == 200
    for connection in slow:
        connection.close()
    while send(address, "POST", "/show", b"", **FORM)[0] == 429:
        pass


def test_responses_have_security_headers(address):
    for path in ("/", "/api", "/assets/app.js", "/gradio_api/info", "/none"):
        answer = httpx.get(f"http://{address}{path}")
        for name, value in guard.HEADERS.items():
            assert answer.headers[name] == value
        assert "set-cookie" not in answer.headers
    policy = guard.HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy


def test_forwarded_address_needs_trusted_proxy(monkeypatch):
    lines, addresses = [(b"x-forwarded-for", b"9.9.9.9, 8.8.8.8"), (b"x-forwarded-for", b"1.2.3.4")], []

    async def app(scope, receive, send):
        addresses.append(scope["client"][0])

    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    for space in ("", "user/space"):
        monkeypatch.setenv("SPACE_ID", space)
        importlib.reload(__main__)
        (config := Config(app)).load()
        for host in ("10.0.0.9", "5.6.7.8"):
            scope = {"type": "http", "client": (host, 1), "headers": lines}
            asyncio.run(config.loaded_app(scope, None, None))
    assert addresses == ["10.0.0.9", "5.6.7.8", "1.2.3.4", "5.6.7.8"]
