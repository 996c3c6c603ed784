"""Local HTTP servers that speak OpenAI's protocol, asked by the real SDK.

A server answers every question with `answer(user, schema)`; the acts queued in `acts` come first, one per
request. An act is a function of the server, the user's message, and the schema of the reply.
"""

import gzip
import json
import threading
import time
from collections import deque, namedtuple
from functools import partial

from werkzeug import Response

from tests.support.local_server import LocalServer, as_json

Seen = namedtuple("Seen", "path headers body at system user schema")
"""One request as it arrived."""
MODELS = {
    "openai": "gpt-4o",
    "anthropic": "claude-sonnet-5-5",
    "google": "gemini-3.8-flash",
    "compatible": "org/local-model:8b",
}


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


class LLMServer(LocalServer):
    path = "/v1/chat/completions"

    def __init__(self, answer=yes, kind="openai"):
        super().__init__()
        self.answer, self.kind, self.name = answer, kind, f"{kind}:{MODELS[kind]}"
        self.acts, self.asked, self.released = deque(), [], threading.Event()
        # Google counts hidden reasoning only in the total.
        output = 15 if kind == "google" else 20
        self.usage = {"prompt_tokens": 100, "completion_tokens": output, "total_tokens": 120}

    @property
    def base_url(self):
        return f"{self.url}/v1"

    @property
    def spec(self):
        return f"{self.name}@{self.base_url}"

    def __exit__(self, *error):
        self.released.set()
        super().__exit__(*error)

    def dispatch(self, request):
        assert request.path == self.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        (system, user), form = request.json["messages"], request.json["response_format"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
        if self.kind == "anthropic":
            assert not {"temperature", "reasoning_effort"} & {*request.json}
        question = user["content"], form["json_schema"]["schema"]
        self.asked.append(
            Seen(request.path, headers, request.json, time.monotonic(), system["content"], *question)
        )
        act = self.acts.popleft() if self.acts else reply()
        return act(self, *question)


def reply(text=None, finish="stop", **message):
    """Reply with a text.

    Args:
        text: The text; the server's answer by default.
        finish: The reason for its end.
        **message: Other fields of the message.

    Returns:
        The act.
    """

    def act(server, user, schema):
        content = server.answer(user, schema) if text is None else text
        entry = {"role": "assistant", "content": content, "refusal": None, **message}
        choice = {"index": 0, "message": entry, "finish_reason": finish}
        header = {"id": "c", "object": "chat.completion", "created": 1, "model": server.name}
        return as_json({**header, "choices": [choice], "usage": server.usage})

    return act


def status(code=500, message="the server is at fault", headers=None):
    """Reply with an error.

    Args:
        code: HTTP status.
        message: Its message.
        headers: Further headers.

    Returns:
        The act.
    """

    def act(server, *_):
        error = {"error": {"message": message, "type": "t", "code": code}}
        return as_json([error] if server.kind == "google" else error, code, headers)

    return act


def respond(*arguments, **options):
    """Reply with a `Response` of these arguments."""
    return lambda *_: Response(*arguments, **options)


refuse = reply(content=None, refusal="I can't help with that.")
truncate = reply(content='{"text_1": {"rea', finish="length")
unfold = respond(gzip.compress(bytes(2**22)), headers={"Content-Encoding": "gzip"})


def cut(server, user, schema):
    """End the connection after half of the reply."""
    whole = reply()(server, user, schema)
    return Response(iter([whole.data[: whole.content_length // 2]]), headers=whole.headers)


def hang(server, *_):
    """Don't reply until the server ends."""
    server.released.wait(30)
    return Response()


def drip(server, *_):
    """Reply without end."""
    spaces = (b" " for _ in iter(lambda: server.released.wait(0.02), True))
    return Response(spaces, headers={"Content-Length": "1000000"})


SERVERS = {kind: partial(LLMServer, kind=kind) for kind in MODELS}
