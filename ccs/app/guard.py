"""The request filter: allowed routes, bounds of bodies and of requests at a time, and security headers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FORM, IMAGES = 256 * 2**10, 64 * 2**20  # bytes of a form, and of images or a gallery
HELD = 192 * 2**20  # bytes of all bodies that are being received
AT_ONCE, CALLS = 24, 4  # of an address: requests and streams at a time, and API calls in line
SECONDS = 60.0  # in which a body must arrive
API = "/gradio_api"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self' https://huggingface.co https://*.hf.space"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}


class Guard:
    """ASGI middleware. Everything that isn't allowed here is 404 before Gradio sees it.

    Args:
        app: the application, Gradio's.
        forms: paths of the app's forms.
        functions: names of the public API functions.
    """

    def __init__(self, app: ASGIApp, forms: Iterable[str], functions: Iterable[str]) -> None:
        self.app, self._open, self._held = app, Counter[tuple[str, str]](), 0
        posts, names = "|".join(map(re.escape, forms)), "|".join(functions)
        self._allowed = [
            (methods.split(), re.compile(pattern), limit)
            for methods, pattern, limit in (
                ("GET HEAD", r"/|/api|/assets/[\w.-]{1,60}|/tables/[0-9a-f]{16}\.zip", 0),
                ("GET", r"/work|/program", 0),
                ("POST", r"/images/add|/bias/gallery", IMAGES),
                ("POST", f"/({posts})", FORM),
                ("GET", rf"/config/?|{API}/(info|queue/data|heartbeat/[\w-]{{1,64}}|startup-events)/?", 0),
                ("POST", rf"{API}/(queue/join|call(/v2)?/({names})|mcp)/?", IMAGES // 4),
                ("POST", rf"{API}/cancel/?", FORM),
                ("GET", rf"{API}/call(/v2)?/({names})/\w{{32}}", 0),
            )
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused, and hand everything else to the app."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        path, method = scope["path"].removeprefix(scope.get("root_path") or ""), scope["method"]
        rules = (limit for verbs, rule, limit in self._allowed if method in verbs and rule.fullmatch(path))
        if (limit := next(rules, None)) is None:
            return await _refuse(scope, send, 404, "Not found.")
        api, who = path.startswith(API), client_of(scope)
        counted = (who, method if api or limit else "page")
        if self._open[counted] >= (AT_ONCE if api or limit else 10 * AT_ONCE):
            return await _refuse(scope, send, 429, "Too many requests at a time. Try again in a moment.")
        self._open[counted] += 1
        body = bytearray()
        try:
            refused = await self._read(receive, body, limit)
            if not refused and limit and api:
                refused = _refusal(scope, path, who, body)
            if refused:
                return await _refuse(scope, send, *refused)
            await self.app(scope, _replay(bytes(body), receive), _with_headers(send))
        finally:
            self._held -= len(body)
            self._open[counted] -= 1
            if not self._open[counted]:
                del self._open[counted]

    async def _read(self, receive: Receive, body: bytearray, limit: int) -> tuple[int, str] | None:
        more, end = bool(limit), time.monotonic() + SECONDS
        while more:
            try:
                message = await asyncio.wait_for(receive(), end - time.monotonic())
            except TimeoutError:
                return 408, "The request took too long to arrive."
            if message["type"] == "http.disconnect":
                return 400, "The request broke off."
            part, more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(part) > limit:
                return 413, "The request is too large."
            if self._held + len(part) > HELD:
                return 503, "Too much is being sent right now. Try again in a moment."
            body += part
            self._held += len(part)
        return None


def _refusal(scope: Scope, path: str, who: str, body: bytearray) -> tuple[int, str] | None:
    """Return why an API call is refused: too many in line, not JSON, or JSON with a file of Gradio's."""
    if re.search("/(join|call)(/|$)", path):
        lines = scope["app"].get_blocks()._queue.event_queue_per_concurrency_id.values()
        if sum(client_of(event.request.scope) == who for line in lines for event in line.queue) >= CALLS:
            return 429, "Too many of your calls are waiting. Try again in a moment."
    try:
        if not _has_file(json.loads(body)):
            return None
    except (ValueError, RecursionError):
        pass
    return 422, "The body isn't JSON, or it names a file or an address: send images as base64."


def _has_file(value: Any) -> bool:
    """Whether a JSON value has an object that Gradio would take for a file, and open or fetch."""
    if isinstance(value, dict):
        return "path" in value or any(map(_has_file, value.values()))
    return isinstance(value, list) and any(map(_has_file, value))


def client_of(scope: Scope) -> str:
    """Return a request's address: on a Space the last one that its proxy wrote, else the connection's."""
    lines = [text for name, text in scope["headers"] if name == b"x-forwarded-for"]
    forwarded = lines[-1].decode("latin-1") if lines and os.environ.get("SPACE_ID") else ""
    return forwarded.split(",")[-1].strip() or (scope.get("client") or ("?",))[0]


async def _refuse(scope: Scope, send: Send, code: int, why: str) -> None:
    await PlainTextResponse(why, code, HEADERS)(scope, _replay(b"", None), send)


def _replay(body: bytes, receive: Receive | None) -> Receive:
    """Return a receiver of a body that was read already."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if first or receive is None:
            return first.pop() if first else {"type": "http.disconnect"}
        return await receive()

    return replay


def _with_headers(send: Send) -> Send:
    added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending
