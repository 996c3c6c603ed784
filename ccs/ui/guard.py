"""Protection of the page from strangers: fair turns, limits on what waits, and the headers of answers.

One visitor's work never runs twice at a time; among those who wait, whoever has been served least goes first.
No script runs in the page but Gradio's and the page's own, and nothing is fetched from another host.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import gradio as gr
from gradio import processing_utils
from gradio.queueing import Event, EventQueue, Queue
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response

WAITING, WAITING_ADDRESS = 8, 40
"""Actions that may wait: of one page, and of all pages at one address."""
UNREAD, SESSIONS = 40, 256
"""Messages that a page may leave unread, and pages whose messages are kept; more are let go, oldest first."""
MEMORY = 60.0  # seconds that a visitor's use of the machine counts against them
ABOUT, FILL = 10.0, 12.0
"""Seconds for which a visitor counts as active; and seconds of work in the last minute after which an
address waits as long as others are active."""
MAX_BODY = 2**20
RATE, RATE_SECONDS = 200, 10.0
"""Requests to act that one address may send in so many seconds; more are refused at once."""
UPLOADS, UPLOAD_BYTES, UPLOAD_SECONDS = 200, 400 * 2**20, 600.0
"""Files and bytes that one address may upload in so many seconds; Gradio deletes them within two hours."""
ALL_UPLOAD_BYTES = 4 * 2**30

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SHUT = re.compile(r"/gradio_api/(?:(?:file|proxy)[=/]+\s*[a-z][a-z0-9+.-]*:|deep_link)", re.IGNORECASE)
"""Routes of Gradio that nobody here needs: it would fetch any public address and pass it on, and keep a copy
of the page on disk for each link that is asked for."""

_HEAD = b'<meta charset="utf-8" />'
_PREVIEW = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>')  # Gradio's own
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


def fetch_nothing() -> None:
    """Have Gradio refuse addresses where an API call names a file; by itself it fetches any public one."""

    assert callable(processing_utils.async_ssrf_protected_get)  # gone in a later Gradio, it would fetch again

    async def refuse(url: str) -> Any:
        raise gr.Error("A file is uploaded first; no address is fetched.", print_exception=False)

    processing_utils.async_ssrf_protected_get = refuse


def address(client: str, headers: Callable[[str], str | None]) -> str:
    """The address of a request: on a Space as its proxy says, elsewhere never as a client says."""
    forwarded = headers("x-forwarded-for") if os.environ.get("SPACE_ID") else None
    return (forwarded or client).rpartition(",")[2].strip()


class FairQueue(Queue):
    """Gradio's queue with turns by visitor instead of by arrival, and with bounds on what waits unread."""

    used: defaultdict[str, deque[tuple[float, float]]]  # visitor -> (when it ended, seconds)

    @classmethod
    def take_over(cls, queue: Queue) -> None:
        """Make an instance of Gradio's queue one of these."""
        queue.__class__ = cls
        assert isinstance(queue, cls)
        queue.used = defaultdict(deque)
        queue.pending_messages_per_session.max_size = SESSIONS

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        waiting = [event for queue in self.event_queue_per_concurrency_id.values() for event in queue.queue]
        of_page = sum(event.session_hash == body.session_hash for event in waiting)
        of_address = sum(_address(event.request) == _address(request) for event in waiting)
        if of_page >= WAITING or of_address >= WAITING_ADDRESS:
            return False, "Too many actions are waiting already; try again in a moment.", "queue_full"
        if body.session_hash in self.pending_messages_per_session:  # Gradio lets go of the oldest page first
            self.pending_messages_per_session.move_to_end(body.session_hash)
        return await super().push(body, request, username)

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        running = Counter(
            visitor for job in self.active_jobs for event in job or () for visitor in _visitors(event)
        )
        free = [
            event
            for queue in self.event_queue_per_concurrency_id.values()
            if queue.concurrency_limit is None or queue.current_concurrency < queue.concurrency_limit
            for event in queue.queue
            if not running[event.session_hash] and not self._reserved(running, event, queue)
        ]
        if not free:
            return None

        def order(event: Event) -> tuple[float, ...]:
            page, place = _visitors(event)
            return running[place], round(self.seconds(place)), self.seconds(page), event.enqueue_time

        event = min(free, key=order)
        self.event_queue_per_concurrency_id[event.concurrency_id].queue.remove(event)
        return [event], False, event.concurrency_id

    def _reserved(self, running: Counter[str], event: Event, queue: EventQueue) -> bool:
        """True where this must wait for other active visitors: work cannot be interrupted once begun, so the
        last free place is kept for them, and whoever has used their share waits.
        """
        (_, here), now = _visitors(event), time.monotonic()
        others = [
            *running,
            *(each for each, spent in self.used.items() if spent and spent[-1][0] > now - ABOUT),
        ]
        if not any(each.startswith("address ") and each != here for each in others):
            return False
        last_place = running[here] and running[here] + 1 >= (queue.concurrency_limit or 2)
        return bool(last_place) or self.seconds(here) > FILL

    async def process_events(self, events: list[Event], batch: bool, begin_time: float, fn: Any) -> None:
        start = time.monotonic()
        try:
            await super().process_events(events, batch, begin_time, fn)
        finally:
            end = time.monotonic()
            for visitor in _visitors(events[0]):
                self.used[visitor].append((end, end - start))
            for visitor in list(self.used):
                self.seconds(visitor)  # forgets who has been idle

    def seconds(self, visitor: str) -> float:
        """Seconds of work for a visitor in the last minute."""
        spent = self.used.get(visitor)
        if spent is None:
            return 0.0
        while spent and spent[0][0] < time.monotonic() - MEMORY:
            spent.popleft()
        if not spent:
            self.used.pop(visitor, None)
        return sum(seconds for _, seconds in spent)

    def send_message(self, event: Event, event_message: Any) -> None:
        unread = self.pending_messages_per_session.get(event.session_hash)
        if unread is None or unread.qsize() > UNREAD:  # nobody reads; messages hold whole pages
            self.pending_messages_per_session.pop(event.session_hash, None)
            event.alive = False
            return
        super().send_message(event, event_message)


