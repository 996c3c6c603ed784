"""Settings of judges: the models, and the limits on requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ccs.errors import InputError
from ccs.texts.labels import TAGS

DEFAULT_MODELS = {"openai": "gpt-6.1-terra", "anthropic": "claude-sonnet-5-5", "google": "gemini-3.8-flash"}
PROVIDERS = (*DEFAULT_MODELS, "compatible")
_SPEC = re.compile(r"(?P<provider>\w+)(:(?P<model>[^@?\s]+))?(@(?P<url>[^?\s]+))?(\?(?P<options>\S+))?")


@dataclass(frozen=True)
class JudgeSettings:
    """Limits of a run, the same for every judge of a panel. Times are in seconds.

    cache: SQLite file of answers.
    concurrency: requests in flight per judge.
    timeout: for one attempt as a whole, so that a reply that trickles in is cut off too.
    retries: attempts after the first; the wait doubles from `delay` on, with jitter.
    max_tokens: limit on a reply, including hidden reasoning.
    budget: the most US dollars that this run may spend, or None; a budget needs a price for every judge.
    prices: a JSON file whose prices are added to prices.json or override it.
    """

    cache: Path = Path("judges.sqlite")
    concurrency: int = 8
    timeout: float = 120.0
    retries: int = 4
    delay: float = 1.0
    max_tokens: int = 4096
    budget: float | None = None
    prices: Path | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "timeout", "max_tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"The judges' {name} is {value}, but must be above 0.")
        for name in ("retries", "delay", "budget"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError(f"The judges' {name} is {value}, but must not be negative.")


@dataclass(frozen=True)
class JudgeSpec:
    """One model: `PROVIDER[:MODEL][@BASE_URL][?effort=low&temperature=0]`.

    `effort` and `temperature` are sent only if given: several current models reject a temperature, older ones
    an effort.
    """

    provider: str
    model: str
    base_url: str | None = None
    effort: str | None = None
    temperature: float | None = None

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"

    @classmethod
    def parse(cls, text: str) -> JudgeSpec:
        """One judge from its name on the command line. Raises InputError."""
        match, shown = _SPEC.fullmatch(text.strip()), _without_credentials(text.strip())
        if match is None or match["provider"] not in PROVIDERS:
            raise InputError(
                f"{shown!r} is not a judge; a judge is {TAGS} or "
                f"PROVIDER:MODEL, where PROVIDER is {', '.join(PROVIDERS[:-1])} or {PROVIDERS[-1]}."
            )
        provider, url = match["provider"], match["url"]
        model = match["model"] or DEFAULT_MODELS.get(provider)
        if model is None or (provider == "compatible" and url is None):
            raise InputError(
                f"The judge {shown!r} is incomplete; a compatible server is named with its model and "
                "address, as in compatible:llama3.1:8b@http://localhost:11434/v1."
            )
        effort, temperature = _options(match["options"])
        if provider == "anthropic" and temperature is not None:
            raise InputError(f"The judge {provider}:{model} takes no temperature: the API rejects it.")
        return cls(provider, model, None if url is None else _address(url), effort, temperature)


def parse_panel(text: str) -> list[JudgeSpec | str]:
    """A panel from judges separated by commas; "default" is one model from each of the three providers.

    A stand-in stays a string. Raises InputError for an empty panel and for a judge named twice.
    """
    judges: list[JudgeSpec | str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        named = DEFAULT_MODELS if part == "default" else (part,)
        judges += [name if name == TAGS else JudgeSpec.parse(name) for name in named]
    names = [judge if isinstance(judge, str) else judge.name for judge in judges]
    if not names:
        raise InputError(f"The panel {text!r} is empty; name a judge, `default`, or {TAGS}.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The judge {name} is named twice in the panel; each judge can vote once.")
    return judges


def _options(text: str | None) -> tuple[str | None, float | None]:
    effort, temperature = None, None
    for part in (text or "").split("&"):
        name, _, value = part.partition("=")
        if name == "effort" and value:
            effort = value
        elif name == "temperature" and re.fullmatch(r"\d+(\.\d+)?", value):
            temperature = float(value)
        elif part:
            raise InputError(f"{part!r} is no option of a judge; effort=WORD and temperature=NUMBER are.")
    return effort, temperature


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{_without_credentials(url)!r} is no server address; it begins with http or https.")
    if parts.username or parts.password:
        raise InputError(
            f"The address {_without_credentials(url)!r} must hold no user or password; "
            "a key comes from the environment (COMPATIBLE_API_KEY for a compatible server)."
        )
    return url.rstrip("/")


def _without_credentials(text: str) -> str:
    return re.sub(r"//[^/]*@", "//", text)
