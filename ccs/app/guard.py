"""The request filter: allowed routes, bounds of bodies and of requests at a time, and security headers."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Iterable

import gradio as gr
from gradio.context import LocalContext
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FORM, CALL, IMAGES = 256 * 2**10, 16 * 2**20, 64 * 2**20  # bytes of a form, an API call, and of files
HELD = 192 * 2**20  # bytes of all bodies that are being received
AT_ONCE, CALLS = 24, 4  # per address: requests and streams of a kind at a time, and queued API calls
SECONDS = 60.0  # seconds until a body must have arrived
API = "/gradio_api"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self' https://huggingface.co https://*.hf.space"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}


class Guard:
    """ASGI middleware. Everything that isn't allowed here is 404 before Gradio sees it.

    Args:
        app: The application behind the filter.
        forms: Paths of the app's forms.
        functions: Names of the public API functions.
    """

    def __init__(self, app: ASGIApp, forms: Iterable[str], functions: Iterable[str]) -> None:
        self.app, self._open, self._held = app, Counter[tuple[str, str]](), 0
        posts, names = "|".join(map(re.escape, forms)), "|".join(functions)
        self._rules = {  # methods and paths of a kind of request -> largest body in bytes
            r"(GET|HEAD) (/|/api|/assets/[\w.-]{1,60}|/tables/[0-9a-f]{16}\.zip)": 0,
            r"GET /(work|program|figure\.csv)": 0,
            r"POST /(images/add|bias/gallery)": IMAGES,
            rf"POST /({posts})": FORM,
            rf"GET (/config|{API}/(info|queue/data|heartbeat/[\w-]{{1,64}}|startup-events))/?": 0,
            rf"POST {API}/(queue/join|call(/v2)?/({names})|mcp)/?": CALL,
            rf"POST {API}/cancel/?": FORM,
            rf"GET {API}/call(/v2)?/({names})/\w{{32}}": 0,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer refused requests, and hand all others to the app."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-cache")
            await send(message)

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        path = scope["path"].removeprefix(scope.get("root_path") or "")
        rule = next((rule for rule in self._rules if re.fullmatch(rule, f"{scope['method']} {path}")), "")
        kind, limit = (client_of(scope), rule), self._rules.get(rule, 0)
        body, unread = bytearray(), list[Message]()
        self._open[kind] += 1
        try:
            if not rule:
                raise HTTPException(404, "Not found.")
            if self._open[kind] > AT_ONCE * (1 if limit or API in rule else 10):
                raise HTTPException(429, "Too many requests at a time. Try again in a moment.")
            await self._read(Request(scope, receive), body, limit)
            if limit and API in rule:
                _check_call(scope, body, queued=bool(re.search("/(join|call)(/|$)", path)))
            LocalContext.request.set(gr.Request(Request(scope)))  # threads ask ZeroGPU in the visitor's name
            unread.append({"type": "http.request", "body": bytes(body), "more_body": False})
            await self.app(scope, replay, send_secured)
        except HTTPException as refusal:
            await PlainTextResponse(refusal.detail, refusal.status_code)(scope, receive, send_secured)
        except ClientDisconnect:
            pass
        finally:
            self._held -= len(body)
            self._open -= Counter([kind])  # drops kinds at 0

    async def _read(self, request: Request, body: bytearray, limit: int) -> None:
        """Read the body. Raises HTTPException if it is too large or too slow."""
        try:
            async with asyncio.timeout(SECONDS):
                async for part in request.stream():
                    body += part
                    self._held += len(part)
                    if len(body) > limit:
                        raise HTTPException(413, "The request is too large.")
                    if self._held > HELD:
                        raise HTTPException(503, "Too much is being sent right now. Try again in a moment.")
        except TimeoutError:
            raise HTTPException(408, "The request took too long to arrive.") from None


def _check_call(scope: Scope, body: bytearray, queued: bool) -> None:
    """Refuse an API call if too many of the client's wait in line, or if Gradio would fail on its body."""
    blocks = scope["app"].get_blocks()
    lines = blocks._queue.event_queue_per_concurrency_id.values()
    waiting = [client_of(event.request.scope) for line in lines for event in line.queue]
    if queued and waiting.count(client_of(scope)) >= CALLS:
        raise HTTPException(429, "Too many of your calls are waiting. Try again in a moment.")
    try:
        text = json.dumps(call := json.loads(body), ensure_ascii=False)
        text.encode()  # half a surrogate pair breaks the calls of others too
        if '"path": ' in text or (isinstance(call, dict) and call.get("fn_index") not in (None, *blocks.fns)):
            raise ValueError  # Gradio would open or fetch a file
    except (ValueError, RecursionError):
        raise HTTPException(422, "Send a call in JSON, and images as base64, without files.") from None


def client_of(scope: Scope) -> str:
    """Return a request's address: on a Space the last one that its proxy wrote, else the connection's."""
    lines = [text for name, text in scope["headers"] if name == b"x-forwarded-for"]
    forwarded = lines[-1].decode("latin-1") if lines and os.environ.get("SPACE_ID") else ""
    return forwarded.split(",")[-1].strip() or (scope.get("client") or ("?",))[0]
