"""Local HTTP servers that speak OpenAI's protocol.

A server sends the replies in `queued_replies`, one per request, and then those of `answer(user, schema)`. A
reply is a function of the server, the user's message, and the schema of the answer.
"""

import gzip
import json
import threading
import time
from collections import deque, namedtuple
from functools import partial

from werkzeug import Response

from tests.support.local_server import LocalServer, json_response

ReceivedRequest = namedtuple("ReceivedRequest", "path headers body time system user schema")
"""A request; `time` is when it arrived."""
MODELS = {
    "openai": "gpt-4o",
    "anthropic": "claude-sonnet-5-5",
    "google": "gemini-3.8-flash",
    "compatible": "org/local-model:8b",
}


def encode_verdicts(by_name):
    return json.dumps({name: {"reason": f"It is {v}.", "verdict": v} for name, v in by_name.items()})


def answer_yes(user, schema):
    """Answer that every text fits.

    Args:
        user: The user's message.
        schema: Schema of the reply.

    Returns:
        The reply.
    """
    return encode_verdicts(dict.fromkeys(schema["required"], True))


class LLMServer(LocalServer):
    path = "/v1/chat/completions"

    def __init__(self, answer=answer_yes, provider="openai"):
        super().__init__()
        self.answer, self.provider, self.name = answer, provider, f"{provider}:{MODELS[provider]}"
        self.queued_replies, self.requests, self.released = deque(), [], threading.Event()
        # Google counts hidden reasoning only in the total.
        output = 15 if provider == "google" else 20
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
        if self.provider == "anthropic":
            assert not {"temperature", "reasoning_effort"} & {*request.json}
        question = user["content"], form["json_schema"]["schema"]
        message = request.json, time.monotonic(), system["content"], *question
        self.requests.append(ReceivedRequest(request.path, headers, *message))
        make_reply = self.queued_replies.popleft() if self.queued_replies else reply()
        return make_reply(self, *question)


def reply(text=None, finish="stop", **message):
    """Reply with a text.

    Args:
        text: The text; the server's answer by default.
        finish: The reason for its end.
        **message: Other fields of the message.

    Returns:
        The reply, for `queued_replies`.
    """

    def make_reply(server, user, schema):
        content = server.answer(user, schema) if text is None else text
        entry = {"role": "assistant", "content": content, "refusal": None, **message}
        choice = {"index": 0, "message": entry, "finish_reason": finish}
        header = {"id": "c", "object": "chat.completion", "created": 1, "model": server.name}
        return json_response({**header, "choices": [choice], "usage": server.usage})

    return make_reply


def reply_error(code=500, message="the server is at fault", headers=None):
    """Reply with an error.

    Args:
        code: HTTP status.
        message: Its message.
        headers: Further headers.

    Returns:
        The reply, for `queued_replies`.
    """

    def make_reply(server, *_):
        error = {"error": {"message": message, "type": "t", "code": code}}
        return json_response([error] if server.provider == "google" else error, code, headers)

    return make_reply


def reply_raw(*arguments, **options):
    """Reply with a `Response` of these arguments."""
    return lambda *_: Response(*arguments, **options)


reply_refusal = reply(content=None, refusal="I can't help with that.")
reply_truncated = reply(content='{"text_1": {"rea', finish="length")
reply_bomb = reply_raw(gzip.compress(bytes(2**22)), headers={"Content-Encoding": "gzip"})


def reply_half(server, user, schema):
    """End the connection after half of the reply."""
    whole = reply()(server, user, schema)
    return Response(iter([whole.data[: whole.content_length // 2]]), headers=whole.headers)


def never_reply(server, *_):
    """Don't reply until the server ends."""
    server.released.wait(30)
    return Response()


def reply_endlessly(server, *_):
    """Reply without end."""
    spaces = (b" " for _ in iter(lambda: server.released.wait(0.02), True))
    return Response(spaces, headers={"Content-Length": "1000000"})


SERVERS = {provider: partial(LLMServer, provider=provider) for provider in MODELS}
