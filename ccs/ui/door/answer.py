"""What is sent back: no script runs in the page but its own, and a reader who takes nothing is left."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders

SLOW = 60.0  # seconds in which a reader takes something of an answer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


class Answer:
    """Sends an answer with the headers that keep strangers' scripts out of it. status: 0 before it begins."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0
        self._page: Message | None = None
        self._body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update({"x-content-type-options": "nosniff", "referrer-policy": "same-origin"})
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
            message = {"type": "http.response.body", "body": bytes(self._body)}
        async with asyncio.timeout(SLOW):
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
