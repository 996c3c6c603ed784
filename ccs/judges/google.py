"""Gemini models at Google, through generate_content with a JSON schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccs.judges.provider import (
    BatchRequest,
    BatchResults,
    Provider,
    Reply,
    Request,
    TransientError,
    UnscoredError,
    Usage,
)

if TYPE_CHECKING:
    from google.genai import types

_ENDED = ("SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")


class GoogleProvider(Provider):
    kind = "google"
    package = "google.genai"
    keys = ("GOOGLE_API_KEY", "GEMINI_API_KEY")

    async def open(self) -> None:
        import httpx2  # what google-genai itself sends with
        from google import genai
        from google.genai import types

        # A client of ours keeps the SDK from switching to aiohttp where that happens to be installed, which
        # has retries of its own. `enterprise=False` keeps a variable of the environment from moving the calls
        # to another service.
        self._http = httpx2.AsyncClient(timeout=self.settings.timeout)
        self._client = genai.Client(
            api_key=self.key(),
            enterprise=False,
            http_options=types.HttpOptions(
                base_url=self.spec.base_url,
                timeout=int(self.settings.timeout * 1000),
                retry_options=types.HttpRetryOptions(attempts=1),
                httpx_async_client=self._http,
            ),
        )

    async def close(self) -> None:
        await self._client.aio.aclose()
        self._client.close()
        await self._http.aclose()

    def _config(self, request: Request) -> types.GenerateContentConfig:
        from google.genai import types

        effort = self.spec.effort
        return types.GenerateContentConfig(
            system_instruction=request.system,
            response_mime_type="application/json",
            response_json_schema=dict(request.schema),
            max_output_tokens=self.settings.max_tokens,
            temperature=self.spec.temperature,
            thinking_config=None
            if effort is None
            else types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort)),
        )

    async def send(self, request: Request) -> Reply:
        try:
            response = await self._client.aio.models.generate_content(
                model=self.spec.model, contents=request.user, config=self._config(request)
            )
        except Exception as error:
            raise self._translate(error) from None
        return _read(response)

    def _translate(self, error: Exception) -> Exception:
        import httpx2
        from google.genai import errors

        if isinstance(error, errors.APIError):
            after = _retry_delay(error.details)
            message = f"{error.status or ''} {error.message or ''}".strip()
            if error.code == 400 and "API_KEY_INVALID" in str(error.details):
                return self.failure(401, message, {})
            headers = getattr(error.response, "headers", None) or {}
            return self.failure(error.code, message, headers, after=after)
        if isinstance(error, httpx2.TimeoutException):
            return TransientError("timeout: no answer in time", sent=True)
        if isinstance(error, httpx2.HTTPError):
            return TransientError(f"connection: {error or type(error).__name__}", sent=True)
        if isinstance(error, ValueError):
            return TransientError(f"broken reply: {error}", sent=True)
        return error

    async def submit(self, tag: str, requests: Sequence[BatchRequest]) -> str:
        from google.genai import types

        items = [
            types.InlinedRequest(
                contents=[types.Content(role="user", parts=[types.Part(text=each.request.user)])],
                config=self._config(each.request),
                metadata={"key": each.id},
            )
            for each in requests
        ]
        try:
            job = await self._client.aio.batches.create(
                model=self.spec.model, src=items, config=types.CreateBatchJobConfig(display_name=tag)
            )
        except Exception as error:
            raise self._translate(error) from None
        if not job.name:
            raise TransientError("broken reply: a batch without a name", sent=True)
        return job.name

    async def find(self, tag: str, count: int, since: float, known: Sequence[str]) -> str | None:
        from google.genai import types

        try:
            async for job in await self._client.aio.batches.list(
                config=types.ListBatchJobsConfig(page_size=100)
            ):
                if job.display_name == tag and job.name:
                    return job.name
                if job.create_time is not None and job.create_time.timestamp() < since - 3600:
                    return None
        except Exception as error:
            raise self._translate(error) from None
        return None

    async def collect(self, batch: str) -> BatchResults | None:
        try:
            job = await self._client.aio.batches.get(name=batch)
        except Exception as error:
            raise self._translate(error) from None
        if job.state is None or job.state.name.removeprefix("JOB_STATE_") not in _ENDED:
            return None
        results: dict[str, Reply | UnscoredError] = {}
        for answer in (job.dest and job.dest.inlined_responses) or ():
            if key := (answer.metadata or {}).get("key"):
                results[key] = _read_inlined(answer)
        return results


def _read_inlined(answer: types.InlinedResponse) -> Reply | UnscoredError:
    if answer.response is None:
        detail = answer.error.message if answer.error is not None else "no response"
        return UnscoredError(f"rejected in the batch: {detail}")
    try:
        return _read(answer.response)
    except TransientError as error:
        return UnscoredError(error.cause)
    except UnscoredError as error:
        return error


def _read(response: types.GenerateContentResponse) -> Reply:
    counts = response.usage_metadata
    usage = Usage()
    if counts is not None:
        output = (counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0)
        usage = Usage(counts.prompt_token_count or 0, output)
    feedback = response.prompt_feedback
    if feedback is not None and feedback.block_reason is not None:
        raise UnscoredError(f"refusal: prompt blocked ({feedback.block_reason.name})", usage)
    if not response.candidates:
        raise TransientError("broken reply: no candidates", sent=True)
    candidate = response.candidates[0]
    finish = "STOP" if candidate.finish_reason is None else candidate.finish_reason.name
    if finish == "MAX_TOKENS":
        raise UnscoredError(f"truncated: after {usage.output_tokens} tokens", usage)
    if finish != "STOP":
        raise UnscoredError(f"refusal: stopped with {finish}", usage)
    parts = (candidate.content.parts if candidate.content is not None else None) or ()
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if not text:
        raise UnscoredError("off-schema: no text in the reply", usage)
    return Reply(text, usage)


def _retry_delay(details: Any) -> float | None:
    """Return the wait that Google puts into the body of an error instead of a header ("retryDelay": "3s")."""
    try:
        for detail in details["error"]["details"]:
            if str(delay := detail.get("retryDelay", "")).endswith("s"):
                return float(delay[:-1])
    except (LookupError, TypeError, AttributeError, ValueError):
        pass
    return None
