"""Local HTTP servers that speak the protocols of OpenAI, Anthropic and Google, asked by the real SDKs."""

from contextlib import ExitStack, contextmanager

from tests.support.llm_server import LLMServer


class OpenAIServer(LLMServer):
    kind = "openai"
    model = "gpt-4o"
    path = "/v1/chat/completions"

    @property
    def base_url(self):
        return f"{self.url}/v1"

    def read(self, body):
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        form = body["response_format"]
        assert form["type"] == "json_schema"
        assert form["json_schema"]["strict"] is True
        return system["content"], user["content"], form["json_schema"]["schema"]

    def success(self, text, truncated=False):
        return self._completion({"content": text}, "length" if truncated else "stop")

    def refusal(self):
        return self._completion({"content": None, "refusal": "I can't help with that."}, "stop")

    def _completion(self, message, finish):
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        kind = {"id": "c", "object": "chat.completion", "created": 1, "model": self.model}
        return {**kind, "choices": [choice], "usage": usage}

    def error(self, status, message):
        return {"error": {"message": message, "type": "t", "code": None}}


class CompatibleServer(OpenAIServer):
    kind = "compatible"
    model = "org/local-model:8b"


class AnthropicServer(LLMServer):
    kind = "anthropic"
    model = "claude-sonnet-5-5"
    path = "/v1/messages"

    def read(self, body):
        assert "temperature" not in body
        (user,) = body["messages"]
        form = body["output_config"]["format"]
        assert (user["role"], form["type"]) == ("user", "json_schema")
        return body["system"], user["content"], form["schema"]

    def success(self, text, truncated=False):
        return self._message([{"type": "text", "text": text}], "max_tokens" if truncated else "end_turn")

    def refusal(self):
        return self._message([], "refusal")

    def _message(self, content, stop):
        kind = {"id": "m", "type": "message", "role": "assistant", "model": self.model}
        usage = {"input_tokens": 100, "output_tokens": 20}
        return {**kind, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}

    def error(self, status, message):
        return {"type": "error", "error": {"type": "t", "message": message}}


class GoogleServer(LLMServer):
    kind = "google"
    model = "gemini-3.8-flash"
    path = f"/models/{model}:generateContent"

    def read(self, body):
        (content,) = body["contents"]
        form = body["generationConfig"]
        assert form["responseMimeType"] == "application/json"
        system = body["systemInstruction"]["parts"][0]["text"]
        return system, content["parts"][0]["text"], form["responseJsonSchema"]

    def success(self, text, truncated=False):
        content = {"role": "model", "parts": [{"text": text}]}
        return self._response({"content": content, "finishReason": "MAX_TOKENS" if truncated else "STOP"})

    def refusal(self):
        return self._response({"finishReason": "SAFETY"})

    def _response(self, candidate):
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 15, "thoughtsTokenCount": 5}
        return {"candidates": [dict(candidate)], "usageMetadata": usage, "modelVersion": self.model}

    def error(self, status, message):
        return {"error": {"code": status, "message": message, "status": "S"}}


SERVERS = {server.kind: server for server in (OpenAIServer, AnthropicServer, GoogleServer, CompatibleServer)}


@contextmanager
def serve_all(answer):
    """A server for each provider, and the environment in which their SDKs speak to these."""
    kinds = {"OPENAI": OpenAIServer, "ANTHROPIC": AnthropicServer, "GOOGLE_GEMINI": GoogleServer}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(kind(answer)) for name, kind in kinds.items()}
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
        places = {f"{name}_BASE_URL": server.base_url for name, server in servers.items()}
        yield dict.fromkeys(keys, "sk-test-0123456789abcdef") | places
