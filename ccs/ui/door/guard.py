"""One door: what the page needs passes, with its turn; everything else is 404 before Gradio sees it.

Gradio's own limits are set in `server`. Here is what it has none for: whoever is at one address takes turns
with the others, and a body is checked before Gradio reads it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from ccs.ui.door.answer import Answer, Message, Receive, Scope, Send
from ccs.ui.door.turns import Refused, Turn, Turns

STREAMS = 100  # open at an address
LEAST = 0.1  # seconds that a turn of the kind "page" takes at least: Gradio writes the page anew each time
MAX_PATH = 4096
MAX_BODY, MAX_UPLOAD = 2**20, 64 * 2**20
DISK_LEFT = 2 * 2**30  # bytes below which no upload is taken

_OPEN = {
    "page": r"(?:GET|HEAD) /(?:config)?",
    "asset": r"GET /(?:(?:assets|static)/.+|theme\.css|favicon\.ico|manifest\.json)",
    "state": r"GET /gradio_api/(?:app_id|startup-events)",
    "waiting": r"GET /waiting",
    "stream": r"GET /gradio_api/(?:queue/data|upload_progress)",
    "upload": r"POST /gradio_api/upload",
    "click": r"POST /gradio_api/queue/join",
}
"""All that the page asks for, by kind."""
_ONCE = {b"host", b"origin", b"content-length", b"content-type", b"transfer-encoding"}
_ADDRESS = re.compile(rb'(?<!\\)"https?://')  # a text of JSON that begins so


def client_of(host: str | None, headers: Headers) -> str:
    """The address of a request: on a Space as its proxy says, elsewhere never as a client says."""
    forwarded = ",".join(headers.getlist("x-forwarded-for")) if os.environ.get("SPACE_ID") else ""
    return (forwarded or host or "").rpartition(",")[2].strip()


class Guard:
    """ASGI middleware: the door.

    functions: the kind of each of Gradio's listeners, by its number.
    """

    def __init__(self, app: Any, turns: Turns, functions: Mapping[int, str]) -> None:
        self.app, self._turns, self._functions = app, turns, functions
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close"})
        else:
            try:
                await self._serve(scope, receive, Answer(send))
            except Refused as no:
                status, words = no.args
                await JSONResponse({"detail": words}, status)(scope, receive, Answer(send))

    async def _serve(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        asked, headers = f"{scope['method']} {scope['path']}", Headers(scope=scope)
        kind = next((kind for kind, known in _OPEN.items() if re.fullmatch(known, asked)), None)
        if kind is None:
            raise Refused(404, "This is not served here.")
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        for names in ([n for n, _ in query], [n for n, _ in scope["headers"] if n.lower() in _ONCE]):
            if len(set(names)) < len(names):
                raise Refused(400, "Something is said twice.")
        client = client_of((scope.get("client") or ("",))[0], headers)
        if kind in ("asset", "state"):
            await self.app(scope, receive, answer)
        elif kind == "waiting":
            await JSONResponse({"ahead": max(0, len(self._turns) - 1)})(scope, receive, answer)
        elif kind == "stream":
            await self._stream(client, str(dict(query).get("session_hash", "")), scope, receive, answer)
        else:
            body, page = b"", ""
            if kind == "upload":
                check_upload(headers.get("content-length", ""))
            elif kind == "click":
                body = await _read(headers.get("content-length", ""), receive)
                page, kind = self._checked(body)
            await self._in_turn(Turn(self._turns, client, kind, page), body, scope, receive, answer)

    async def _in_turn(self, turn: Turn, body: bytes, scope: Scope, receive: Receive, answer: Answer) -> None:
        self._turns.add(turn)
        try:
            if not turn.free.is_set() and not await _comes(turn.free, receive):
                return  # who asked has gone
            scope["turn"] = turn
            await self.app(scope, _again(body, receive) if body else receive, answer)
        finally:
            if not turn.page or answer.status != 200:  # else the answer's work ends it
                turn.end(LEAST if turn.kind == "page" else 0.0)

    async def _stream(self, client: str, page: str, scope: Scope, receive: Receive, answer: Answer) -> None:
        if self._streams[client] >= STREAMS:
            raise Refused(429, "Too much at once; try again in a moment.")
        self._streams[client] += 1
        self._turns.streams[page] += 1
        try:
            await self.app(scope, receive, answer)
        except RuntimeError as error:
            # So Gradio ends the stream of a page that it does not know, after the answer has begun.
            if not isinstance(error.__cause__, HTTPException):
                raise
            await answer({"type": "http.response.body", "body": b""})
        finally:
            self._streams -= Counter([client])
            self._turns.unread(page)

    def _checked(self, body: bytes) -> tuple[str, str]:
        """The page that asks and the kind of what it asks for; Refused for what must not reach Gradio."""
        try:
            value = json.loads(body.decode(), object_hook=_named)
            text = json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # no JSON, too deep, or half a character
            raise Refused(400, "This is not JSON in valid Unicode.") from None
        if _ADDRESS.search(text):
            raise Refused(400, "A file is uploaded first; no address is fetched.")
        page = value.get("session_hash") if isinstance(value, dict) else None
        if not isinstance(page, str) or not re.fullmatch(r"[\w-]{1,64}", page) or value.get("data") != []:
            raise Refused(400, "This is no call.")
        number = value.get("fn_index")
        if type(number) is not int or number not in self._functions:
            raise Refused(404, "There is no such function.")
        return page, self._functions[number]


def _named(value: dict[str, Any]) -> dict[str, Any]:
    """Part of a call; Refused where it names a file by more than a path: Gradio would log it whole."""
    if len(str(value.get("path", ""))) > MAX_PATH:
        raise Refused(400, "This is no file's path.")
    return value


def check_upload(length: str) -> None:
    if not re.fullmatch("[0-9]{1,15}", length):
        raise Refused(411, "How much is not said.")
    if int(length) > MAX_UPLOAD:
        raise Refused(413, "What was sent is too large.")
    folder = os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir()
    if os.path.isdir(folder) and shutil.disk_usage(folder).free < DISK_LEFT:
        raise Refused(429, "Too much has been uploaded; try again in an hour.")


async def _read(length: str, receive: Receive) -> bytes:
    """The body of a request; Refused where it is too large."""
    body, more = bytearray(), not length.isdecimal() or int(length[:15]) <= MAX_BODY
    while more and len(body) <= MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)
    raise Refused(413, "What was sent is too large.")


async def _comes(free: asyncio.Event, receive: Receive) -> bool:
    """Wait for a turn; False where who asked goes first."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":  # a server may say once more that all is here
            pass

    waits = [asyncio.ensure_future(each) for each in (free.wait(), gone())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
    return free.is_set()


def _again(body: bytes, receive: Receive) -> Receive:
    """A receiver that has the body first."""
    given = [body]

    async def received() -> Message:
        if given:
            return {"type": "http.request", "body": given.pop()}
        return await receive()

    return received
