"""One door: what the page needs passes, with its turn; everything else is 404 before Gradio sees it.

Gradio's own limits are set in `server`; the rest is here: visitors at one address wait for one another, work
ends whose answers nobody reads, what is sent is checked before Gradio reads it, and no script runs in the
page but its own.
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
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = {"click": 2, "apart": 2, "cancel": 2, "page": 2, "upload": 4, "stream": 100}
"""What is worked on at a time for one address, by kind; the rest waits. One click while others are active.
Two cores gain nothing from more than two, and a short click need not wait for a long one."""
OF_ADDRESS, OF_PAGE = 300, 4  # at work or waiting; of a page by kind
SILENT = 3.0  # seconds after which work ends whose answers nobody reads
LOST = 60.0  # seconds in which a turn begins: Gradio may drop it
SLOW = 60.0  # seconds in which a reader takes something
LEAST = 0.1  # seconds that the page's turn takes at least: Gradio writes the page anew each time
MOST = {"click": 2**20, "upload": 64 * 2**20}  # bytes of a body
DISK_LEFT = 2 * 2**30  # bytes below which no upload is taken
_OPEN = {  # all that the page asks for, by kind
    "page": r"(?:GET|HEAD) /(?:config)?",
    "asset": r"GET /(?:(?:assets|static)/.{1,200}|theme\.css|favicon\.ico|manifest\.json)"
    r"|GET /gradio_api/(?:app_id|startup-events)",
    "waiting": r"GET /waiting",
    "stream": r"GET /gradio_api/(?:queue/data|upload_progress)",
    "upload": r"POST /gradio_api/upload",
    "click": r"POST /gradio_api/queue/join",
}
_CALLS = ("click", "apart", "cancel")  # what the queue works on after the answer
_ONCE = {"host", "origin", "content-length", "content-type", "transfer-encoding"}
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
# Gradio compiles the script of `gr.HTML` in the browser and sets styles inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' {}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'self' https://huggingface.co https://*.hf.space"
)


class Turn:
    """Something of a client that is at work, or waits for that.

    line: what all clients have of that, in order. The server's thread changes it, others read.
    """

    def __init__(self, line: list[Turn], client: str, kind: str, page: str = "") -> None:
        self.client, self.kind, self.page, self._line = client, kind, page, line
        self.free, self.since = asyncio.Event(), 0.0  # its turn; since when nobody reads
        self.works = self.canceled = False

    def of_page(self, *kinds: str) -> list[Turn]:
        """What its page has of these kinds."""
        return [one for one in [*self._line] if one.page == self.page and one.kind in kinds]

    def work(self, updates: Generator[Any, None, None]) -> Iterator[Any]:
        """The updates, as long as somebody reads them, or may be about to. The turn ends with them."""
        self.works = True
        try:
            while not self.canceled and (self.of_page("stream") or time.monotonic() - self.since < SILENT):
                if not self.of_page("stream"):
                    time.sleep(0.01)  # nothing is computed for nobody
                elif (update := next(updates, None)) is not None:
                    yield update
                else:
                    break
        finally:
            updates.close()
            self.works = False
            self.end()

    def cancel(self) -> None:
        """End what its page has at work or waiting; back when that is so, or after some seconds."""
        until, ended = time.monotonic() + 5, self.of_page("click", "apart")
        for turn in ended:
            turn.canceled = True
        while any(turn.works for turn in ended) and time.monotonic() < until:
            time.sleep(0.01)

    def begin(self) -> None:
        """Stand in line; HTTPException where the address or the page has too much there."""
        self._loop = asyncio.get_running_loop()
        count = sum(one.client == self.client for one in self._line)
        if count >= OF_ADDRESS or (self.page and len(self.of_page(self.kind)) >= OF_PAGE):
            raise HTTPException(429, "Too much at once; try again in a moment.")
        self._line.append(self)
        self._move()

    def end(self, after: float = 0.0) -> None:
        """Let the next one come, unless this one works then; from any thread, and again without effect."""
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._loop.call_later, after, self._leave)

    def _leave(self) -> None:
        if self.works or self not in self._line:
            return
        self._line.remove(self)
        self._move()
        if self.kind == "stream" and not self.of_page("stream"):
            for one in self.of_page(*_CALLS):
                one.since = time.monotonic()
                if one.free.is_set():
                    one.end()  # Gradio drops what has not run

    def _move(self) -> None:
        line = [one for one in self._line if one.client == self.client]
        left = Counter(AT_ONCE) - Counter(["click"] if len(line) < len(self._line) else [])
        for one in line:
            left[one.kind] -= 1
            if left[one.kind] >= 0 and not one.free.is_set():
                one.since = time.monotonic()
                one.free.set()


class Door:
    """ASGI middleware. functions: the kind of each of Gradio's listeners, by its number."""

    def __init__(self, app: ASGIApp, functions: Mapping[int, str]) -> None:
        self.app, self._functions = app, functions
        self._line: list[Turn] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # that it starts and ends; for a websocket there is no route
            return await self.app(scope, receive, send)
        try:
            await self._serve(Request(scope, receive), receive, Answer(send))
        except HTTPException as no:
            await JSONResponse({"detail": no.detail}, no.status_code)(scope, receive, Answer(send))

    async def _serve(self, request: Request, receive: Receive, answer: Answer) -> None:
        scope, asked = request.scope, f"{request.method} {request.scope['path']}"
        kind = next((kind for kind, known in _OPEN.items() if re.fullmatch(known, asked)), "")
        said = [name for name, _ in request.query_params.multi_items()]
        said += [name for name in request.headers.keys() if name in _ONCE]  # noqa: SIM118 (each of a name's)
        if not kind:
            raise HTTPException(404, "This is not served here.")
        if len(set(said)) < len(said):
            raise HTTPException(400, "Something is said twice.")
        if kind == "asset":
            return await self.app(scope, receive, answer)
        if kind == "waiting":
            ahead = sum(one.kind == "click" for one in self._line) - 1
            return await JSONResponse({"ahead": max(0, ahead)})(scope, receive, answer)
        if kind in MOST:
            check_size(request.headers, kind)
        page = request.query_params.get("session_hash", "")
        if kind == "click":
            kind, page, receive = self._call(await request.body(), receive)
        turn = Turn(self._line, client_of(request), kind, page)
        turn.begin()
        try:
            await turn.free.wait()
            await self.app({**scope, "turn": turn}, receive, answer)
        except RuntimeError as error:
            # So Gradio ends the stream of a page that it does not know, after the answer has begun.
            if not isinstance(error.__cause__, HTTPException):
                raise
            await answer({"type": "http.response.body", "body": b""})
        finally:
            queued = kind in _CALLS and answer.status == 200  # its work ends it
            turn.end(LOST if queued else LEAST if kind == "page" else 0.0)

    def _call(self, body: bytes, receive: Receive) -> tuple[str, str, Receive]:
        """Kind and page of what a body asks for, and a receiver of what Gradio needs of it."""
        try:
            said = json.loads(body.decode())
            kind = self._functions[said["fn_index"]]
            [page] = re.findall(r"\A[\w-]{1,64}\Z", said["session_hash"])
            event = json.dumps(said.get("event_data"), ensure_ascii=False)  # a text: Gradio seeks no files
            call = {"fn_index": said["fn_index"], "session_hash": page, "data": [], "event_data": event}
            given = [json.dumps(call, ensure_ascii=False).encode()]  # fails for half a character
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise HTTPException(400, "This is no call, as JSON in valid Unicode.") from None

        async def again() -> Message:
            return {"type": "http.request", "body": given.pop()} if given else await receive()

        return kind, page, again


