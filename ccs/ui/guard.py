"""Protection of the page from strangers: what a client may send and have in work, and the headers of answers.

Gradio's own limits are set in `server`. Here is what it has none for: clients take turns in its queue, a body
is checked before Gradio reads it, and no script runs in the page but Gradio's and the page's own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs

from cachetools import TTLCache
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

AT_ONCE = 2
"""Actions that are worked on at a time: a short one need not wait for a long one, and two cores gain nothing
from more."""
IN_FLIGHT, STREAMS, UNREAD = 100, 100, 16
"""Of one client: requests at a time, each of which counts for a second at least; streams that it may keep
open; answers that it may leave unread."""
PAGE = 10  # requests as which a request for the page itself counts: Gradio writes it anew each time
LEAST = 1.0
ACTIVE, LOST = 10.0, 10.0
"""Seconds for which a client counts as active, and after which an action counts no more: Gradio may have
dropped it before it ran."""
MAX_BODY, MAX_UPLOAD = 2**20, 64 * 2**20
DISK_LEFT = 2 * 2**30  # bytes below which no upload is taken

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SHUT = re.compile(
    r"/gradio_api/(?:(?:file|proxy)[=/]+\s*[a-z][a-z0-9+.-]*:|deep_link|stream/|(?:api|call|mcp)\b)",
    re.IGNORECASE,
)
"""Routes of Gradio that the page does not need: it would fetch any public address and pass it on, keep a copy
of the page on disk for each link that is asked for, and run listeners as functions."""
_STATIC = re.compile(r"/(?:assets|static|svelte|gradio_api/file=)|.*/(?:theme\.css|favicon\.ico)$")
_STREAM = re.compile(r"/gradio_api/(?:queue/data|heartbeat|upload_progress|startup-events)")
_QUEUED = "/gradio_api/queue/join"
_NAMED = re.compile(r"/gradio_api/(?:queue/join|run/|cancel|reset)")
_ADDRESS = re.compile(rb'(?<!\\)"https?://')  # a text of JSON that begins so
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


def client_of(host: str | None, headers: Any) -> str:
    """The address of a request: on a Space as its proxy says, elsewhere never as a client says."""
    forwarded = headers.get("x-forwarded-for") if os.environ.get("SPACE_ID") else None
    return (forwarded or host or "").rpartition(",")[2].strip()


class Turns:
    """The actions of clients in Gradio's queue. Threads may share it.

    Each client has one there while others are active, so that its queue, first come, first served, goes from
    client to client; a client that is alone has `AT_ONCE`.
    """

    def __init__(self) -> None:
        self._begun: defaultdict[str, list[float]] = defaultdict(list)
        self._active: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, client: str) -> bool:
        """Begin an action; False where it is not this client's turn."""
        now = time.monotonic()
        with self._lock:
            self._active[client] = now
            self._active = {each: at for each, at in self._active.items() if at > now - ACTIVE}
            begun = self._begun[client] = [at for at in self._begun[client] if at > now - LOST]
            if len(begun) >= (AT_ONCE if len(self._active) == 1 else 1):
                return False
            begun.append(now)
            return True

    def give(self, client: str) -> None:
        """End the client's oldest action."""
        with self._lock:
            self._begun[client] = self._begun[client][1:]
            if not self._begun[client]:
                del self._begun[client]

    def give_all(self, client: str) -> None:
        """End all actions of a client that reads no answer any more: Gradio drops those that have not run."""
        with self._lock:
            self._begun.pop(client, None)

    @contextmanager
    def of(self, request: Any) -> Iterator[None]:
        """An action that Gradio runs: its turn ends with it. request: Gradio's."""
        try:
            yield
        finally:
            self.give(client_of(request.client.host if request.client else "", request.headers))


