"""One door: what the page needs passes, with its turn; everything else is 404 before Gradio sees it.

Gradio's own limits are set in `server`; the rest is here: visitors at one address wait for one another, work
ends whose answers nobody reads, and what is sent is checked before Gradio reads it.
"""

from __future__ import annotations

import asyncio
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

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccs.ui.content_policy import Answer

AT_ONCE = {"click": 2, "apart": 2, "cancel": 2, "page": 2, "upload": 4, "stream": 100}
"""What is worked on at a time for one address, by kind; the rest waits. One click while others are active.
Two cores gain nothing from more than two, and a short click need not wait for a long one."""
OF_ADDRESS, OF_PAGE = 300, 4  # at work or waiting; of a page by kind
SILENT = 3.0  # seconds after which work ends whose answers nobody reads
LOST = 60.0  # seconds in which a turn begins: Gradio may drop it
LEAST = 0.1  # seconds that the page's turn takes at least: Gradio writes the page anew each time
MOST = {"click": 2**20, "upload": 64 * 2**20}  # bytes of a body
DISK_LEFT = 2 * 2**30  # bytes below which no upload is taken
_OPEN = {  # all that the page asks for, by kind
    "page": r"(?:GET|HEAD) /(?:config)?",
    "asset": r"GET /(?:(?:assets|static)/.+|theme\.css|favicon\.ico|manifest\.json)"
    r"|GET /gradio_api/(?:app_id|startup-events)",
    "waiting": r"GET /waiting",
    "stream": r"GET /gradio_api/(?:queue/data|upload_progress)",
    "upload": r"POST /gradio_api/upload",
    "click": r"POST /gradio_api/queue/join",
}
_CALLS = ("click", "apart", "cancel")  # what the queue works on after the answer
_ONCE = {"host", "origin", "content-length", "content-type", "transfer-encoding"}


class Turn:
    """Something of a client that is at work, or waits for that."""

    def __init__(self, turns: Turns, client: str, kind: str, page: str = "") -> None:
        self.client, self.kind, self.page, self._turns = client, kind, page, turns
        self.free, self.since = asyncio.Event(), 0.0  # its turn; since when nobody reads
        self.works = self.canceled = False

    @property
    def heard(self) -> bool:
        """True while somebody reads the answers of its page, or may be about to."""
        read = self._turns.of(self.page, "stream") or time.monotonic() - self.since < SILENT
        return bool(read) and not self.canceled

    def work(self, updates: Generator[Any, None, None]) -> Iterator[Any]:
        """The updates, as long as somebody listens. The turn ends with them."""
        self.works = True
        try:
            while self.heard and not self._turns.of(self.page, "stream"):
                time.sleep(0.01)  # nothing is computed for nobody
            while self.heard and (update := next(updates, None)) is not None:
                yield update
        finally:
            updates.close()
            self.works = False
            self.end()

    def end(self, after: float = 0.0) -> None:
        """Let the next one come, unless this one works then; from any thread, and again without effect."""
        with suppress(RuntimeError):  # the server has ended
            self._turns.loop.call_soon_threadsafe(self._turns.loop.call_later, after, self._turns.leave, self)


class Turns:
    """What all addresses have at work and waiting, in order. The server's thread changes it, others read."""

    def __init__(self) -> None:
        self._all: list[Turn] = []

    def __len__(self) -> int:
        """How many clicks of all visitors there are."""
        return sum(one.kind == "click" for one in [*self._all])

    def of(self, page: str, *kinds: str) -> list[Turn]:
        """What a page has of these kinds."""
        return [one for one in [*self._all] if one.page == page and one.kind in kinds]

    def add(self, turn: Turn) -> None:
        """Stand in line; HTTPException where the address or the page has too much there."""
        self.loop = asyncio.get_running_loop()
        line = [one for one in self._all if one.client == turn.client]
        same = [one for one in line if turn.page and (one.page, one.kind) == (turn.page, turn.kind)]
        if len(line) >= OF_ADDRESS or len(same) >= OF_PAGE:
            raise HTTPException(429, "Too much at once; try again in a moment.")
        self._all.append(turn)
        self._move(turn.client)

    def leave(self, turn: Turn) -> None:
        if turn.works or turn not in self._all:
            return
        self._all.remove(turn)
        self._move(turn.client)
        if turn.kind == "stream" and not self.of(turn.page, "stream"):
            for one in self.of(turn.page, *_CALLS):
                one.since = time.monotonic()
                if one.free.is_set():
                    one.end()  # Gradio drops what has not run

    def _move(self, client: str) -> None:
        line = [one for one in self._all if one.client == client]
        left = Counter(AT_ONCE) - Counter(["click"] if len(line) < len(self._all) else [])
        for turn in line:
            left[turn.kind] -= 1
            if left[turn.kind] >= 0 and not turn.free.is_set():
                turn.since = time.monotonic()
                turn.free.set()

    def cancel(self, page: str) -> None:
        """End what a page has at work or waiting; back when that is so, or after some seconds."""
        until, ended = time.monotonic() + 5, self.of(page, "click", "apart")
        for turn in ended:
            turn.canceled = True
        while any(turn.works for turn in ended) and time.monotonic() < until:
            time.sleep(0.01)


class Door:
    """ASGI middleware. functions: the kind of each of Gradio's listeners, by its number."""

    def __init__(self, app: ASGIApp, turns: Turns, functions: Mapping[int, str]) -> None:
        self.app, self._turns, self._functions = app, turns, functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close"})
        try:
            await self._serve(scope, receive, Answer(send))
        except HTTPException as no:
            await JSONResponse({"detail": no.detail}, no.status_code)(scope, receive, Answer(send))

    async def _serve(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        request, asked = Request(scope, receive), f"{scope['method']} {scope['path']}"
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
            return await JSONResponse({"ahead": max(0, len(self._turns) - 1)})(scope, receive, answer)
        if kind in MOST:
            check_size(request.headers, kind)
        page = request.query_params.get("session_hash", "") if kind == "stream" else ""
        if kind == "click":
            kind, page, receive = self._call(await request.body(), receive)
        client = client_of(request.client.host if request.client else "", request.headers)
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
            queued = turn.kind in _CALLS and answer.status == 200  # its work ends it
            turn.end(LOST if queued else LEAST if turn.kind == "page" else 0.0)

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
