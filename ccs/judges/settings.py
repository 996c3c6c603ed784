"""Which models judge, and under which limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ccs.errors import InputError

DEFAULT_MODELS = {
    "openai": "gpt-6.1-terra",
    "anthropic": "claude-sonnet-5-5",
    "google": "gemini-3.8-flash",
}
PROVIDERS = (*DEFAULT_MODELS, "compatible")
DEFAULT_PANEL = ",".join(DEFAULT_MODELS)
TAGS = "tags"

_SPEC = re.compile(r"(?P<provider>\w+)(:(?P<model>[^@?\s]+))?(@(?P<url>[^?\s]+))?(\?(?P<options>\S+))?")


@dataclass(frozen=True)
class JudgeSettings:
    """Limits of a run, the same for every judge of a panel. Times are in seconds.

    cache: SQLite file of answers and batches; on a local disk, as it uses write-ahead logging.
    concurrency, per_minute: requests in flight, and started in a minute (None: no limit), a judge.
    timeout: for one attempt as a whole, so that a reply that trickles in ends too.
    retries: further attempts after the first; the wait doubles from `delay` up to `max_delay`, with jitter.
    max_wait: the longest Retry-After obeyed; a server that asks for more leaves the question unscored.
    max_tokens: ceiling on a reply, hidden reasoning included.
    budget: US dollars this run may spend at most, or None. Needs a price for every judge.
    prices: a JSON file that adds to or replaces prices.json.
    refresh: judges (by name or provider) and heads (by key) to ask anew, or "all".
    batch: submit to the providers' batch APIs and collect on a later run.
    """

    cache: Path = Path("judges.sqlite")
    concurrency: int = 8
    per_minute: int | None = None
    timeout: float = 120.0
    retries: int = 4
    delay: float = 1.0
    max_delay: float = 60.0
    max_wait: float = 300.0
    max_tokens: int = 4096
    budget: float | None = None
    prices: Path | None = None
    refresh: tuple[str, ...] = ()
    batch: bool = False
    batch_size: int = 1000

    def __post_init__(self) -> None:
        for name in ("concurrency", "timeout", "max_tokens", "batch_size"):
            if not getattr(self, name) > 0:
                raise InputError(f"The judges' {name} is {getattr(self, name)}, but must be above 0.")
        for name in ("retries", "delay", "max_delay", "max_wait"):
            if not getattr(self, name) >= 0:
                raise InputError(f"The judges' {name} is {getattr(self, name)}, but must not be negative.")
        if self.per_minute is not None and self.per_minute <= 0:
            raise InputError(f"The judges' limit a minute is {self.per_minute}, but must be above 0.")
        if self.budget is not None and not self.budget >= 0:
            raise InputError(f"The budget is {self.budget}, but must not be negative.")


@dataclass(frozen=True)
class JudgeSpec:
    """One model: `PROVIDER[:MODEL][@BASE_URL][?effort=low&temperature=0]`.

    `effort` and `temperature` are sent only where given: several current models reject a temperature, older
    ones an effort.
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
        """Read one judge as the command line names it. Raises InputError."""
        match = _SPEC.fullmatch(text.strip())
        if match is None or match["provider"] not in PROVIDERS:
            raise InputError(
                f"{_without_credentials(text.strip())!r} names no judge; a judge is {TAGS} or "
                f"PROVIDER:MODEL, where PROVIDER is {', '.join(PROVIDERS[:-1])} or {PROVIDERS[-1]}."
            )
        provider, url = match["provider"], match["url"]
        model = match["model"] or DEFAULT_MODELS.get(provider)
        if model is None or (provider == "compatible" and url is None):
            raise InputError(
                f"The judge {_without_credentials(text.strip())!r} is incomplete; a compatible server is "
                "named with its model and address, as in compatible:llama3.1:8b@http://localhost:11434/v1."
            )
        if provider == "anthropic" and (match["options"] or "").count("temperature"):
            raise InputError(f"The judge {provider}:{model} takes no temperature: the API rejects it.")
        effort, temperature = _options(match["options"])
        return cls(provider, model, None if url is None else _address(url), effort, temperature)


def parse_panel(text: str) -> list[JudgeSpec | str]:
    """Read a panel: judges separated by commas; "default" is one model of each of the three providers.

    A stand-in stays the string it is. Raises InputError for an empty panel and a judge named twice.
    """
    judges: list[JudgeSpec | str] = []
    for part in text.split(","):
        if part.strip() == "default":
            judges += [JudgeSpec.parse(provider) for provider in DEFAULT_MODELS]
        elif part.strip() == TAGS:
            judges.append(TAGS)
        elif part.strip():
            judges.append(JudgeSpec.parse(part))
    names = [judge if isinstance(judge, str) else judge.name for judge in judges]
    if not names:
        raise InputError(f"The panel {text!r} names no judge; name at least one, or `default`, or {TAGS}.")
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
