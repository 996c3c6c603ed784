"""Anthropic's models, by the messages API with a JSON schema."""

from __future__ import annotations

from typing import Any

from ccs.judges.provider import GeneratedProvider, Reply, Request, Usage


class AnthropicProvider(GeneratedProvider):
    """Messages with output constrained to a JSON schema."""

    kind = "anthropic"
    package = "anthropic"
    client = "AsyncAnthropic"
    keys = ("ANTHROPIC_API_KEY",)

    async def call(self, request: Request) -> Any:
        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
        if self.spec.effort is not None:
            output["effort"] = self.spec.effort
        return await self._client.messages.create(
            model=self.spec.model,
            max_tokens=self.settings.max_tokens,
            system=request.system,
            messages=[{"role": "user", "content": request.user}],
            output_config=output,
        )

    def read(self, response: Any) -> Reply:
        message = response.to_dict(warnings=False)
        counts = message.get("usage") or {}
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        sent = counts.get("input_tokens")
        if sent is not None:
            sent += sum(counts.get(name) or 0 for name in cached)
        usage = Usage.stated(sent, counts.get("output_tokens"))
        texts = [str(block.get("text")) for block in message["content"] if block.get("type") == "text"]
        stop = message.get("stop_reason")
        refusal = "the model declined" if stop == "refusal" else ""
        truncated = stop in ("max_tokens", "model_context_window_exceeded")
        return Reply("".join(texts) if texts else None, usage, refusal, truncated)
