"""The interface of model providers: one request gets one reply or one error.

A provider sends a request once. Retries, limits, the cache, and the budget are in `caller`, so the SDKs' own
retries are off and counts are exact.
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
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar

from ccs.errors import InputError
from ccs.judges import JudgeSettings, JudgeSpec

if TYPE_CHECKING:
    import httpx2

MAX_REPLY_BYTES = 2**20
"""Longer replies aren't read."""
_KEY_PATTERN = re.compile(r"\b(sk-[\w*.-]{6,}|AIza[\w-]{10,})|(?<=Bearer )\S+", re.IGNORECASE)
_MESSAGE_LENGTH = 300
_REPLY_BEGAN = "a reply had begun"
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

    @classmethod
    def from_counts(cls, input_tokens: object, output_tokens: object) -> Usage | None:
        """Check the counts that a reply states.

        Args:
            input_tokens: The stated count, of any type.
            output_tokens: The stated count, of any type.

        Returns:
            The usage, or None if a count is missing or implausible: a budget must not rely on it.
        """
        counts = (input_tokens, output_tokens)
        if all(type(count) is int and 0 <= count < 10**9 for count in counts):
            return cls(*counts)  # type: ignore[arg-type]
        return None


@dataclass(frozen=True)
class Reply:
    """A reply: its text, why the model refused (or ""), and whether it was cut off."""

    text: object
    refusal: str = ""
    truncated: bool = False


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


