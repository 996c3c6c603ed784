"""One door: what the page needs passes, with its turn; everything else is 404 before Gradio sees it.

Gradio's own limits are set in `server`. Here is what it has none for: the visitors at one address wait for
one another, so that its queue goes from address to address; work ends whose answers nobody reads; what is
sent is checked before Gradio reads it; and what is sent back lets no script run in the page but its own.
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
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

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
SLOW = LOST = 60.0  # seconds in which a reader takes something, and a turn begins: Gradio may drop it
LEAST = 0.1  # seconds that the page's turn takes at least: Gradio writes the page anew each time
MOST = {"click": 2**20, "upload": 64 * 2**20}  # bytes of a body
DISK_LEFT = 2 * 2**30  # bytes below which no upload is taken

_OPEN = {
    "page": r"(?:GET|HEAD) /(?:config)?",
    "asset": r"GET /(?:(?:assets|static)/.+|theme\.css|favicon\.ico|manifest\.json)"
    r"|GET /gradio_api/(?:app_id|startup-events)",
    "waiting": r"GET /waiting",
    "stream": r"GET /gradio_api/(?:queue/data|upload_progress)",
    "upload": r"POST /gradio_api/upload",
    "click": r"POST /gradio_api/queue/join",
}
"""All that the page asks for, by kind."""
_CALLS = ("click", "apart", "cancel")  # what the queue works on after the answer
_ONCE = {b"host", b"origin", b"content-length", b"content-type", b"transfer-encoding"}
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
# Gradio compiles the script of `gr.HTML` in the browser and sets styles inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' {}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'self' https://huggingface.co https://*.hf.space"
)


class Turn:
    """Something of a client that is at work, or waits for that."""

    def __init__(self, turns: Turns, client: str, kind: str, page: str = "") -> None:
        self.client, self.kind, self.page, self._turns = client, kind, page, turns
        self.free, self.since = asyncio.Event(), 0.0  # its turn; since when nobody reads
        self.begun = self.canceled = False

    @property
    def heard(self) -> bool:
        """True while somebody reads the answers of its page, or may be about to."""
        read = self.page in self._turns.streams or time.monotonic() - self.since < SILENT
        return read and not self.canceled

    def work(self, updates: Generator[Any, None, None]) -> Iterator[Any]:
        """The updates, as long as somebody listens. The turn ends with them."""
        self.begun = True
        try:
            while self.heard and self.page not in self._turns.streams:
                time.sleep(0.01)  # nothing is computed for nobody
            with suppress(StopIteration):
                while self.heard:
                    yield next(updates)
        finally:
            updates.close()
            self.end()

    def end(self, after: float = 0.0, unless_begun: bool = False) -> None:
        """Let the next one come; from any thread, and again without effect."""
        if unless_begun and self.begun:
            return
        with suppress(RuntimeError):  # the server has ended
            self._turns.loop.call_soon_threadsafe(self._turns.loop.call_later, after, self._turns.leave, self)


class Turns:
    """What each address has at work and waiting, in order, and which pages somebody reads.

    The server's thread changes it, others read.
    """

    def __init__(self) -> None:
        self.streams: Counter[str] = Counter()  # open, by page
        self._lines: defaultdict[str, list[Turn]] = defaultdict(list)  # by address

    def __len__(self) -> int:
        """How many clicks of all visitors there are."""
        return sum(one.kind == "click" for line in [*self._lines.values()] for one in [*line])

    def add(self, turn: Turn) -> None:
        """Stand in line; HTTPException where the address or the page has too much there."""
        self.loop = asyncio.get_running_loop()
        line = self._lines[turn.client]
        same = [one for one in line if turn.page and (one.page, one.kind) == (turn.page, turn.kind)]
        if len(line) >= OF_ADDRESS or len(same) >= OF_PAGE:
            raise HTTPException(429, "Too much at once; try again in a moment.")
        self.streams.update([turn.page] if turn.kind == "stream" else [])
        line.append(turn)
        self._move(turn.client)

    def leave(self, turn: Turn) -> None:
        if turn not in self._lines.get(turn.client, ()):
            return
        self._lines[turn.client].remove(turn)
        self._move(turn.client)
        if turn.kind == "stream":
            self.streams -= Counter([turn.page])
            for one in self._of(turn.page) if turn.page not in self.streams else []:
                one.since = time.monotonic()
                if one.free.is_set():
                    one.end(unless_begun=True)  # Gradio drops what has not run

    def _move(self, client: str) -> None:
        left = Counter(AT_ONCE) - Counter(["click"] if len(self._lines) > 1 else [])
        for turn in self._lines[client]:
            left[turn.kind] -= 1
            if left[turn.kind] >= 0 and not turn.free.is_set():
                turn.since = time.monotonic()
                turn.free.set()
        if not self._lines[client]:
            del self._lines[client]

    def cancel(self, page: str) -> None:
        """End what a page has at work or waiting; back when that is so, or after some seconds."""
        end = time.monotonic() + 5
        for turn in self._of(page):
            turn.canceled = turn.kind != "cancel"
        while any(turn.begun and turn.canceled for turn in self._of(page)) and time.monotonic() < end:
            time.sleep(0.01)

    def _of(self, page: str) -> list[Turn]:
        lines = [[*line] for line in [*self._lines.values()]]
        return [turn for line in lines for turn in line if turn.page == page and turn.kind in _CALLS]


class Door:
    """ASGI middleware. functions: the kind of each of Gradio's listeners, by its number."""

    def __init__(self, app: ASGIApp, turns: Turns, functions: Mapping[int, str]) -> None:
        self.app, self._turns, self._functions = app, turns, functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            try:
                await self._serve(scope, receive, Answer(send))
            except HTTPException as no:
                await JSONResponse({"detail": no.detail}, no.status_code)(scope, receive, Answer(send))
        else:
            await send({"type": "websocket.close"})

    async def _serve(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        asked, headers, page = f"{scope['method']} {scope['path']}", Headers(scope=scope), ""
        kind = next((kind for kind, known in _OPEN.items() if re.fullmatch(known, asked)), "")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        said = [*(name for name, _ in query), *(name for name, _ in scope["headers"] if name in _ONCE)]
        if not kind:
            raise HTTPException(404, "This is not served here.")
        if len(set(said)) < len(said):
            raise HTTPException(400, "Something is said twice.")
        if kind == "asset":
            await self.app(scope, receive, answer)
        elif kind == "waiting":
            await JSONResponse({"ahead": max(0, len(self._turns) - 1)})(scope, receive, answer)
        else:
            if kind in MOST:
                check_size(headers, kind)
            if kind == "stream":
                page = dict(query).get("session_hash", "")
            elif kind == "click":
                kind, page, receive = self._call(await Request(scope, receive).body(), receive)
            client = client_of((scope.get("client") or ("",))[0], headers)
            await self._in_turn(Turn(self._turns, client, kind, page), scope, receive, answer)

    async def _in_turn(self, turn: Turn, scope: Scope, receive: Receive, answer: Answer) -> None:
        self._turns.add(turn)
        try:
            await turn.free.wait()
            await self.app({**scope, "turn": turn}, receive, answer)
        except RuntimeError as error:
            # So Gradio ends the stream of a page that it does not know, after the answer has begun.
            if not isinstance(error.__cause__, HTTPException):
                raise
            await answer({"type": "http.response.body", "body": b""})
        finally:
            if turn.kind in _CALLS and answer.status == 200:  # the answer's work ends it
                self._turns.loop.call_later(LOST, turn.end, 0.0, True)
            else:
                turn.end(LEAST if turn.kind == "page" else 0.0)

    def _call(self, body: bytes, receive: Receive) -> tuple[str, str, Receive]:
        """Kind and page of what a body asks for, and a receiver of what Gradio needs of it.

        What the visitor does stays a text there, so that Gradio looks for no files in it.
        """
        try:
            said = json.loads(body.decode())
            page, number = said["session_hash"], said["fn_index"]
            kind, event = self._functions[number], json.dumps(said.get("event_data"), ensure_ascii=False)
            event.encode()  # fails for half a character
            if not re.fullmatch(r"[\w-]{1,64}", page):
                raise ValueError
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise HTTPException(400, "This is no call, as JSON in valid Unicode.") from None
        call = {"fn_index": number, "session_hash": page, "data": [], "event_data": event}
        given = [json.dumps(call).encode()]

        async def again() -> Message:
            return {"type": "http.request", "body": given.pop()} if given else await receive()

        return kind, page, again


def client_of(host: str | None, headers: Headers) -> str:
    """The address of a request: on a Space as its proxy says, elsewhere never as a client says."""
    forwarded = ",".join(headers.getlist("x-forwarded-for")) if os.environ.get("SPACE_ID") else ""
    return (forwarded or host or "").rpartition(",")[2].strip()


def check_size(headers: Headers, kind: str) -> None:
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isdecimal():
        raise HTTPException(411, "How much is not said.")
    if int(length[:15]) > MOST[kind]:
        raise HTTPException(413, "What was sent is too large.")
    folder = os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir()
    if kind == "upload" and os.path.isdir(folder) and shutil.disk_usage(folder).free < DISK_LEFT:
        raise HTTPException(429, "Too much has been uploaded; try again in an hour.")


class Answer:
    """Sends an answer with the headers that keep strangers' scripts out of it. status: 0 before it begins."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0
        self._page: list[Message] = []  # of HTML, held back until its scripts are known

    async def __call__(self, message: Message) -> None:
        sent = [message]
        if message["type"] == "http.response.start":
            self.status, headers = message["status"], MutableHeaders(scope=message)
            headers.update({"x-content-type-options": "nosniff", "referrer-policy": "same-origin"})
            if headers.get("content-type", "").startswith("text/html"):
                self._page, sent = sent, []
        elif self._page:
            self._page.append(message)
            sent = [] if message.get("more_body") else self._page
            if sent:
                whole = b"".join(part.get("body", b"") for part in sent)
                MutableHeaders(scope=sent[0]).append("content-security-policy", policy(whole))
        async with asyncio.timeout(SLOW):
            for part in sent:
                await self._send(part)


def policy(page: bytes) -> str:
    """The policy of an HTML page: its own scripts by their hashes, and nothing from another host."""
    digests = (base64.b64encode(hashlib.sha256(found).digest()).decode() for found in _INLINE.findall(page))
    return _POLICY.format(" ".join(f"'sha256-{digest}'" for digest in digests))
