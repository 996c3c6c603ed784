"""What every provider of language models is to the rest: one request, one reply, three ways to fail.

A provider sends a request once. Retries, limits, the cache and the budget are in one place (`caller`), so the
SDKs' own retries are off and counts are exact.
"""

from __future__ import annotations

import email.utils
import hashlib
import importlib
import json
import os
import re
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Self

from ccs.errors import InputError
from ccs.judges.question import OffSchemaError, parse_reply
from ccs.judges.settings import JudgeSettings, JudgeSpec

KEY_VARIABLES = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "COMPATIBLE_API_KEY",
)
_KEY_PATTERN = re.compile(r"\b(sk-[\w*.-]{6,}|AIza[\w-]{10,})|(?<=Bearer )\S+", re.IGNORECASE)
_MESSAGE_LENGTH = 300


@dataclass(frozen=True)
class Request:
    """What is asked of a model: instructions, the data, and the JSON schema of the answer."""

    system: str
    user: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request, those of hidden reasoning counted as output."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """The text of an answer, not yet checked against the schema."""

    text: str
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Outcome:
    """What became of a request: a reply that follows its schema, or None with the cause."""

    text: str | None
    cause: str = ""


class UnscoredError(Exception):
    """What came back is no answer (refusal, truncation, rejection), and asking again would be paid again."""

    def __init__(self, cause: str, usage: Usage | None = None) -> None:
        super().__init__(cause)
        self.cause = clean(cause)
        self.usage = usage or Usage()


class TransientError(Exception):
    """No answer this time; the same request may do better later.

    `after`: seconds the server asks to wait, or None. `sent`: whether the model may have worked, and so may
    be paid, although no answer arrived (a timeout, a cut connection).
    """

    def __init__(self, cause: str, *, after: float | None = None, sent: bool = False) -> None:
        super().__init__(cause)
        self.cause = clean(cause)
        self.after = after
        self.sent = sent


class NotFoundError(InputError):
    """The server knows no such model, or no such batch any more."""


class UndecidedError(Exception):
    """It cannot be told yet whether a batch was accepted."""


@dataclass(frozen=True)
class BatchRequest:
    """One request of a batch under its own id, which begins with the batch's tag."""

    id: str
    request: Request


BatchResults = Mapping[str, Reply | UnscoredError]


class Provider(ABC):
    """One model at one provider. Use it as an async context manager around `send` and the batch calls.

    Building one needs neither the provider's package nor a key; `require` and entering the context do.
    """

    kind: ClassVar[str]
    package: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    has_batches: ClassVar[bool] = True

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings) -> None:
        self.spec = spec
        self.settings = settings

    @property
    def name(self) -> str:
        return self.spec.name

    def identity(self) -> dict[str, Any]:
        """Return what, beside the request, decides the answer. Also what the manifest says of a judge.

        A base URL is no part of it: a gateway hands on to the same model. `compatible` adds its own, because
        there the URL says which server's weights answer.
        """
        spec = self.spec
        return {
            "provider": self.kind,
            "model": spec.model,
            "temperature": spec.temperature,
            "effort": spec.effort,
        }

    def cache_key(self, request: Request) -> str:
        """Return the sha256 of everything that changes the answer, and of nothing else.

        The limit on output tokens is left out on purpose: it only truncates, and what is truncated is never
        cached.
        """
        parts = [self.identity(), request.system, request.user, request.schema]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()

    def require(self) -> ModuleType:
        """Import the provider's package and check that there is a key. Raises InputError."""
        try:
            module = importlib.import_module(self.package)
        except ImportError:
            raise InputError(
                f"The judge {self.name} needs a package that is not installed: "
                'run `pip install "clip-ccs[judges]"`.'
            ) from None
        self.key()
        return module

    def key(self) -> str:
        """Return the API key from the environment. Raises InputError that names the variable."""
        for variable in self.keys:
            if value := os.environ.get(variable, "").strip():
                return value
        raise InputError(
            f"The judge {self.name} needs a key in the environment variable {' or '.join(self.keys)}; "
            "the judge `tags` and local servers (compatible:MODEL@URL) need none."
        )

    async def __aenter__(self) -> Self:
        self.require()
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Open the client, its retries off."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client and its connections."""

    @abstractmethod
    async def send(self, request: Request) -> Reply:
        """Send one request once. Raises UnscoredError, TransientError or InputError (key, model)."""

    async def submit(self, tag: str, requests: Sequence[BatchRequest]) -> str:
        """Submit a batch and return the provider's id of it."""
        raise NotImplementedError

    async def find(self, tag: str, count: int, since: float, known: Sequence[str]) -> str | None:
        """Return the id of the batch submitted under `tag` after `since`, or None if there is none.

        `known`: ids of other batches. Raises UndecidedError where only the end of a batch will tell.
        """
        raise NotImplementedError

    async def collect(self, batch: str) -> BatchResults | None:
        """Return a batch's results by request id, or None while it is being worked on."""
        raise NotImplementedError

    def failure(
        self, status: int, message: object, headers: Mapping[str, str], *, after: float | None = None
    ) -> Exception:
        """Return the exception for an HTTP error status."""
        text = f"{status} {message}"
        if status in (401, 403):
            return InputError(clean(f"{self.name} does not accept the key given ({text})."))
        if status == 404:
            return NotFoundError(clean(f"{self.name} is not a model that its server knows ({text})."))
        if status in (408, 409, 425, 429) or status >= 500:
            label = "rate limit" if status == 429 else "unavailable"
            wait = retry_after(headers) if after is None else after
            return TransientError(f"{label}: {text}", after=wait)
        return UnscoredError(f"rejected: {text}")


def check(reply: Reply, schema: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a reply: itself if it follows the schema, else where it departs from it."""
    try:
        parse_reply(reply.text, schema)
    except OffSchemaError as error:
        return Outcome(None, f"off-schema: {error}")
    return Outcome(reply.text)


def clean(text: str) -> str:
    """Return an error text on one line, shortened, with every key in it replaced."""
    for variable in KEY_VARIABLES:
        value = os.environ.get(variable, "").strip()
        if len(value) >= 4:
            for form in (value, urllib.parse.quote(value, safe=""), repr(value)[1:-1]):
                text = text.replace(form, "[key]")
    text = " ".join(_KEY_PATTERN.sub("[key]", text).split())
    return text if len(text) <= _MESSAGE_LENGTH else text[: _MESSAGE_LENGTH - 3] + "..."


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a reply's headers ask to wait, from now, or None. Header names are lower case."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            return max(0.0, float(value) * scale)
        except ValueError:
            try:
                return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
            except (TypeError, ValueError):
                continue
    return None