class Provider(ABC):
    """One model at one provider: call `open`, which needs its package and a key, then `send`, then `aclose`.

    The defaults fit OpenAI's and Anthropic's packages, which have alike clients (`client`) and errors.
    """

    kind: ClassVar[str]
    package: ClassVar[str]
    client: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings) -> None:
        self.spec = spec
        self.settings = settings

    def identity(self) -> dict[str, Any]:
        """Return all that determines an answer besides the request, for cache and manifest.

        The base URL is left out, since a gateway leads to the same model. `CompatibleProvider` adds it: such
        servers have their own weights.
        """
        spec = self.spec
        sampling = {"temperature": spec.temperature, "effort": spec.effort}
        return {"provider": self.kind, "model": spec.model, **sampling}

    def cache_key(self, request: Request) -> str:
        """Return the SHA-256 of all that changes the answer. The limit on tokens only truncates it."""
        parts = [self.identity(), request.system, request.user, request.schema]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()

    def open(self) -> None:
        """Import the provider's package and open its client. Raises InputError without package or key."""
        try:
            self._sdk = importlib.import_module(self.package)
        except ImportError:
            raise InputError(
                f"The judge {self.spec.name} needs a package that isn't installed: "
                "run `pip install 'clip-ccs[judges]'`."
            ) from None
        self._client = self.connect(self.key())

    def key(self) -> str:
        """Return the API key from the environment. Raises InputError that names the variable."""
        for variable in self.keys:
            if value := os.environ.get(variable, "").strip():
                return value
        raise InputError(
            f"The judge {self.spec.name} needs a key in the environment variable {' or '.join(self.keys)}; "
            "the judge `tags` and local servers (compatible:MODEL@URL) need none."
        )

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
            raise self.translate(error) from None
        usage = None
        try:
            body = self.body(response)
            with contextlib.suppress(*_MALFORMED):  # odd counts never discard an answer that was paid for
                usage = self.usage(body)
            reply = self.read(body)
        except _MALFORMED:
            cause = "broken reply: not what the protocol promises"
            raise UnansweredError(cause, again=True, usage=usage) from None
        if reply.refusal:
            raise UnansweredError(f"refusal: {reply.refusal}", usage=usage)
        if reply.truncated:
            raise UnansweredError(f"truncated: at {max_tokens:,} tokens; raise --max-tokens", usage=usage)
        if not isinstance(reply.text, str):
            raise UnansweredError("off-schema: no text in the reply", usage=usage)
        return reply.text, usage

    def connect(self, key: str) -> Any:
        """Return a client of the SDK with its retries off."""
        timeout = self.settings.timeout
        return getattr(self._sdk, self.client)(
            api_key=key,
            base_url=self.spec.base_url,
            timeout=timeout,
            max_retries=0,
            http_client=bounded_client(timeout),
        )

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.close()

    @abstractmethod
    async def call(self, request: Request, max_tokens: int) -> Any:
        """Return the SDK's response to a request. Raises the SDK's errors."""

    def body(self, response: Any) -> dict[str, Any]:
        """Return the JSON of a response. It isn't validated, and neither are those of the SDKs."""
        body: dict[str, Any] = response.to_dict(warnings=False)
        return body

    @abstractmethod
    def usage(self, body: dict[str, Any]) -> Usage | None:
        """Return the tokens that a response states. May raise any of `_MALFORMED`."""

    @abstractmethod
    def read(self, body: dict[str, Any]) -> Reply:
        """Return a response's reply. May raise any of `_MALFORMED`."""

    def translate(self, error: Exception) -> Exception:
        """Return the exception to raise for one of the SDK's; other errors come back unchanged."""
        sdk = self._sdk
        if isinstance(error, sdk.APITimeoutError):
            return UnansweredError("timeout: no answer in time", again=True)
        if isinstance(error, sdk.APIStatusError):
            codes = [str(getattr(error, name, None) or "") for name in ("code", "type")]
            return self.failure(error.status_code, error.message, error.response.headers, " ".join(codes))
        if isinstance(error, sdk.APIConnectionError):
            return connection_lost(error.__cause__ or error)
        if isinstance(error, ValueError | sdk.APIError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    def failure(
        self, status: int, message: object, headers: Mapping[str, str], codes: str = ""
    ) -> InputError | UnansweredError:
        """Return the exception to raise for an HTTP error.

        Args:
            status: The HTTP status.
            message: The server's message.
            headers: The response's headers, which may say how long to wait.
            codes: The error's code and type, if the server gives them.
        """
        text, name = f"{status} {message}", self.spec.name
        explained = f"{codes} {message}"
        busy = status in (408, 409, 425, 429) or status >= 500
        if status == 402 or _NO_CREDIT.search(explained) or (not busy and _QUOTA.search(explained)):
            return InputError(
                clean(
                    f"The account of {name} has no credit or quota left ({text}). Add credit there or raise "
                    "its limit, then run the same command again: answers so far are kept."
                )
            )
        if status == 401:
            return InputError(clean(f"{name} does not accept the key given ({text})."))
        if status == 403:
            return InputError(
                clean(f"{name} refuses access with the key given ({text}). Check what the key may do.")
            )
        if status == 404:
            return InputError(clean(f"{name} is not a model that its server knows ({text})."))
        if busy:
            label = "rate limit" if status == 429 else "unavailable"
            return UnansweredError(f"{label}: {text}", again=True, wait=retry_after(headers), usage=Usage())
        return UnansweredError(f"rejected: {text}", usage=Usage())


def connection_lost(error: BaseException) -> UnansweredError:
    """Return the error for a connection that failed. It costs nothing unless a reply had begun."""
    began = _REPLY_BEGAN in getattr(error, "__notes__", ())
    cause = f"connection: {error or type(error).__name__}"
    return UnansweredError(cause, again=True, usage=None if began else Usage())


def bounded_client(timeout: float) -> httpx2.AsyncClient:
    """Return an HTTP client that follows no redirect, accepts nothing compressed, and reads limited replies.

    A redirect would send the key, which is in a header, to another host. A few compressed kilobytes can
    unfold to gigabytes. A reply of more than MAX_REPLY_BYTES ends as a broken connection does.
    """
    import httpx2  # the HTTP client of all three SDKs, and installed with each

    class BoundedClient(httpx2.AsyncClient):
        async def send(
            self, request: httpx2.Request, *, stream: bool = False, **options: Any
        ) -> httpx2.Response:
            request.headers["Accept-Encoding"] = "identity"
            response = await super().send(request, stream=True, **options)
            body = bytearray()
            try:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise httpx2.ReadError("the reply is compressed, which wasn't requested")
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > MAX_REPLY_BYTES:
                        raise httpx2.ReadError(f"the reply is longer than {MAX_REPLY_BYTES:,} bytes")
            except httpx2.HTTPError as error:
                error.add_note(_REPLY_BEGAN)
                raise
            finally:
                await response.aclose()
            return httpx2.Response(
                response.status_code, headers=response.headers, content=bytes(body), request=request
            )

    return BoundedClient(timeout=timeout)


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
