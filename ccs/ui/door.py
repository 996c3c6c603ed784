"""One door: what the page needs passes, with its turn; everything else is 404 before Gradio sees it.

Gradio's own limits are set in `server`. Here visitors at one address wait for one another, work ends that
nobody reads, what is sent is checked before Gradio reads it, and no script runs but the page's own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = {"click": 2, "apart": 2, "cancel": 2, "page": 2, "upload": 4, "stream": 100}
"""What is worked on at a time for one address, by kind; the rest waits. One click while others are active.
Two cores gain nothing from more than two, and a short click need not wait for a long one."""
OF_ADDRESS, OF_PAGE = 300, 4  # at work or waiting; of a page by kind
SILENT = 3.0  # seconds after which work ends whose answers nobody reads
PATIENCE = 60.0  # seconds in which a turn begins, which Gradio may drop, and a reader takes something
LEAST = 0.1  # seconds that the page's turn takes at least: Gradio writes the page anew each time
MOST = {"click": 2**20, "upload": 64 * 2**20}  # bytes of a body
DISK_LEFT = 2 * 2**30  # bytes below which no upload is taken
_OPEN = {  # all that the page asks for, by kind
    "page": r"(GET|HEAD) /(config)?",
    "asset": r"GET /((assets|static)/.{1,200}|(theme|favicon|manifest)\.\w+|gradio_api/(app_id|startup-\w+))",
    "waiting": r"GET /waiting",
    "stream": r"GET /gradio_api/queue/data",
    "upload": r"POST /gradio_api/upload",
    "click": r"POST /gradio_api/queue/join",
}
_CALLS = ("click", "apart", "cancel")  # what the queue works on after the answer
_ONCE = {"host", "origin", "content-length", "content-type", "transfer-encoding"}
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
# Gradio compiles the script of `gr.HTML` in the browser and sets styles inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' {}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'self' https://huggingface.co https://*.hf.space"
)


class Turn:
    """Something of a client that is at work or waits for that, in `line` with what others have.

    The server's thread changes the line, others read. HTTPException where address or page has too much there.
    """

    def __init__(self, line: list[Turn], client: str, kind: str, page: str = "") -> None:
        self.client, self.kind, self.page, self._line = client, kind, page, line
        self.works = self.canceled = False
        self._loop = asyncio.get_running_loop()
        self.free: asyncio.Future[float] = self._loop.create_future()  # the moment when its turn comes
        count = sum(one.client == client for one in line)
        if count >= OF_ADDRESS or (page and len(self.of_page(kind)) >= OF_PAGE):
            raise HTTPException(429, "Too much at once; try again in a moment.")
        line.append(self)
        self._move()

    def of_page(self, *kinds: str) -> list[Turn]:
        """What its page has of these kinds."""
        return [one for one in [*self._line] if one.page == self.page and one.kind in kinds]

    def work(self, updates: Generator[Any, None, None]) -> Iterator[Any]:
        """The updates, as long as somebody reads them, or may be about to. The turn ends with them."""
        self.works, until = True, self.free.result() + SILENT
        try:
            while not self.canceled and (self.of_page("stream") or time.monotonic() < until):
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

    def end(self, after: float = 0.0) -> None:
        """Let the next one come, unless this one works then; from any thread, and again without effect."""
        self._loop.call_soon_threadsafe(self._loop.call_later, after, self._leave)

    def _leave(self) -> None:
        if self.works or self not in self._line:
            return
        self._line.remove(self)
        self._move()
        if self.kind == "stream" and not self.of_page("stream"):
            for one in self.of_page(*_CALLS):
                if one.free.done():
                    one.end()  # Gradio drops what has not run

    def _move(self) -> None:
        line = [one for one in self._line if one.client == self.client]
        left = Counter(AT_ONCE) - Counter(["click"] if len(line) < len(self._line) else [])
        for one in line:
            left[one.kind] -= 1
            if left[one.kind] >= 0 and not one.free.done():
                one.free.set_result(time.monotonic())


class Door:
    """ASGI middleware. functions: the kind of each of Gradio's listeners, by its number."""

    def __init__(self, app: ASGIApp, functions: Mapping[int, str]) -> None:
        self.app, self._functions = app, functions
        self._line: list[Turn] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # that it starts and ends; for a websocket there is no route
            return await self.app(scope, receive, send)
        asked, answer = f"{scope['method']} {scope['path']}", Answer(send)
        kind = next((kind for kind, known in _OPEN.items() if re.fullmatch(known, asked)), "")
        limited = RequestBodyLimitMiddleware(partial(self._serve, kind, answer), MOST.get(kind, 0))
        try:
            await limited(scope, receive, answer)
        except HTTPException as no:
            await JSONResponse({"detail": no.detail}, no.status_code)(scope, receive, answer)

    async def _serve(self, kind: str, answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        query, headers = request.query_params, request.headers
        if not kind or (kind == "upload" and query):  # how far an upload is: nobody reads it, Gradio keeps it
            raise HTTPException(404, "This is not served here.")
        if len(query.multi_items()) > len(query) or any(len(headers.getlist(name)) > 1 for name in _ONCE):
            raise HTTPException(400, "Something is said twice.")
        if kind == "asset":
            return await self.app(scope, receive, send)
        if kind == "waiting":
            ahead = sum(one.kind == "click" for one in self._line) - 1
            return await JSONResponse({"ahead": max(0, ahead)})(scope, receive, send)
        uploads = os.path.dirname(os.environ.get("GRADIO_TEMP_DIR", "/"))
        if kind == "upload" and shutil.disk_usage(uploads).free < DISK_LEFT:
            raise HTTPException(429, "Too much has been uploaded; try again in an hour.")
        page = query.get("session_hash", "")
        if kind == "click":
            kind, page, receive = self._call(await request.body())
        turn = Turn(self._line, client_of(request), kind, page)
        try:
            await turn.free
            await self.app({**scope, "turn": turn}, receive, send)
        except RuntimeError as error:  # so Gradio ends the stream of a page that it does not know
            if not isinstance(error.__cause__, HTTPException):
                raise
            await send({"type": "http.response.body", "body": b""})
        finally:
            queued = kind in _CALLS and answer.status == 200  # its work ends it
            turn.end(PATIENCE if queued else LEAST if kind == "page" else 0.0)

    def _call(self, body: bytes) -> tuple[str, str, Receive]:
        """Kind and page of what a body asks for, and a receiver of what Gradio needs of it."""
        again: asyncio.Queue[Message] = asyncio.Queue()
        try:
            said = json.loads(body.decode())
            kind = self._functions[said["fn_index"]]
            [page] = re.findall(r"\A[\w-]{1,64}\Z", said["session_hash"])
            event = json.dumps(said.get("event_data"), ensure_ascii=False)  # a text: Gradio seeks no files
            call = {"fn_index": said["fn_index"], "session_hash": page, "data": [], "event_data": event}
            given = json.dumps(call, ensure_ascii=False).encode()  # fails for half a character
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise HTTPException(400, "This is no call, as JSON in valid Unicode.") from None
        again.put_nowait({"type": "http.request", "body": given})
        return kind, page, again.get


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
        async with asyncio.timeout(PATIENCE):
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
