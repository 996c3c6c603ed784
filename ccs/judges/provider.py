"""Providers of LLMs: one request gets one reply or one error.

OpenAI, Google, and all compatible servers (Hugging Face, vLLM, Ollama, llama.cpp) speak chat completions;
Anthropic has its own protocol. A provider sends a request once. Retries, limits, the cache, and the budget
are in `caller`, so the SDKs' own retries are off and counts are exact.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from ccs.errors import InputError, require
from ccs.judges import JudgeSettings, JudgeSpec

GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
"""Google's server of chat completions."""
KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "compatible": ("COMPATIBLE_API_KEY",),
}
"""The environment variables of each provider's key."""
MAX_REPLY_BYTES = 2**20
"""Longer replies aren't read."""
_KEY_PATTERN = re.compile(r"\b(sk-[\w*.-]{6,}|AIza[\w-]{10,})|(?<=Bearer )\S+", re.IGNORECASE)
_MESSAGE_LENGTH = 300
_MALFORMED = (LookupError, TypeError, AttributeError, ValueError)
_NO_CREDIT = re.compile(
    r"insufficient.?(quota|balance|funds|credit)|billing_|out of credit|spend(ing)? (cap|limit)|"
    r"credits? .*(deplet|exhaust|too low)",
    re.IGNORECASE,
)
"""In an error that more money would solve, whatever its status."""
_QUOTA = re.compile(r"\b(quota|credits?|billing|payment|balance)\b", re.IGNORECASE)
"""The same, except in a rate limit, which some servers call a quota, too."""