class Guard:
    """ASGI middleware: limits on what is sent here, and what the browser may do with what is sent back.

    functions: the numbers of Gradio's listeners.
    """

    def __init__(self, app: Any, turns: Turns, functions: Collection[int]) -> None:
        self.app, self._turns, self._functions = app, turns, functions
        self._busy: Counter[tuple[str, bool]] = Counter()
        self._unread: TTLCache[str, Counter[str]] = TTLCache(10_000, 3600)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        client = client_of((scope.get("client") or ("",))[0], headers)
        answer = _Answer(send, path)
        if _SHUT.search(path):
            await _refuse(403, "This is not served here.", scope, receive, answer)
            return
        if _STATIC.match(path):
            await self.app(scope, receive, answer)
            return
        streams = scope["method"] == "GET" and bool(_STREAM.match(path))
        key, cost = (client, streams), PAGE if path == "/" else 1
        if self._busy[key] + cost > (STREAMS if streams else IN_FLIGHT):
            await _refuse(429, "Too much at once; try again in a moment.", scope, receive, answer)
            return
        self._busy[key] += cost
        try:
            if streams:
                self._reads(client, scope.get("query_string", b""))
            if scope["method"] == "POST":
                await self._post(client, headers, scope, receive, answer)
            else:
                await self.app(scope, receive, answer)
        except RuntimeError as error:
            # So Gradio ends the stream of a page that it does not know, after the answer has begun.
            if not isinstance(error.__cause__, HTTPException):
                raise
            await answer({"type": "http.response.body", "body": b""})
        finally:
            asyncio.get_running_loop().call_later(0 if streams else LEAST, self._leave, key, cost)

    def _leave(self, key: tuple[str, bool], cost: int) -> None:
        self._busy[key] -= cost
        if not self._busy[key]:
            del self._busy[key]
            if key[1]:
                self._turns.give_all(key[0])

    def _reads(self, client: str, query: bytes) -> None:
        """A client reads the answers of a page."""
        page = parse_qs(query.decode("latin-1")).get("session_hash", [""])[0]
        self._unread.setdefault(client, Counter()).pop(page, None)

    async def _post(
        self, client: str, headers: Headers, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        path, length = scope["path"], headers.get("content-length", "")
        size = int(length) if re.fullmatch("[0-9]{1,15}", length) else None
        if path.rstrip("/").endswith("/upload"):
            refused = _refused_upload(size)
        else:
            body = await _read(receive) if (size or 0) <= MAX_BODY else None
            refused = (413, "What was sent is too large.") if body is None else self._refused(path, body)
            receive = _again(body or b"", receive)
        if refused is not None:
            await _refuse(*refused, scope, receive, answer)
            return
        if not path.startswith(_QUEUED):
            await self.app(scope, receive, answer)
            return
        unread = self._unread.setdefault(client, Counter())
        page = str(json.loads(body or b"{}").get("session_hash") or "")
        if unread.total() >= UNREAD:
            await _refuse(429, "Answers are waiting to be read first.", scope, receive, answer)
            return
        unread[page] += 1
        first = await receive()
        while not self._turns.take(client):
            with suppress(TimeoutError):
                await asyncio.wait_for(receive(), 0.03)
                return  # who asked has gone
        await self.app(scope, _again(first["body"], receive), answer)
        if answer.status != 200:
            self._turns.give(client)

    def _refused(self, path: str, body: bytes) -> tuple[int, str] | None:
        """Why a body never reaches Gradio, None if it does."""
        try:
            value = json.loads(body.decode()) if body else {}
            text = json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # no JSON, too deep, or half a character
            return 400, "This is not JSON in valid Unicode."
        if _ADDRESS.search(text):
            return 400, "A file is uploaded first; no address is fetched."
        if _NAMED.match(path):
            if not isinstance(value, dict):
                return 400, "This is no call."
            number = value.get("fn_index")
            if type(number) is not int or number not in self._functions:
                return 404, "There is no such function."
        return None


def _refused_upload(size: int | None) -> tuple[int, str] | None:
    if size is None:
        return 411, "How much is not said."
    if size > MAX_UPLOAD:
        return 413, "What was sent is too large."
    folder = os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir()
    if os.path.isdir(folder) and shutil.disk_usage(folder).free < DISK_LEFT:
        return 429, "Too much has been uploaded; try again in an hour."
    return None


async def _refuse(status: int, words: str, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse({"detail": words}, status)(scope, receive, send)


async def _read(receive: Receive) -> bytes | None:
    """The body of a request, None where it is too large."""
    body = bytearray()
    while len(body) <= MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)
    return None


def _again(body: bytes, receive: Receive) -> Receive:
    """A receiver that has the body first."""
    given = [body]

    async def received() -> MutableMapping[str, Any]:
        if given:
            return {"type": "http.request", "body": given.pop()}
        return await receive()

    return received


class _Answer:
    """Sends an answer with the headers that keep strangers' scripts out of it. status: 0 before it begins."""

    def __init__(self, send: Send, path: str) -> None:
        self._send, self._path, self.status = send, path, 0
        self._page: MutableMapping[str, Any] | None = None
        self._body = bytearray()

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update({"x-content-type-options": "nosniff", "referrer-policy": "same-origin"})
            if "/file" in self._path:  # an upload, which may be a page or a drawing with a script inside
                headers.append("content-security-policy", "default-src 'none'; sandbox")
            if headers.get("content-type", "").startswith("text/html"):
                self._page = message  # held back until its scripts are known
                return
        elif self._page is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            start, self._page = self._page, None
            policy = content_security_policy(bytes(self._body))
            MutableHeaders(scope=start).append("content-security-policy", policy)
            await self._send(start)
            await self._send({"type": "http.response.body", "body": bytes(self._body)})
            return
        await self._send(message)


def content_security_policy(page: bytes) -> str:
    """The policy of an HTML page: its own scripts by their hashes, and nothing from another host.

    Gradio compiles the script of `gr.HTML` in the browser, so 'unsafe-eval' is needed, and it sets styles
    inline. Event handlers in HTML and scripts that are not in `page` do not run.
    """
    digests = (base64.b64encode(hashlib.sha256(found).digest()) for found in _INLINE.findall(page))
    hashes = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' 'unsafe-eval' {hashes}".rstrip(),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'self' https://huggingface.co https://*.hf.space",
        )
    )
