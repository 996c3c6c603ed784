"""A local HTTP server that is asked as a language model; what it speaks is `llm_providers`'.

A server answers every question with `answer(user, schema)`; the acts queued in `acts` come first, one per
request.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit


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


class LLMServer:
    """A server of one protocol, listening while the context is open. `path`: how a question's ends.

    A protocol fills in `read` (a request's system, user and schema), `success`, `refusal` and `error`.
    """

    kind: ClassVar[str]
    model: ClassVar[str]
    path: ClassVar[str]

    def __init__(self, answer=yes):
        self.answer = answer
        self.acts = deque()
        self.asked = []
        self.faults = []
        self._lock = threading.Lock()
        self._released = threading.Event()

    def __enter__(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer waits 40 ms between its headers and its body

            def do_POST(self):
                server._handle(self)

            def log_message(self, format, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                error = sys.exc_info()[1]
                if not isinstance(error, ConnectionError):
                    server.faults.append(error)

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        assert not self.faults, self.faults

    @property
    def root(self):
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def base_url(self):
        return self.root

    @property
    def spec(self):
        """The judge of this server, as the command line names it."""
        return f"{self.kind}:{self.model}@{self.base_url}"

    @property
    def name(self):
        return f"{self.kind}:{self.model}"

    def end_hanging(self):
        """Let go of requests that hang."""
        self._released.set()

    # One request

    def _handle(self, http):
        body = json.loads(http.rfile.read(int(http.headers["Content-Length"])))
        path = urlsplit(http.path).path
        end = self.path.rpartition(self.model)[2]  # any model may be asked for, as Google's address says
        assert path.endswith(end), path
        headers = {name.lower(): value for name, value in http.headers.items()}
        system, user, schema = self.read(body)
        with self._lock:
            self.asked.append(Seen(path, headers, body, time.monotonic(), system, user, schema))
            act = self.acts.popleft() if self.acts else Act("reply")
        if act.before is not None:
            act.before()
        self._act(http, act, user, schema)

    def _act(self, http, act, user, schema):
        if act.kind == "status":
            self._send(http, act.status, json.dumps(self.error(act.status, act.message)), act.headers)
        elif act.kind in ("hang", "drop"):
            self._released.wait(30 if act.kind == "hang" else 0)
            http.close_connection = True
        elif act.kind == "drip":
            self._send(http, 200, "", {"Content-Length": "1000000"})
            with contextlib.suppress(OSError):
                while not self._released.wait(0.02):
                    http.wfile.write(b" ")
                    http.wfile.flush()
            http.close_connection = True
        elif act.kind == "garbage":
            self._send(http, 200, "<html>not what was asked for", {"Content-Type": act.message})
        elif act.kind == "unfold":
            self._send(http, 200, gzip.compress(bytes(2**26)), {"Content-Encoding": "gzip"})
        elif act.kind == "empty":
            self._send(http, 200, "{}")
        else:
            text = json.dumps(self.reply(act, user, schema))
            if act.kind == "cut":
                self._send(http, 200, text[: len(text) // 2], {"Content-Length": str(len(text))})
                http.connection.shutdown(socket.SHUT_RDWR)
                http.close_connection = True
            else:
                self._send(http, 200, text)

    def _send(self, http, status, text, headers=None):
        data = text if isinstance(text, bytes) else text.encode()
        every = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
        http.send_response(status)
        for name, value in every.items():
            http.send_header(name, value)
        http.end_headers()
        http.wfile.write(data)
        http.wfile.flush()

    def reply(self, act, user, schema):
        if act.kind == "refuse":
            return self.refusal()
        text = self.answer(user, schema) if act.text is None else act.text
        if act.kind == "truncate":
            return self.success(text[: len(text) // 2], truncated=True)
        return self.success(text)
