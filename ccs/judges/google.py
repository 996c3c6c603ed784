"""Google's Gemini models, by generate_content with a JSON schema."""

from __future__ import annotations

import re
from typing import Any

from ccs.judges.provider import Provider, Reply, Request, UnansweredError, Usage


class GoogleProvider(Provider):
    """Generated content whose JSON schema the server enforces."""

    kind = "google"
    package = "google.genai"
    keys = ("GOOGLE_API_KEY", "GEMINI_API_KEY")

    def connect(self, key: str) -> Any:
        from ccs.judges.transport import BoundedClient  # once the SDK has brought its HTTP client

        # Our own HTTP client keeps the SDK from switching to aiohttp, where installed, with its own retries.
        # `enterprise=False` keeps an environment variable from moving the calls to another service.
        self._http = BoundedClient(timeout=self.settings.timeout)
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

    async def call(self, request: Request) -> Any:
        types, effort = self._sdk.types, self.spec.effort
        thinking = effort and types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort))
        config = types.GenerateContentConfig(
            system_instruction=request.system,
            response_mime_type="application/json",
            response_json_schema=dict(request.schema),
            max_output_tokens=self.settings.max_tokens,
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
            return UnansweredError(f"connection: {error or type(error).__name__}", again=True)
        if isinstance(error, ValueError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    def read(self, response: Any) -> Reply:
        usage = None
        if (counts := response.usage_metadata) and counts.candidates_token_count is not None:
            output = counts.candidates_token_count + (counts.thoughts_token_count or 0)
            usage = Usage.stated(counts.prompt_token_count, output)
        feedback = response.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            return Reply(None, usage, f"prompt blocked ({feedback.block_reason.name})", truncated=False)
        candidate = response.candidates[0]
        finish = "STOP" if candidate.finish_reason is None else candidate.finish_reason.name
        refusal = "" if finish in ("STOP", "MAX_TOKENS") else f"stopped with {finish}"
        parts = (candidate.content.parts if candidate.content is not None else None) or ()
        text = "".join(part.text for part in parts if part.text and not part.thought)
        return Reply(text or None, usage, refusal, finish == "MAX_TOKENS")
