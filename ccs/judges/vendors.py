"""OpenAI, Anthropic, Google, and any server with chat completions (Hugging Face, vLLM, Ollama, llama.cpp)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ccs.errors import InputError
from ccs.judges.provider import (
    Provider,
    Reply,
    Request,
    UnansweredError,
    Usage,
    bounded_client,
    connection_lost,
)


class OpenAIProvider(Provider):
    """Chat completions with a strict JSON schema."""

    kind = "openai"
    package = "openai"
    client = "AsyncOpenAI"
    keys = ("OPENAI_API_KEY",)
    limit_name = "max_completion_tokens"

    async def call(self, request: Request, max_tokens: int) -> Any:
        """See `Provider.call`."""
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
            self.limit_name: max_tokens,
        }
        if self.spec.effort is not None:
            body["reasoning_effort"] = self.spec.effort
        if self.spec.temperature is not None:
            body["temperature"] = self.spec.temperature
        return await self._client.chat.completions.create(**body)

    def usage(self, body: dict[str, Any]) -> Usage | None:
        """See `Provider.usage`."""
        return Usage.from_counts(body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"])

    def read(self, body: dict[str, Any]) -> Reply:
        """See `Provider.read`."""
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        refusal = message.get("refusal") or ("content filter" if finish == "content_filter" else "")
        return Reply(message.get("content"), refusal, finish == "length")


class CompatibleProvider(OpenAIProvider):
    """Any server with chat completions, identified by its base URL."""

    kind = "compatible"
    keys = ("COMPATIBLE_API_KEY",)
    limit_name = "max_tokens"  # the name that local servers support

    def identity(self) -> dict[str, Any]:
        """See `Provider.identity`."""
        return super().identity() | {"base_url": self.spec.base_url}

    def key(self) -> str:
        """See `Provider.key`."""
        try:
            return super().key()
        except InputError:
            return "none"  # local servers need none, but the SDK needs a string


class AnthropicProvider(Provider):
    """Messages with output constrained to a JSON schema."""

    kind = "anthropic"
    package = "anthropic"
    client = "AsyncAnthropic"
    keys = ("ANTHROPIC_API_KEY",)

    async def call(self, request: Request, max_tokens: int) -> Any:
        """See `Provider.call`."""
        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
        if self.spec.effort is not None:
            output["effort"] = self.spec.effort
        return await self._client.messages.create(
            model=self.spec.model,
            max_tokens=max_tokens,
            system=request.system,
            messages=[{"role": "user", "content": request.user}],
            output_config=output,
        )

    def usage(self, body: dict[str, Any]) -> Usage | None:
        """See `Provider.usage`."""
        counts = body["usage"]
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        sent = counts["input_tokens"] + sum(counts.get(name) or 0 for name in cached)
        return Usage.from_counts(sent, counts["output_tokens"])

    def read(self, body: dict[str, Any]) -> Reply:
        """See `Provider.read`."""
        texts = [str(block.get("text")) for block in body["content"] if block.get("type") == "text"]
        stop = body.get("stop_reason")
        refusal = "the model declined" if stop == "refusal" else ""
        truncated = stop in ("max_tokens", "model_context_window_exceeded")
        return Reply("".join(texts) if texts else None, refusal, truncated)


class GoogleProvider(Provider):
    """Generated content whose JSON schema the server enforces."""

    kind = "google"
    package = "google.genai"
    keys = ("GOOGLE_API_KEY", "GEMINI_API_KEY")

    def connect(self, key: str) -> Any:
        """See `Provider.connect`."""
        # Our own HTTP client keeps the SDK from switching to aiohttp, if installed, with its own retries.
        # `enterprise=False` keeps an environment variable from moving the calls to another service.
        self._http = bounded_client(self.settings.timeout)
        types = self._sdk.types
        options = types.HttpOptions(
            base_url=self.spec.base_url,
            timeout=int(self.settings.timeout * 1000),
            retry_options=types.HttpRetryOptions(attempts=1),
            httpx_async_client=self._http,
        )
        return self._sdk.Client(api_key=key, enterprise=False, http_options=options)

    async def aclose(self) -> None:
        """Close the clients."""
        await self._client.aio.aclose()
        self._client.close()
        await self._http.aclose()

    async def call(self, request: Request, max_tokens: int) -> Any:
        """See `Provider.call`."""
        types, effort = self._sdk.types, self.spec.effort
        thinking = effort and types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort))
        config = types.GenerateContentConfig(
            system_instruction=request.system,
            response_mime_type="application/json",
            response_json_schema=_with_ordering(request.schema),
            max_output_tokens=max_tokens,
            temperature=self.spec.temperature,
            thinking_config=thinking,
            should_return_http_response=True,  # the SDK's own parser refuses odd token counts
        )
        return await self._client.aio.models.generate_content(
            model=self.spec.model, contents=request.user, config=config
        )

    def body(self, response: Any) -> dict[str, Any]:
        """See `Provider.body`."""
        body: dict[str, Any] = json.loads(response.sdk_http_response.body)
        return body

    def translate(self, error: Exception) -> Exception:
        """See `Provider.translate`."""
        import httpx2

        if isinstance(error, self._sdk.errors.APIError):
            message = f"{error.status or ''} {error.message or ''}".strip()
            status = 401 if "API_KEY_INVALID" in str(error.details) else error.code
            # Google states how long to wait in the error's body.
            delay = re.search(r"'retryDelay': '([\d.]+)s'", str(error.details))
            headers = {"retry-after": delay[1]} if delay else getattr(error.response, "headers", None) or {}
            return self.failure(status, message, headers)
        if isinstance(error, httpx2.TimeoutException):
            return UnansweredError("timeout: no answer in time", again=True)
        if isinstance(error, httpx2.HTTPError):
            return connection_lost(error)
        if isinstance(error, ValueError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    def usage(self, body: dict[str, Any]) -> Usage | None:
        """See `Provider.usage`."""
        counts = body["usageMetadata"]
        output = counts["candidatesTokenCount"] + (counts.get("thoughtsTokenCount") or 0)
        return Usage.from_counts(counts["promptTokenCount"], output)

    def read(self, body: dict[str, Any]) -> Reply:
        """See `Provider.read`."""
        if blocked := (body.get("promptFeedback") or {}).get("blockReason"):
            return Reply(None, f"prompt blocked ({blocked})")
        candidate = body["candidates"][0]
        finish = candidate.get("finishReason") or "STOP"
        refusal = "" if finish in ("STOP", "MAX_TOKENS") else f"stopped with {finish}"
        parts = (candidate.get("content") or {}).get("parts") or ()
        text = "".join(part["text"] for part in parts if part.get("text") and not part.get("thought"))
        return Reply(text or None, refusal, finish == "MAX_TOKENS")


def _with_ordering(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that states the order of properties, since Gemini may sort them by name."""
    if "properties" not in schema:
        return dict(schema)
    properties = {name: _with_ordering(inner) for name, inner in schema["properties"].items()}
    return {**schema, "properties": properties, "propertyOrdering": list(properties)}
