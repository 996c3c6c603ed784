"""Models at Anthropic, through the messages API with a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccs.judges.provider import (
    BatchRequest,
    BatchResults,
    Provider,
    Reply,
    Request,
    TransientError,
    UndecidedError,
    UnscoredError,
    Usage,
)


class AnthropicProvider(Provider):
    kind = "anthropic"
    package = "anthropic"
    keys = ("ANTHROPIC_API_KEY",)

    async def open(self) -> None:
        import anthropic

        self._client = anthropic.AsyncAnthropic(
            api_key=self.key(), base_url=self.spec.base_url, timeout=self.settings.timeout, max_retries=0
        )

    async def close(self) -> None:
        await self._client.close()

    def _body(self, request: Request) -> dict[str, Any]:
        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
        if self.spec.effort is not None:
            output["effort"] = self.spec.effort
        return {
            "model": self.spec.model,
            "max_tokens": self.settings.max_tokens,
            "system": request.system,
            "messages": [{"role": "user", "content": request.user}],
            "output_config": output,
        }

    async def send(self, request: Request) -> Reply:
        try:
            message = await self._client.messages.create(**self._body(request))
        except Exception as error:
            raise self._translate(error) from None
        return _read(message.to_dict(warnings=False) if hasattr(message, "to_dict") else {})

    def _translate(self, error: Exception) -> Exception:
        import anthropic

        if isinstance(error, anthropic.APITimeoutError):
            return TransientError("timeout: no answer in time", sent=True)
        if isinstance(error, anthropic.APIStatusError):
            return self.failure(error.status_code, error.message, error.response.headers)
        if isinstance(error, anthropic.APIConnectionError):
            return TransientError(f"connection: {error.__cause__ or error}", sent=True)
        if isinstance(error, ValueError | anthropic.APIError):
            return TransientError(f"broken reply: {error}", sent=True)
        return error

    async def submit(self, tag: str, requests: Sequence[BatchRequest]) -> str:
        items: Any = [{"custom_id": each.id, "params": self._body(each.request)} for each in requests]
        try:
            return (await self._client.messages.batches.create(requests=items)).id
        except Exception as error:
            raise self._translate(error) from None

    async def find(self, tag: str, count: int, since: float, known: Sequence[str]) -> str | None:
        """A batch carries no name of its own here: its requests' ids do, and they show once it has ended."""
        undecided = False
        try:
            async for batch in self._client.messages.batches.list(limit=100):
                if batch.created_at.timestamp() < since - 3600:  # newest first
                    break
                counts = batch.request_counts.model_dump()
                if batch.id in known or sum(counts.values()) != count:
                    continue
                if batch.processing_status != "ended":
                    undecided = True
                    continue
                async for item in await self._client.messages.batches.results(batch.id):
                    if item.custom_id.startswith(tag):
                        return batch.id
                    break
        except Exception as error:
            raise self._translate(error) from None
        if undecided:
            raise UndecidedError
        return None

    async def collect(self, batch: str) -> BatchResults | None:
        results: dict[str, Reply | UnscoredError] = {}
        try:
            if (await self._client.messages.batches.retrieve(batch)).processing_status != "ended":
                return None
            async for item in await self._client.messages.batches.results(batch):
                results[item.custom_id] = _read_result(item.result.to_dict(warnings=False))
        except Exception as error:
            raise self._translate(error) from None
        return results


def _read_result(result: Mapping[str, Any]) -> Reply | UnscoredError:
    if result.get("type") in ("expired", "canceled"):
        return UnscoredError(f"expired: the batch left it unanswered ({result['type']})")
    if result.get("type") != "succeeded":
        detail = ((result.get("error") or {}).get("error") or {}).get("message", "")
        return UnscoredError(f"rejected in the batch: {detail}")
    try:
        return _read(result["message"])
    except TransientError as error:
        return UnscoredError(error.cause)
    except UnscoredError as error:
        return error


def _read(message: Mapping[str, Any]) -> Reply:
    """Read a message as the JSON it came as, live or in a batch."""
    counts = message.get("usage") or {}
    cached = (counts.get("cache_creation_input_tokens") or 0) + (counts.get("cache_read_input_tokens") or 0)
    usage = Usage((counts.get("input_tokens") or 0) + cached, counts.get("output_tokens") or 0)
    stop, blocks = message.get("stop_reason"), message.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise TransientError("broken reply: not a message", sent=True)
    if stop == "refusal":
        raise UnscoredError("refusal: the model declined", usage)
    if stop in ("max_tokens", "model_context_window_exceeded"):
        raise UnscoredError(f"truncated: after {usage.output_tokens} tokens", usage)
    text = "".join(str(block.get("text")) for block in blocks if block.get("type") == "text")
    if not text:
        raise UnscoredError("off-schema: no text in the reply", usage)
    return Reply(text, usage)
