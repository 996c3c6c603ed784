"""Models at OpenAI, or at any server with its chat completions API (vLLM, Ollama, llama.cpp)."""

from __future__ import annotations

from typing import Any

from ccs.errors import InputError
from ccs.judges.provider import GeneratedProvider, Reply, Request, Usage


class OpenAIProvider(GeneratedProvider):
    """Chat completions with a strict JSON schema."""

    kind = "openai"
    package = "openai"
    client = "AsyncOpenAI"
    keys = ("OPENAI_API_KEY",)
    limit_name = "max_completion_tokens"

    async def call(self, request: Request) -> Any:
        body: dict[str, Any] = {
            "model": self.spec.model,
            "messages": [
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.user},
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(request.schema), "strict": True},
            },
            self.limit_name: self.settings.max_tokens,
        }
        if self.spec.effort is not None:
            body["reasoning_effort"] = self.spec.effort
        if self.spec.temperature is not None:
            body["temperature"] = self.spec.temperature
        return await self._client.chat.completions.create(**body)

    def read(self, response: Any) -> Reply:
        completion = response.to_dict(warnings=False)
        counts = completion.get("usage") or {}
        usage = Usage.stated(counts.get("prompt_tokens"), counts.get("completion_tokens"))
        choice = completion["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        refusal = message.get("refusal") or ("content filter" if finish == "content_filter" else "")
        return Reply(message.get("content"), usage, refusal, finish == "length")


class CompatibleProvider(OpenAIProvider):
    """The user's own server, identified by its base URL."""

    kind = "compatible"
    keys = ("COMPATIBLE_API_KEY",)
    limit_name = "max_tokens"  # the name that local servers support

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"base_url": self.spec.base_url}

    def key(self) -> str:
        try:
            return super().key()
        except InputError:
            return "none"  # local servers need none, but the SDK needs a string
