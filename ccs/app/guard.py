"""The request filter: allowed routes, bounds of bodies and of requests at a time, and security headers."""

import re
from collections import Counter

from anyio import move_on_after
from pydantic_core import from_json, to_json
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Of a form, of an API call, of files, and of all open requests.
FORM_BYTES, CALL_BYTES, UPLOAD_BYTES, ALL_BYTES = 2**18, 2**24, 2**26, 3 * 2**26
# Per address, requests of a kind at a time (pages: ten times as many) and calls; seconds for a body.
MAX_REQUESTS, MAX_CALLS, BODY_SECONDS = 24, 4, 60.0
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self' https://huggingface.co https://*.hf.space",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}


class Guard:
    """ASGI middleware that answers 404 to everything that isn't allowed, before Gradio sees it.

    Args:
        app: The application behind the filter.
        forms: Paths of the app's forms.
        functions: Names of the public API functions, in the order of their numbers.
    """

    def __init__(self, app: ASGIApp, forms: list[str], functions: list[str]) -> None:
        self.app, self._functions = app, range(len(functions))
        # Open requests by address and kind, and the bytes of their bodies.
        self._open, self._bytes = Counter[tuple[str, str]](), 0
        call = rf"call(/v2)?/({'|'.join(functions)})"
        self._rules = {  # methods and paths of a kind of request -> largest body in bytes
            r"(GET|HEAD) /(|api|config/?|work|program|figure\.csv|assets/[\w.-]+|tables/[0-9a-f]+\.zip)": 0,
            r"POST /(images/add|bias/gallery)": UPLOAD_BYTES,
            rf"POST /({'|'.join(forms)})": FORM_BYTES,
            rf"GET /gradio_api/(info|queue/data|startup-events|heartbeat/[\w-]+|{call}/\w{{32}})/?": 0,
            r"POST /gradio_api/(mcp|cancel)/?": CALL_BYTES,
            rf"POST /gradio_api/(queue/join|{call})/?": CALL_BYTES,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer refused requests, and hand all others to the app."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                cached = "no-cache" if path.startswith("/assets/") else "no-store"  # no-cache: if unchanged
                MutableHeaders(scope=message).update({**HEADERS, "cache-control": cached})
            await send(message)

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        path = scope["path"].removeprefix(scope.get("root_path") or "")
        rule = next((r for r in self._rules if re.fullmatch(r, f"{scope.get('method')} {path}")), "")
        kind, limit, body = (scope["client"][0], rule), self._rules.get(rule, 0), bytearray()
        self._open[kind] += 1
        try:
            refuse_if(not rule, 404, "Not found.")
            lines = scope["app"].get_blocks()._queue.event_queue_per_concurrency_id if "join" in rule else {}
            queued = [event.request.scope["client"][0] for line in lines.values() for event in line.queue]
            cap = MAX_CALLS if lines else MAX_REQUESTS if limit or "gradio" in rule else 10 * MAX_REQUESTS
            refuse_if(self._open[kind] + queued.count(kind[0]) > cap, 429, "Too many requests. Retry later.")
            with move_on_after(BODY_SECONDS) as waiting:
                async for part in Request(scope, receive).stream():
                    body += part
                    self._bytes += len(part)
                    refuse_if(len(body) > limit, 413, "The request is too large.")
                    refuse_if(self._bytes > ALL_BYTES, 503, "Too much is being sent. Try again in a moment.")
            refuse_if(waiting.cancelled_caught, 408, "The request took too long to arrive.")
            is_refused = limit == CALL_BYTES and not is_call(body, self._functions)
            refuse_if(is_refused, 422, "Send JSON, with images as base64, not files.")
            unread = [{"type": "http.request", "body": bytes(body)}]
            await self.app(scope, replay, send_secured)
        except HTTPException as refusal:
            await PlainTextResponse(refusal.detail, refusal.status_code)(scope, receive, send_secured)
        except ClientDisconnect:
            pass
        finally:
            self._open -= Counter((kind,))  # drops kinds at 0
            self._bytes -= len(body)


def refuse_if(wrong: bool, status: int, sentence: str) -> None:
    """Raise HTTPException if a condition holds.

    Args:
        wrong: The condition.
        status: HTTP status.
        sentence: The message to the client.
    """
    if wrong:
        raise HTTPException(status, sentence)


def is_call(body: bytearray, functions: range) -> bool:
    """Return False for a call that makes Gradio open or fetch a file, or fail for other calls too.

    Args:
        body: The body: a JSON object in which no object has a "path", which would name a file.
        functions: Numbers of the functions that a call may name by number.
    """
    try:
        call = {"fn_index": None} | from_json(body)  # fails for half a surrogate pair too
    except (ValueError, TypeError):
        return False
    return call["fn_index"] in (None, *functions) and b'"path":' not in to_json(call)
