"""Models at OpenAI, through chat completions with a strict JSON schema."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

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

_TAG = "ccs_tag"


class OpenAIProvider(Provider):
    kind = "openai"
    package = "openai"
    keys = ("OPENAI_API_KEY",)
    limit_name = "max_completion_tokens"

    async def open(self) -> None:
        import openai

        self._client = openai.AsyncOpenAI(
            api_key=self.key(), base_url=self.spec.base_url, timeout=self.settings.timeout, max_retries=0
        )

    async def close(self) -> None:
        await self._client.close()

    def _body(self, request: Request) -> dict[str, Any]:
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
        return body

    async def send(self, request: Request) -> Reply:
        try:
            completion = await self._client.chat.completions.create(**self._body(request))
        except Exception as error:
            raise self._translate(error) from None
        return _read(completion.to_dict(warnings=False) if hasattr(completion, "to_dict") else {})

    def _translate(self, error: Exception) -> Exception:
        import openai

        if isinstance(error, openai.APITimeoutError):
            return TransientError("timeout: no answer in time", sent=True)
        if isinstance(error, openai.APIStatusError):
            if error.code == "insufficient_quota":
                return self.failure(403, error.message, error.response.headers)
            return self.failure(error.status_code, error.message, error.response.headers)
        if isinstance(error, openai.APIConnectionError):
            return TransientError(f"connection: {error.__cause__ or error}", sent=True)
        if isinstance(error, ValueError | openai.APIError):
            return TransientError(f"broken reply: {error}", sent=True)
        return error

    async def submit(self, tag: str, requests: Sequence[BatchRequest]) -> str:
        lines = (
            {"custom_id": each.id, "method": "POST", "url": "/v1/chat/completions"}
            | {"body": self._body(each.request)}
            for each in requests
        )
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            upload = (f"{tag}.jsonl", io.BytesIO(content))
            file = await self._client.files.create(file=upload, purpose="batch")
            batch = await self._client.batches.create(
                input_file_id=file.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={_TAG: tag},
            )
        except Exception as error:
            raise self._translate(error) from None
        return batch.id

    async def find(self, tag: str, count: int, since: float, known: Sequence[str]) -> str | None:
        try:
            async for batch in self._client.batches.list(limit=100):
                if (batch.metadata or {}).get(_TAG) == tag:
                    return batch.id
                if batch.created_at < since - 3600:  # newest first; an hour for clocks that differ
                    return None
        except Exception as error:
            raise self._translate(error) from None
        return None

    async def collect(self, batch: str) -> BatchResults | None:
        results: dict[str, Reply | UnscoredError] = {}
        try:
            state = await self._client.batches.retrieve(batch)
            if state.status not in ("completed", "failed", "expired", "cancelled"):
                return None
            for file in (state.output_file_id, state.error_file_id):
                if file is not None:
                    content = await self._client.files.content(file)
                    results |= dict(_read_line(line) for line in content.text.splitlines() if line.strip())
        except Exception as error:
            raise self._translate(error) from None
        return results


def _read_line(line: str) -> tuple[str, Reply | UnscoredError]:
    item = json.loads(line)
    response = item.get("response") or {}
    if response.get("status_code") == 200:
        try:
            return item["custom_id"], _read(response["body"])
        except TransientError as error:
            return item["custom_id"], UnscoredError(error.cause)
        except UnscoredError as error:
            return item["custom_id"], error
    detail = item.get("error") or (response.get("body") or {}).get("error") or {}
    return item["custom_id"], UnscoredError(f"rejected in the batch: {detail.get('message', detail)}")


def _read(completion: Mapping[str, Any]) -> Reply:
    """Read a chat completion as the JSON it came as, live or in a batch."""
    counts = completion.get("usage") or {}
    usage = Usage(counts.get("prompt_tokens") or 0, counts.get("completion_tokens") or 0)
    try:
        choice = completion["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        refusal, content = message.get("refusal"), message.get("content")
    except (LookupError, TypeError, AttributeError):
        raise TransientError("broken reply: not a chat completion", sent=True) from None
    if refusal:
        raise UnscoredError(f"refusal: {refusal}", usage)
    if finish == "content_filter":
        raise UnscoredError("refusal: content filter", usage)
    if finish == "length":
        raise UnscoredError(f"truncated: after {usage.output_tokens} tokens", usage)
    if not isinstance(content, str):
        raise UnscoredError("off-schema: no text in the reply", usage)
    return Reply(content, usage)
