"""The interface of model providers: a request yields one reply or an error.

A provider sends a request once. Retries, limits, the cache and the budget are in one place (`caller`), so the
SDKs' own retries are off and counts are exact.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ccs.errors import InputError
from ccs.judges import JudgeSettings, JudgeSpec

if TYPE_CHECKING:
    import httpx2

MOST_BYTES = 2**20
"""Bytes of the longest reply that is read."""
_KEY_PATTERN = re.compile(r"\b(sk-[\w*.-]{6,}|AIza[\w-]{10,})|(?<=Bearer )\S+", re.IGNORECASE)
_MESSAGE_LENGTH = 300
_BEGUN = "a reply had begun"


@dataclass(frozen=True)
class Request:
    """A request to a model: instructions, the data, and the JSON schema of the answer."""

    system: str
    user: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request, with hidden reasoning. TypeError for no plausible count: budgets rely on it."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __post_init__(self) -> None:
        for count in (self.input_tokens, self.output_tokens):
            if type(count) is not int or not 0 <= count < 10**9:
                raise TypeError(f"{count!r} is no number of tokens")

    @classmethod
    def stated(cls, sent: Any, received: Any) -> Usage | None:
        """The tokens that a reply states; None if it states none, or but one of the two."""
        return None if sent is None or received is None else cls(sent, received)


class UnansweredError(Exception):
    """There is no answer, with the cause. again: the same request may succeed later, after `wait` seconds.
    usage: the tokens to pay for; None where that is not known, as after a timeout.
    """

    def __init__(
        self, cause: str, *, again: bool = False, wait: float = 0.0, usage: Usage | None = None
    ) -> None:
        super().__init__(cause)
        self.cause = clean(cause)
        self.again, self.wait, self.usage = again, wait, usage


class TruncatedError(UnansweredError):
    """A reply was cut off at the limit on tokens: with a higher one it may be whole."""


class Provider(ABC):
    """One model at one provider: `open`, which needs its package and a key, then `send` as often as needed,
    then `aclose`. OpenAI's and Anthropic's packages are alike in clients (`client`, a class) and errors.
    """

    kind: ClassVar[str]
    package: ClassVar[str]
    client: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings) -> None:
        self.spec = spec
        self.settings = settings

    def identity(self) -> dict[str, Any]:
        """Everything besides the request that determines the answer; for the manifest. The base URL is left
        out, for a gateway leads to the same model; not so for `compatible`, whose servers have weights of
        their own.
        """
        spec = self.spec
        sampling = {"temperature": spec.temperature, "effort": spec.effort}
        return {"provider": self.kind, "model": spec.model, **sampling}

    def cache_key(self, request: Request) -> str:
        """The SHA-256 of what changes the answer. The limit on tokens does not: it only truncates."""
        parts = [self.identity(), request.system, request.user, request.schema]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()

    def open(self) -> None:
        """Import the provider's package and open its client. Raises InputError without package or key."""
        try:
            self._sdk = importlib.import_module(self.package)
        except ImportError:
            raise InputError(
                f"The judge {self.spec.name} needs a package that is not installed: "
                "run `pip install 'clip-ccs[judges]'`."
            ) from None
        self._client = self.connect(self.key())

    def key(self) -> str:
        """The API key from the environment. Raises InputError that names the variable."""
        for variable in self.keys:
            if value := os.environ.get(variable, "").strip():
                return value
        raise InputError(
            f"The judge {self.spec.name} needs a key in the environment variable {' or '.join(self.keys)}; "
            "the judge `tags` and local servers (compatible:MODEL@URL) need none."
        )

    async def send(self, request: Request, max_tokens: int) -> tuple[str, Usage | None]:
        """The reply's text, unchecked, and tokens used; sent once. UnansweredError or InputError."""
        try:
            response = await self.call(request, max_tokens)
        except Exception as error:
            raise self.translate(error) from None
        try:
            return self.read(response)
        except (LookupError, TypeError, AttributeError):
            raise UnansweredError("broken reply: not what the protocol promises", again=True) from None

    def connect(self, key: str) -> Any:
        """A client of the SDK with its retries off."""
        timeout = self.settings.timeout
        return getattr(self._sdk, self.client)(
            api_key=key,
            base_url=self.spec.base_url,
            timeout=timeout,
            max_retries=0,
            http_client=bounded_client(timeout),
        )

    async def aclose(self) -> None:
        await self._client.close()

    @abstractmethod
    async def call(self, request: Request, max_tokens: int) -> Any:
        """The SDK's response to a request. Raises the SDK's errors."""

    def translate(self, error: Exception) -> Exception:
        """The exception to raise for an error of the SDK; other errors are returned unchanged."""
        sdk = self._sdk
        if isinstance(error, sdk.APITimeoutError):
            return UnansweredError("timeout: no answer in time", again=True)
        if isinstance(error, sdk.APIStatusError):
            out_of_credit = getattr(error, "code", None) == "insufficient_quota"
            status = 403 if out_of_credit else error.status_code
            return self.failure(status, error.message, error.response.headers)
        if isinstance(error, sdk.APIConnectionError):
            return lost(error.__cause__ or error)
        if isinstance(error, ValueError | sdk.APIError):
            return UnansweredError(f"broken reply: {error}", again=True)
        return error

    @abstractmethod
    def read(self, response: Any) -> tuple[str, Usage | None]:
        """A response's text and tokens, by `answered`; also LookupError, TypeError, AttributeError."""

    def failure(self, status: int, message: object, headers: Mapping[str, str]) -> Exception:
        text = f"{status} {message}"
        if status in (401, 403):
            return InputError(clean(f"{self.spec.name} does not accept the key given ({text})."))
        if status == 404:
            return InputError(clean(f"{self.spec.name} is not a model that its server knows ({text})."))
        free = Usage()
        if status in (408, 409, 425, 429) or status >= 500:
            label = "rate limit" if status == 429 else "unavailable"
            return UnansweredError(f"{label}: {text}", again=True, wait=retry_after(headers), usage=free)
        return UnansweredError(f"rejected: {text}", usage=free)