@dataclass(frozen=True)
class Request:
    """A request to a model.

    Attributes:
        system: The instructions.
        user: The data.
        schema: The JSON schema of the answer.
    """

    system: str
    user: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request. Hidden reasoning counts as output."""

    input_tokens: int = 0
    output_tokens: int = 0


class UnansweredError(Exception):
    """A request without an answer.

    Attributes:
        cause: The reason, on one line and without keys.
        again: True if the same request may succeed later.
        wait: Seconds to wait before that.
        usage: The tokens to pay for; None if unknown, as after a timeout.
    """

    def __init__(
        self, cause: str, *, again: bool = False, wait: float = 0.0, usage: Usage | None = None
    ) -> None:
        super().__init__(cause)
        self.cause = clean(cause)
        self.again, self.wait, self.usage = again, wait, usage


class Provider:
    """One model on a server of chat completions: call `open`, then `send`, then `aclose`."""

    package: ClassVar[str] = "openai"
    client: ClassVar[str] = "AsyncOpenAI"

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings) -> None:
        self.spec = spec
        self.settings = settings

    def identity(self) -> dict[str, Any]:
        """Return all that determines an answer besides the request, for cache and manifest.

        The base URL counts only for compatible servers, which have their own weights. Elsewhere a gateway
        leads to the same model.
        """
        spec = self.spec
        sampling = {"temperature": spec.temperature, "effort": spec.effort}
        place = {"base_url": spec.base_url} if spec.provider == "compatible" else {}
        return {"provider": spec.provider, "model": spec.model, **sampling, **place}

    def cache_key(self, request: Request) -> str:
        """Return the SHA-256 of all that changes the answer. The limit on tokens only truncates it."""
        parts = [self.identity(), request.system, request.user, request.schema]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()

    def open(self) -> None:
        """Import the provider's package and open its client. Raises InputError without package or key."""
        require("judges", self.package, "httpx2")
        import httpx2

        self._sdk = importlib.import_module(self.package)
        timeout = self.settings.timeout
        # httpx2 follows no redirect, which would send the key to another host.
        http_client = httpx2.AsyncClient(timeout=timeout, event_hooks={"response": [_bound]})
        self._client = getattr(self._sdk, self.client)(
            api_key=self.api_key(),
            base_url=self.spec.base_url or (GOOGLE if self.spec.provider == "google" else None),
            timeout=timeout,
            max_retries=0,
            default_headers={"Accept-Encoding": "identity"},
            http_client=http_client,
        )

    def api_key(self) -> str:
        """Return the API key from the environment. Raises InputError that names the variable."""
        variables = KEYS[self.spec.provider]
        for variable in variables:
            if value := os.environ.get(variable, "").strip():
                return value
        if self.spec.provider == "compatible":
            return "none"  # local servers need none, but the SDK needs a string
        raise InputError(
            f"The judge {self.spec.name} needs a key in the environment variable {' or '.join(variables)}; "
            "the judge `tags` and local servers (compatible:MODEL@URL) need none."
        )

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.close()

    async def send(self, request: Request, max_tokens: int) -> tuple[str, Usage | None]:
        """Send a request once.

        Args:
            request: The request.
            max_tokens: The longest reply, hidden reasoning included.

        Returns:
            The reply's text, unchecked, and the tokens used, or None if the reply states no plausible ones.

        Raises:
            UnansweredError: There is no answer to this request.
            InputError: There will be none to any, such as when the key isn't accepted.
        """
        try:
            response = await self.call(request, max_tokens)
        except Exception as error:
            raise self._explain(error) from None
        usage = None
        try:
            body = response.to_dict(warnings=False)  # not validated, and the SDK doesn't do it either
            with contextlib.suppress(*_MALFORMED):  # odd counts never discard an answer that was paid for
                counts = self.count_tokens(body["usage"])
                if all(type(count) is int and 0 <= count < 10**9 for count in counts):
                    usage = Usage(*counts)
            text, refusal, truncated = self.read_body(body)
        except _MALFORMED:
            cause = "broken reply: not what the protocol promises"
            raise UnansweredError(cause, again=True, usage=usage) from None
        if refusal:
            raise UnansweredError(f"refusal: {refusal}", usage=usage)
        if truncated:
            raise UnansweredError(f"truncated: at {max_tokens:,} tokens; raise --max-tokens", usage=usage)
        if not isinstance(text, str):
            raise UnansweredError("off-schema: no text in the reply", usage=usage)
        return text, usage

    async def call(self, request: Request, max_tokens: int) -> Any:
        """Return the SDK's response to a request. The SDK's errors pass through.

        Args:
            request: The request.
            max_tokens: The longest reply, hidden reasoning included.
        """
        spec = self.spec
        # The old name of the limit is the one that local servers and Google support.
        limit = "max_completion_tokens" if spec.provider == "openai" else "max_tokens"
        sampling = {"reasoning_effort": spec.effort, "temperature": spec.temperature}
        return await self._client.chat.completions.create(
            model=spec.model,
            messages=[
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.user},
            ],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(request.schema), "strict": True},
            },
            **{limit: max_tokens},
            **{name: value for name, value in sampling.items() if value is not None},
        )

    def count_tokens(self, usage: dict[str, Any]) -> tuple[Any, Any]:
        """Return the input and output tokens that a reply states, unchecked."""
        sent, received = usage["prompt_tokens"], usage["completion_tokens"]
        # Google counts hidden reasoning only in the total.
        return sent, max(received, usage.get("total_tokens", 0) - sent)

    def read_body(self, body: dict[str, Any]) -> tuple[Any, str, bool]:
        """Return a reply's text, why the model refused (or ""), and whether the reply was cut off."""
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        refusal = message.get("refusal") or ("content filter" if finish == "content_filter" else "")
        return message.get("content"), refusal, finish == "length"

    def _explain(self, error: Exception) -> Exception:
        """Return the exception to raise for one of the SDK's; other errors come back unchanged."""
        import httpx2

        sdk = self._sdk
        if isinstance(error, sdk.APITimeoutError):
            return UnansweredError("timeout: no answer in time", again=True)
        if isinstance(error, sdk.APIStatusError):
            message = error.message if isinstance(error.body, dict) else error.response.text
            return self._refused(error.status_code, message, error.response.headers)
        if isinstance(error, sdk.APIConnectionError):
            reason = error.__cause__ or error
            unused = isinstance(reason, httpx2.ConnectError)
            cause = f"connection: {reason or type(reason).__name__}"
            return UnansweredError(cause, again=True, usage=Usage() if unused else None)
        if isinstance(error, ValueError | RecursionError | sdk.APIError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    def _refused(self, status: int, message: str, headers: Mapping[str, str]) -> InputError | UnansweredError:
        """Return the exception to raise for an HTTP error, whose message includes the reply's body."""
        text, name = f"{status} {message}", self.spec.name
        busy = status in (408, 409, 425, 429) or status >= 500
        if status == 402 or _NO_CREDIT.search(message) or (not busy and _QUOTA.search(message)):
            return InputError(
                clean(
                    f"The account of {name} has no credit or quota left ({text}). Add credit there or raise "
                    "its limit, then run the same command again: answers so far are kept."
                )
            )
        if status == 401 or "API_KEY_INVALID" in message:
            return InputError(clean(f"{name} does not accept the key given ({text})."))
        if status == 403:
            return InputError(
                clean(f"{name} refuses access with the key given ({text}). Check what the key may do.")
            )
        if status == 404:
            return InputError(clean(f"{name} is not a model that its server knows ({text})."))
        if busy:
            label = "rate limit" if status == 429 else "unavailable"
            delay = re.search(r"retryDelay\W+([\d.]+)s", message)  # Google states it in the body
            wait = retry_after({"retry-after": delay[1]} if delay else headers)
            return UnansweredError(f"{label}: {text}", again=True, wait=wait, usage=Usage())
        return UnansweredError(f"rejected: {text}", usage=Usage())


class AnthropicProvider(Provider):
    """One model at Anthropic."""

    package = "anthropic"
    client = "AsyncAnthropic"

    async def call(self, request: Request, max_tokens: int) -> Any:
        """Return the SDK's response to a request, as in `Provider.call`.

        Args:
            request: The request.
            max_tokens: The longest reply, hidden reasoning included.
        """
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

    def count_tokens(self, usage: dict[str, Any]) -> tuple[Any, Any]:
        """See `Provider.count_tokens`."""
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        return usage["input_tokens"] + sum(usage.get(name) or 0 for name in cached), usage["output_tokens"]

    def read_body(self, body: dict[str, Any]) -> tuple[Any, str, bool]:
        """See `Provider.read_body`."""
        texts = [str(block.get("text")) for block in body["content"] if block.get("type") == "text"]
        stop = body.get("stop_reason")
        refusal = "the model declined" if stop == "refusal" else ""
        truncated = stop in ("max_tokens", "model_context_window_exceeded")
        return "".join(texts) if texts else None, refusal, truncated


async def _bound(response: Any) -> None:
    """Refuse compressed replies, which can unfold to gigabytes, and replies that are too long."""
    import httpx2

    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx2.ReadError("the reply is compressed, which wasn't requested")
    if int(response.headers.get("Content-Length", 0)) > MAX_REPLY_BYTES:
        raise httpx2.ReadError(f"the reply is longer than {MAX_REPLY_BYTES:,} bytes")


def redact(text: str) -> str:
    """Replace keys (those in the environment, and what looks like one) by `[key]`; return valid Unicode."""
    for variable, content in os.environ.items():
        key = content.strip()
        if variable.endswith(("_API_KEY", "_AUTH_TOKEN")) and len(key) >= 4:
            for form in (key, urllib.parse.quote(key, safe=""), repr(key)[1:-1]):
                text = text.replace(form, "[key]")
    return _KEY_PATTERN.sub("[key]", text).encode("utf-8", "replace").decode()


def clean(text: str) -> str:
    """Return an error text on one line, shortened, and without keys."""
    text = " ".join(redact(text).split())
    return text if len(text) <= _MESSAGE_LENGTH else text[: _MESSAGE_LENGTH - 3] + "..."


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a reply's headers ask to wait, or 0.

    `retry-after-ms` counts first, as in OpenAI's SDK. `retry-after` is seconds or an HTTP date (RFC 9110).
    """
    by_name = {name.lower(): value for name, value in headers.items()}
    for name, seconds in (
        ("retry-after-ms", lambda value: float(value) / 1000),
        ("retry-after", float),
        ("retry-after", lambda value: parsedate_to_datetime(value).timestamp() - time.time()),
    ):
        with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
            return max(0.0, seconds(by_name[name]))
    return 0.0
