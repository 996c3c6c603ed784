"""A local HTTP server that is asked as a language model; what it speaks is `llm_providers`'.

A server answers every question with `answer(user, schema)`; the acts queued in `acts` come first, one per
request.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from werkzeug import Response

from tests.support.local_server import LocalServer, hung_up


@dataclass(frozen=True)
class Act:
    """What a server does with one request.

    kind: "reply" (`text`, or the server's answer), "status" (with `status`, `headers`, `message`),
    "hang" (no reply), "drop" (the connection ends without one), "cut" (half a reply, then the connection
    ends), "drip" (a reply that never ends), "garbage" (status 200, no JSON, of the content type `message`),
    "empty" (status 200, an empty JSON object), "unfold" (64 megabytes, compressed), "refuse", "truncate"
    (half of the answer, marked as such by the protocol). `before` is called when the request has arrived.
    """

    kind: str
    text: str | None = None
    status: int = 500
    message: str = "the server is at fault"
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] | None = None


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Any
    at: float
    system: str
    user: str
    schema: Mapping[str, Any]


def yes(user, schema):
    """Answer every text with yes."""
    return verdicts(dict.fromkeys(schema["required"], True))


def verdicts(by_name):
    return json.dumps({name: {"reason": f"It is {v}.", "verdict": v} for name, v in by_name.items()})


class LLMServer(LocalServer):
    """A server of one protocol, listening while the context is open. `path`: how a question's ends.

    A protocol fills in `read` (a request's system, user and schema), `success`, `refusal` and `error`.
    """

    kind: ClassVar[str]
    model: ClassVar[str]
    path: ClassVar[str]

    def __init__(self, answer=yes):
        super().__init__()
        self.answer = answer
        self.acts = deque()
        self.asked = []
        self._lock = threading.Lock()
        self._released = threading.Event()

    def __exit__(self, *error):
        self.end_hanging()
        super().__exit__(*error)

    @property
    def base_url(self):
        return self.url

    @property
    def spec(self):
        """The judge of this server, as the command line names it."""
        return f"{self.name}@{self.base_url}"

    @property
    def name(self):
        return f"{self.kind}:{self.model}"

    def end_hanging(self):
        """Let go of requests that hang."""
        self._released.set()

    def dispatch(self, request):
        end = self.path.rpartition(self.model)[2]  # any model may be asked for, as Google's address says
        assert request.path.endswith(end), request.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        system, user, schema = self.read(request.json)
        with self._lock:
            self.asked.append(
                Seen(request.path, headers, request.json, time.monotonic(), system, user, schema)
            )
            act = self.acts.popleft() if self.acts else Act("reply")
        if act.before is not None:
            act.before()
        if act.kind in ("hang", "drop"):
            self._released.wait(30 if act.kind == "hang" else 0)
            return hung_up(request)
        return self._answer(act, user, schema)

    def _answer(self, act, user, schema):
        if act.kind == "status":
            return _json(self.error(act.status, act.message), act.status, act.headers)
        if act.kind == "drip":
            return Response(self._dripping(), headers={"Content-Length": "1000000"})
        if act.kind == "garbage":
            return Response("<html>not what was asked for", content_type=act.message)
        if act.kind == "unfold":
            return Response(_packed(), headers={"Content-Encoding": "gzip"})
        if act.kind == "empty":
            return _json({})
        whole = _json(self.reply(act, user, schema))
        if act.kind == "cut":
            half = whole.data[: whole.content_length // 2]
            return Response(iter([half]), headers=whole.headers)
        return whole

    def _dripping(self):
        while not self._released.wait(0.02):
            yield b" "

    def reply(self, act, user, schema):
        if act.kind == "refuse":
            return self.refusal()
        text = self.answer(user, schema) if act.text is None else act.text
        if act.kind == "truncate":
            return self.success(text[: len(text) // 2], truncated=True)
        return self.success(text)


@cache
def _packed():
    return gzip.compress(bytes(2**26))


def _json(value, status=200, headers=None):
    return Response(json.dumps(value), status, headers, content_type="application/json")