def _address(request: Any) -> str:
    if request is None:
        return ""
    return address(request.client.host if request.client else "", request.headers.get)


def _visitors(event: Event) -> tuple[str, str]:
    """A page and the address that it was opened from."""
    return event.session_hash, f"address {_address(event.request)}"


class Guard:
    """ASGI middleware: limits on what is sent here, and what the browser may do with what is sent back.

    Of a link's query and the page's address, meta: the elements of the page's head that tell of it; picture:
    its preview as PNG, which is answered at /preview.png.
    """

    def __init__(
        self, app: Any, meta: Callable[[str, str], str], picture: Callable[[str, str], bytes]
    ) -> None:
        self.app, self._meta, self._picture = app, meta, picture
        self._uploads: deque[tuple[float, str, int]] = deque()
        self._requests: Counter[str] = Counter()
        self._since = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")  # without one, an upload's size cannot be counted
        size = int(length) if re.fullmatch("[0-9]{1,15}", length) else 0
        here = address((scope.get("client") or ("",))[0], headers.get)
        refused = (403, "This is not served here.") if _SHUT.search(scope["path"]) else None
        if scope["method"] == "POST":
            if scope["path"].rstrip("/").endswith("/upload"):
                refused = self._refused_upload(here, size) if size else (411, "How much is not said.")
            elif self._too_many(here):
                refused = 429, "Too many actions at once; try again in a moment."
            elif size > MAX_BODY or (not length and headers.get("transfer-encoding")):
                refused = 413, "What was sent is too large."
        link = scope.get("query_string", b"").decode("latin-1"), _home(scope, headers)
        picture = scope["method"] == "GET" and scope["path"].endswith("/preview.png")
        if picture and self._too_many(here):
            refused = 429, "Too many images at once; try again in a moment."
        if refused is not None:
            status, words = refused
            await JSONResponse({"detail": words}, status)(scope, receive, send)
        elif picture:
            png = await asyncio.to_thread(self._picture, *link)
            own = {"cache-control": "max-age=600", "x-content-type-options": "nosniff"}
            await Response(png, media_type="image/png", headers=own)(scope, receive, send)
        else:
            await self.app(scope, receive, _Protected(send, scope["path"], partial(self._meta, *link)))

    def _too_many(self, here: str) -> bool:
        if time.monotonic() - self._since > RATE_SECONDS:
            self._requests.clear()
            self._since = time.monotonic()
        self._requests[here] += 1
        return self._requests[here] > RATE

    def _refused_upload(self, here: str, size: int) -> tuple[int, str] | None:
        now = time.monotonic()
        while self._uploads and self._uploads[0][0] < now - UPLOAD_SECONDS:
            self._uploads.popleft()
        own = [each for _, place, each in self._uploads if place == here]
        everyone = sum(each for *_, each in self._uploads)
        if len(own) >= UPLOADS or sum(own) + size > UPLOAD_BYTES or everyone + size > ALL_UPLOAD_BYTES:
            return 429, "Too much has been uploaded; try again in ten minutes."
        self._uploads.append((now, here, size))
        return None


class _Protected:
    """Sends an answer with the headers that keep strangers' scripts out of it."""

    def __init__(self, send: Send, path: str, about: Callable[[], str]) -> None:
        self._send, self._path, self._about = send, path, about
        self._page: MutableMapping[str, Any] | None = None
        self._body = bytearray()

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update({"x-content-type-options": "nosniff", "referrer-policy": "same-origin"})
            if "/file" in self._path:  # an upload, which may be a page or a drawing with a script inside
                headers.append("content-security-policy", "default-src 'none'; sandbox")
            if headers.get("content-type", "").startswith("text/html"):
                self._page = message  # held back until its scripts are known
                return
        elif self._page is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            start, body, self._page = self._page, bytes(self._body), None
            headers = MutableHeaders(scope=start)
            if _HEAD in body:
                told = await asyncio.to_thread(self._about)
                body = _PREVIEW.sub(b"", body).replace(_HEAD, _HEAD + told.encode(), 1)
                headers["content-length"] = str(len(body))
            headers.append("content-security-policy", content_security_policy(body))
            await self._send(start)
            await self._send({"type": "http.response.body", "body": body})
            return
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


def _home(scope: Scope, headers: Headers) -> str:
    """The page's address as the one who asks sees it."""
    host = re.sub(r"[^\w.:\[\]-]", "", headers.get("host", "localhost"))
    proto = headers.get("x-forwarded-proto", "") if os.environ.get("SPACE_ID") else str(scope.get("scheme"))
    return f"{'https' if 'https' in proto else 'http'}://{host}/"