def lost(error: BaseException) -> UnansweredError:
    begun = _BEGUN in getattr(error, "__notes__", ())
    cause = f"connection: {error or type(error).__name__}"
    return UnansweredError(cause, again=True, usage=None if begun else Usage())


def answered(
    text: str | None, usage: Usage | None, refusal: str, truncated: bool
) -> tuple[str, Usage | None]:
    """A reply's text and tokens. UnansweredError if the model refused, was cut off, or gave no text."""
    if refusal:
        raise UnansweredError(f"refusal: {refusal}", usage=usage)
    if truncated:
        raise TruncatedError("truncated: at the limit on tokens", usage=usage)
    if not isinstance(text, str):
        raise UnansweredError("off-schema: no text in the reply", usage=usage)
    return text, usage


def bounded_client(timeout: float) -> httpx2.AsyncClient:
    """An HTTP client that follows no redirect, takes nothing compressed, and stops reading at MOST_BYTES.

    A redirect would send the key, which is in a header, to another host; a few compressed kilobytes can
    unfold to gigabytes. What is too long ends as a broken connection does.
    """
    import httpx2  # the HTTP client of all three SDKs, and installed with each

    class BoundedClient(httpx2.AsyncClient):
        async def send(
            self, request: httpx2.Request, *, stream: bool = False, **more: Any
        ) -> httpx2.Response:
            request.headers["Accept-Encoding"] = "identity"
            response = await super().send(request, stream=True, **more)
            body = bytearray()
            try:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise httpx2.ReadError("the reply is compressed, though none such was asked for")
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise httpx2.ReadError(f"the reply is longer than {MOST_BYTES:,} bytes")
            except httpx2.HTTPError as error:
                error.add_note(_BEGUN)
                raise
            finally:
                await response.aclose()
            return httpx2.Response(
                response.status_code, headers=response.headers, content=bytes(body), request=request
            )

    return BoundedClient(timeout=timeout)


def redact(text: str) -> str:
    """The text with `[key]` for keys (of the environment, and what looks like one), and valid Unicode."""
    for variable, given in os.environ.items():
        value = given.strip()
        if variable.endswith(("_API_KEY", "_AUTH_TOKEN")) and len(value) >= 4:
            for form in (value, urllib.parse.quote(value, safe=""), repr(value)[1:-1]):
                text = text.replace(form, "[key]")
    return _KEY_PATTERN.sub("[key]", text).encode("utf-8", "replace").decode()


def clean(text: str) -> str:
    """An error text on one line, shortened, without keys."""
    text = " ".join(redact(text).split())
    return text if len(text) <= _MESSAGE_LENGTH else text[: _MESSAGE_LENGTH - 3] + "..."


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds that a reply's headers ask to wait, or 0. Header names are lower case."""
    with contextlib.suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after"]))
    return 0.0
