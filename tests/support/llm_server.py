"""Local HTTP servers that speak OpenAI's protocol, asked by the real SDK.

A server answers every question with `answer(user, schema)`; the acts queued in `acts` come first, one per
request.
"""

import gzip
import json
import threading
import time
from collections import deque, namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from werkzeug import Response

from tests.support.local_server import LocalServer, as_json, hung_up


@dataclass(frozen=True)
class Act:
    """What a server does with one request; `before` is called when it has arrived.

    kind: "reply" (`text`, or the server's answer), "refuse", "truncate" (half of the answer, marked as such),
    "status", "hang" (no reply), "cut" (the connection ends after half a reply), "drip" (a reply without end),
    "garbage" (`text`, of the type `message`), "unfold" (four megabytes, compressed).
    """

    kind: str
    text: str | None = None
    status: int = 500
    message: str = "the server is at fault"
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] | None = None


Seen = namedtuple("Seen", "path headers body at system user schema")
"""One request as it arrived."""


def verdicts(by_name):
    return json.dumps({name: {"reason": f"It is {v}.", "verdict": v} for name, v in by_name.items()})


def yes(user, schema):
    """Answer that every text fits.

    Args:
        user: The user's message.
        schema: Schema of the reply.

    Returns:
        The reply.
    """
    return verdicts(dict.fromkeys(schema["required"], True))


class OpenAIServer(LocalServer):
    kind = "openai"
    model = "gpt-4o"
    path = "/v1/chat/completions"
    usage: ClassVar = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}

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
        return f"{self.url}/v1"

    @property
    def spec(self):
        return f"{self.name}@{self.base_url}"

    @property
    def name(self):
        return f"{self.kind}:{self.model}"

    def end_hanging(self):
        self._released.set()

    def dispatch(self, request):
        assert request.path == self.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        system, user, schema = self.read(request.json)
        received = Seen(request.path, headers, request.json, time.monotonic(), system, user, schema)
        with self._lock:
            self.asked.append(received)
            act = self.acts.popleft() if self.acts else Act("reply")
        if act.before is not None:
            act.before()
        if act.kind == "hang":
            self._released.wait(30)
            return hung_up(request)
        return self._answer(act, user, schema)

    def _answer(self, act, user, schema):
        if act.kind == "status":
            return as_json(self.error(act.status, act.message), act.status, act.headers)
        if act.kind == "drip":
            return Response(self._dripping(), headers={"Content-Length": "1000000"})
        if act.kind == "garbage":
            return Response(act.text, content_type=act.message)
        if act.kind == "unfold":
            return Response(gzip.compress(bytes(2**22)), headers={"Content-Encoding": "gzip"})
        whole = as_json(self.reply(act, user, schema))
        if act.kind == "cut":
            half = whole.data[: whole.content_length // 2]
            return Response(iter([half]), headers=whole.headers)
        return whole

    def _dripping(self):
        while not self._released.wait(0.02):
            yield b" "

    def read(self, body):
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        form = body["response_format"]
        assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
        return system["content"], user["content"], form["json_schema"]["schema"]

    def reply(self, act, user, schema):
        text = self.answer(user, schema) if act.text is None else act.text
        message = {"role": "assistant", "content": text, "refusal": None}
        if act.kind == "truncate":
            message["content"] = text[: len(text) // 2]
        elif act.kind == "refuse":
            message |= {"content": None, "refusal": "I can't help with that."}
        end = "length" if act.kind == "truncate" else "stop"
        choice = {"index": 0, "message": message, "finish_reason": end}
        kind = {"id": "c", "object": "chat.completion", "created": 1, "model": self.model}
        return {**kind, "choices": [choice], "usage": self.usage}

    def error(self, status, message):
        return {"error": {"message": message, "type": "t", "code": None}}


class CompatibleServer(OpenAIServer):
    kind = "compatible"
    model = "org/local-model:8b"


class AnthropicServer(OpenAIServer):
    kind = "anthropic"
    model = "claude-sonnet-5-5"

    def read(self, body):
        assert not {"temperature", "reasoning_effort"} & {*body}
        return super().read(body)


class GoogleServer(OpenAIServer):
    """Google's server of chat completions, which counts hidden reasoning only in the total."""

    kind = "google"
    model = "gemini-3.8-flash"

    usage: ClassVar = {"prompt_tokens": 100, "completion_tokens": 15, "total_tokens": 120}

    def error(self, status, message):
        return [{"error": {"code": status, "message": message, "status": "S"}}]


SERVERS = {server.kind: server for server in (OpenAIServer, AnthropicServer, GoogleServer, CompatibleServer)}
