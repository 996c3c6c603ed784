"""The request filter: allowed routes, bounds of bodies and of requests at a time, and security headers."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable

import gradio as gr
from gradio.context import LocalContext
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers, MutableHeaders
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
        posts, call = "|".join(map(re.escape, forms)), rf"call(/v2)?/({'|'.join(functions)})"
        self._rules = {  # methods and paths of a kind of request -> largest body in bytes
            r"(GET|HEAD) /(|api|work|program|figure\.csv|assets/[\w.-]{1,60}|tables/[0-9a-f]{16}\.zip)": 0,
            r"POST /(images/add|bias/gallery)": IMAGES,
            rf"POST /({posts})": FORM,
            rf"GET (/config|{API}/(info|queue/data|heartbeat/[\w-]{{1,64}}|startup-events))/?": 0,
            rf"GET {API}/{call}/\w{{32}}": 0,
            rf"POST {API}/(queue/join|{call})/?": CALL,
            rf"POST {API}/(mcp|cancel)/?": CALL,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer refused requests, and hand all others to the app."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-cache")
            await send(message)

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        path = scope["path"].removeprefix(scope.get("root_path") or "")
        rule = next((r for r in self._rules if re.fullmatch(r, f"{scope.get('method')} {path}")), "")
        kind, limit, body = (client_of(scope), rule), self._rules.get(rule, 0), bytearray()
        at_once = AT_ONCE * (1 if limit or API in rule else 10)
        self._open[kind] += 1
        try:
            refuse_if(not rule, 404, "Not found.")
            refuse_if(self._open[kind] > at_once, 429, "Too many requests at a time. Try again in a moment.")
            try:
                async with asyncio.timeout(SECONDS):
                    async for part in Request(scope, receive).stream():
                        body += part
                        self._held += len(part)
                        refuse_if(len(body) > limit, 413, "The request is too large.")
                        refuse_if(self._held > HELD, 503, "Too much is being sent. Try again in a moment.")
            except TimeoutError:
                raise HTTPException(408, "The request took too long to arrive.") from None
            if limit and API in rule:
                blocks = scope["app"].get_blocks()
                lines = blocks._queue.event_queue_per_concurrency_id.values()
                waiting = [client_of(event.request.scope) for line in lines for event in line.queue]
                full = "join" in rule and waiting.count(kind[0]) >= CALLS
                refuse_if(full, 429, "Too many of your calls are waiting. Try again in a moment.")
                refuse_if(not is_call(body, blocks.fns), 422, "Send JSON, with images as base64, not files.")
            LocalContext.request.set(gr.Request(Request(scope)))  # threads ask ZeroGPU in the visitor's name
            unread = [{"type": "http.request", "body": bytes(body)}]
            await self.app(scope, replay, send_secured)
        except HTTPException as refusal:
            await PlainTextResponse(refusal.detail, refusal.status_code)(scope, receive, send_secured)
        except ClientDisconnect:
            pass
        finally:
            self._held -= len(body)
            self._open -= Counter([kind])  # drops kinds at 0


def refuse_if(wrong: bool, status: int, sentence: str) -> None:
    """Raise HTTPException if something is wrong.

    Args:
        wrong: Whether it is.
        status: HTTP status.
        sentence: What the client is told.
    """
    if wrong:
        raise HTTPException(status, sentence)


def is_call(body: bytearray, functions: Collection[int]) -> bool:
    """Return False for a call on which Gradio would fail, also for others, or open or fetch a file.

    Args:
        body: The body of the request: JSON, in which nothing may name a file by a "path".
        functions: Numbers of the functions that it may call by number.
    """
    try:
        call = from_json(body)  # fails for half a surrogate pair too
    except ValueError:
        return False
    known = not isinstance(call, dict) or call.get("fn_index") in (None, *functions)
    return known and b'"path":' not in to_json(call)


def client_of(scope: Scope) -> str:
    """Return a request's address: on a Space the last one that its proxy wrote, else the connection's."""
    forwarded = Headers(scope=scope).getlist("x-forwarded-for") if os.environ.get("SPACE_ID") else []
    return ",".join(forwarded).split(",")[-1].strip() or (scope.get("client") or ("?",))[0]
