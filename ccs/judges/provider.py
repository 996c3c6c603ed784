"""Providers of LLMs: one request gets one reply or one error.

OpenAI, Anthropic, Google, and all compatible servers (Hugging Face, vLLM, Ollama, llama.cpp) speak chat
completions. A provider sends a request once. Retries, limits, the cache, and the budget are in `caller`, so
the SDK's own retries are off and counts are exact.
"""

import contextlib
import hashlib
import json
import os
import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from ccs.errors import InputError, require
from ccs.judges import PROVIDERS, JudgeSettings, JudgeSpec

SERVERS = {
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "anthropic": "https://api.anthropic.com/v1",
}
"""Servers of chat completions, besides OpenAI's."""
KEYS: dict[str, tuple[str, ...]] = {provider: (f"{provider.upper()}_API_KEY",) for provider in PROVIDERS}
KEYS["google"] += ("GEMINI_API_KEY",)
"""The environment variables of each provider's key."""
MAX_REPLY_BYTES = 2**20
"""Longer replies aren't read."""
_KEY_PATTERN = re.compile(r"\b(sk-[\w*.-]{6,}|AIza[\w-]{10,})|(?<=Bearer )\S+", re.IGNORECASE)
_MESSAGE_LENGTH = 300
_MALFORMED = (LookupError, TypeError, AttributeError, ValueError)
_FATAL = {
    401: "does not accept the key given ({}).",
    403: "refuses access with the key given ({}). Check what the key may do.",
    404: "is not a model that its server knows ({}).",
}
"""The sentence after the model's name for a status after which no request can succeed."""
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
    """One model on a server of chat completions: call `send` in the context of `open`."""

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings) -> None:
        self.spec = spec
        self.settings = settings

    def identity(self) -> dict[str, Any]:
        """Return what determines an answer besides request and server, for cache and manifest."""
        spec = self.spec
        sampling = {"temperature": spec.temperature, "effort": spec.effort}
        return {"provider": spec.provider, "model": spec.model, **sampling}

    def cache_key(self, request: Request) -> str:
        """Return the SHA-256 of all that changes the answer. The limit on tokens only truncates it.

        The base URL counts only for compatible servers, which have their own weights. Elsewhere a gateway
        leads to the same model.
        """
        place = {"base_url": self.spec.base_url} if self.spec.provider == "compatible" else {}
        parts = [self.identity() | place, request.system, request.user, request.schema]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()

    def open(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return the client, open until its context ends. Raises InputError without package or key."""
        require("judges", "openai", "httpx2")
        import httpx2
        import openai

        spec, variables = self.spec, KEYS[self.spec.provider]
        keys = filter(None, (os.environ.get(variable, "").strip() for variable in variables))
        # Local servers need none, but the SDK needs a string. Headers hold only plain characters.
        key = next(keys, "none" if spec.provider == "compatible" else "")
        if not key or not key.isascii() or not key.isprintable():
            raise InputError(
                f"The judge {spec.name} needs a key in the environment variable {' or '.join(variables)} "
                "of plain letters; the judge `tags` and local servers (compatible:MODEL@URL) need none."
            )
        try:
            # httpx2 follows no redirect, which would send the key to another host. `Caller` bounds the time.
            self._client = openai.AsyncOpenAI(
                api_key=key,
                base_url=spec.base_url or SERVERS.get(spec.provider),
                timeout=None,
                max_retries=0,
                default_headers={"Accept-Encoding": "identity"},
                http_client=httpx2.AsyncClient(timeout=None, event_hooks={"response": [_bound]}),
            )
            _ = urllib.parse.urlsplit(str(self._client.base_url)).port  # checked only here
        except (ImportError, OSError, ValueError) as error:
            raise InputError(
                f"{spec.name} can't be reached ({clean(str(error))}); check its address ({spec.base_url}), "
                "and OPENAI_BASE_URL, HTTPS_PROXY, ALL_PROXY, and SSL_CERT_FILE in the environment."
            ) from None
        return self._client

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
        spec = self.spec
        roles = {"system": request.system, "user": request.user}
        answer = {"name": "answer", "schema": dict(request.schema), "strict": True}
        fields: dict[str, Any] = {
            "messages": [{"role": role, "content": text} for role, text in roles.items()],
            "response_format": {"type": "json_schema", "json_schema": answer},
            "reasoning_effort": spec.effort,
            "temperature": spec.temperature,
        }
        # The old name of the limit is the one that local servers and Google support.
        fields["max_completion_tokens" if spec.provider == "openai" else "max_tokens"] = max_tokens
        options = {name: value for name, value in fields.items() if value is not None}
        try:
            response = await self._client.chat.completions.create(model=spec.model, **options)
        except Exception as error:
            raise self._explain(error) from None
        usage = None
        try:
            body = response.to_dict(warnings=False)  # not validated, and the SDK doesn't do it either
            usage = _count_tokens(body)
            choice = body["choices"][0]
            message, finish = choice["message"], choice.get("finish_reason")
            refusal = message.get("refusal") or ("content filter" if finish == "content_filter" else "")
            text = message.get("content")
        except _MALFORMED:
            cause = "broken reply: not what the protocol promises"
            raise UnansweredError(cause, again=True, usage=usage) from None
        if refusal:
            raise UnansweredError(f"refusal: {refusal}", usage=usage)
        if finish == "length":
            raise UnansweredError(f"truncated: at {max_tokens:,} tokens; raise --max-tokens", usage=usage)
        if not isinstance(text, str):
            raise UnansweredError("off-schema: no text in the reply", usage=usage)
        return text, usage

    def _explain(self, error: Exception) -> Exception:
        """Return the exception to raise for one of the SDK's; other errors come back unchanged."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            message = error.message if isinstance(error.body, dict) else error.response.text
            return self._refused(error.status_code, message, error.response.headers)
        if isinstance(error, openai.APIConnectionError):
            reason = error.__cause__ or error
            usage = Usage() if isinstance(reason, httpx2.ConnectError) else None
            cause = f"connection: {reason or type(reason).__name__}"
            return UnansweredError(cause, again=True, usage=usage)
        if isinstance(error, ValueError | RecursionError | openai.APIError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    def _refused(self, status: int, message: str, headers: Mapping[str, str]) -> InputError | UnansweredError:
        """Return the exception to raise for an HTTP error, whose message includes the reply's body."""
        text, name = f"{status} {message}", self.spec.name
        busy = status in (408, 409, 425, 429) or status >= 500
        if status == 402 or _NO_CREDIT.search(message) or (not busy and _QUOTA.search(message)):
            advice = "Add credit there or raise its limit, then run the same command again"
            text = f"The account of {name} has no credit or quota left ({text}). {advice}: answers are kept."
            return InputError(clean(text))
        if "API_KEY_INVALID" in message or status in _FATAL:
            sentence = _FATAL[401 if "API_KEY_INVALID" in message else status]
            return InputError(clean(f"{name} {sentence.format(text)}"))
        if busy:
            label = "rate limit" if status == 429 else "unavailable"
            delay = re.search(r"retryDelay\W+([\d.]+)s", message)  # Google states it in the body
            wait = retry_after({"retry-after": delay[1]} if delay else headers)
            return UnansweredError(f"{label}: {text}", again=True, wait=wait, usage=Usage())
        return UnansweredError(f"rejected: {text}", usage=Usage())


def _count_tokens(body: Mapping[str, Any]) -> Usage | None:
    """Return the tokens that a reply states; None for odd ones, which never discard a reply."""
    with contextlib.suppress(*_MALFORMED):
        usage = body["usage"]
        sent, received = usage["prompt_tokens"], usage["completion_tokens"]
        # Google counts hidden reasoning only in the total.
        counts = sent, max(received, usage.get("total_tokens", 0) - sent)
        if all(type(count) is int and 0 <= count < 10**9 for count in counts):
            return Usage(*counts)
    return None


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