class Answer:
    """Sends an answer with the headers that keep strangers' scripts out of it. status: 0 before it begins."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0
        self._held: list[Message] = []  # the head of a page, until its scripts are known

    async def __call__(self, message: Message) -> None:
        sent, self._held = [*self._held, message], []
        if message["type"] == "http.response.start":
            self.status, headers = message["status"], MutableHeaders(scope=message)
            headers.update({"x-content-type-options": "nosniff", "referrer-policy": "same-origin"})
            if headers.get("content-type", "").startswith("text/html"):
                self._held, sent = sent, []
        elif len(sent) > 1:
            MutableHeaders(scope=sent[0])["content-security-policy"] = policy(message["body"])
        async with asyncio.timeout(SLOW):
            for part in sent:
                await self._send(part)


def policy(page: bytes) -> str:
    """The policy of an HTML page: its own scripts by their hashes, and nothing from another host."""
    digests = (base64.b64encode(hashlib.sha256(found).digest()).decode() for found in _INLINE.findall(page))
    return _POLICY.format(" ".join(f"'sha256-{digest}'" for digest in digests))


def client_of(request: Request) -> str:
    """The address of a request: on a Space as its proxy says, elsewhere never as a client says."""
    said = request.headers.getlist("x-forwarded-for") if os.environ.get("SPACE_ID") else []
    said = said or [request.client.host if request.client else ""]
    return said[-1].rpartition(",")[2].strip()


def check_size(headers: Headers, kind: str) -> None:
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isdecimal():
        raise HTTPException(411, "How much is not said.")
    if int(length[:15]) > MOST[kind]:
        raise HTTPException(413, "What was sent is too large.")
    folder = os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir()
    if kind == "upload" and os.path.isdir(folder) and shutil.disk_usage(folder).free < DISK_LEFT:
        raise HTTPException(429, "Too much has been uploaded; try again in an hour.")
