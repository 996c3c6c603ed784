"""Answers as they are sent: no script runs in the page but its own, and no reader holds one for ever."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

SLOW = 60.0  # seconds in which a reader takes something
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
# Gradio compiles the script of `gr.HTML` in the browser and sets styles inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' {}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'self' https://huggingface.co https://*.hf.space"
)


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
