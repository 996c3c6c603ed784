"""OpenAI, Anthropic, Google, and any server with chat completions (vLLM, Ollama, llama.cpp)."""

from __future__ import annotations

import re
from typing import Any

from ccs.errors import InputError
from ccs.judges.provider import Provider, Request, UnansweredError, Usage, answered, bounded_client, lost


class OpenAIProvider(Provider):
    """Chat completions with a strict JSON schema."""

    kind = "openai"
    package = "openai"
    client = "AsyncOpenAI"
    keys = ("OPENAI_API_KEY",)
    limit_name = "max_completion_tokens"

    async def call(self, request: Request, max_tokens: int) -> Any:
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

    def read(self, response: Any) -> tuple[str, Usage | None]:
        completion = response.to_dict(warnings=False)
        counts = completion.get("usage") or {}
        usage = Usage.stated(counts.get("prompt_tokens"), counts.get("completion_tokens"))
        choice = completion["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        refusal = message.get("refusal") or ("content filter" if finish == "content_filter" else "")
        return answered(message.get("content"), usage, refusal, finish == "length")


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


class AnthropicProvider(Provider):
    """Messages with output constrained to a JSON schema."""

    kind = "anthropic"
    package = "anthropic"
    client = "AsyncAnthropic"
    keys = ("ANTHROPIC_API_KEY",)

    async def call(self, request: Request, max_tokens: int) -> Any:
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

    def read(self, response: Any) -> tuple[str, Usage | None]:
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
        return answered("".join(texts) if texts else None, usage, refusal, truncated)


class GoogleProvider(Provider):
    """Generated content whose JSON schema the server enforces."""

    kind = "google"
    package = "google.genai"
    keys = ("GOOGLE_API_KEY", "GEMINI_API_KEY")

    def connect(self, key: str) -> Any:
        # Our own HTTP client keeps the SDK from switching to aiohttp, where installed, with its own retries.
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
        await self._client.aio.aclose()
        self._client.close()
        await self._http.aclose()

    async def call(self, request: Request, max_tokens: int) -> Any:
        types, effort = self._sdk.types, self.spec.effort
        thinking = effort and types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort))
        config = types.GenerateContentConfig(
            system_instruction=request.system,
            response_mime_type="application/json",
            response_json_schema=dict(request.schema),
            max_output_tokens=max_tokens,
            temperature=self.spec.temperature,
            thinking_config=thinking,
        )
        return await self._client.aio.models.generate_content(
            model=self.spec.model, contents=request.user, config=config
        )

    def translate(self, error: Exception) -> Exception:
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
            return lost(error)
        if isinstance(error, ValueError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    def read(self, response: Any) -> tuple[str, Usage | None]:
        usage = None
        if (counts := response.usage_metadata) and counts.candidates_token_count is not None:
            output = counts.candidates_token_count + (counts.thoughts_token_count or 0)
            usage = Usage.stated(counts.prompt_token_count, output)
        feedback = response.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            return answered(None, usage, f"prompt blocked ({feedback.block_reason.name})", truncated=False)
        candidate = response.candidates[0]
        finish = "STOP" if candidate.finish_reason is None else candidate.finish_reason.name
        refusal = "" if finish in ("STOP", "MAX_TOKENS") else f"stopped with {finish}"
        parts = (candidate.content.parts if candidate.content is not None else None) or ()
        text = "".join(part.text for part in parts if part.text and not part.thought)
        return answered(text or None, usage, refusal, finish == "MAX_TOKENS")
