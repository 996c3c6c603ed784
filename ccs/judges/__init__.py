"""Judges: language models by name, and the limits on requests to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urlsplit

from ccs.errors import InputError
from ccs.texts.labels import TAGS

DEFAULT_MODELS = {"openai": "gpt-6.1-terra", "anthropic": "claude-sonnet-5-5", "google": "gemini-3.8-flash"}
PROVIDERS = (*DEFAULT_MODELS, "compatible")
DEFAULT, STUDY = "default", "study"
_STUDY = (
    ("GPT-4o", "openai:gpt-4o", date(2027, 1, 14), "openai:gpt-5.4"),
    ("Gemini 1.5 Pro", "google:gemini-1.5-pro", date(2025, 9, 24), "google:gemini-2.5-pro"),
    (
        "Claude 3.5 Sonnet",
        "anthropic:claude-3-5-sonnet-20241022",
        date(2025, 10, 28),
        "anthropic:claude-sonnet-4-5",
    ),
)
"""The study's judges, the day on which each is shut down, and the priced model nearest to it in age."""
_SPEC = re.compile(r"(?P<provider>\w+)(:(?P<model>[^@?\s]+))?(@(?P<url>[^?\s]+))?(\?(?P<options>\S+))?")


@dataclass(frozen=True)
class JudgeSettings:
    """Limits of a run, the same for every judge of a panel. Times are in seconds.

    cache: SQLite file of answers. concurrency: requests in flight per judge. timeout: for one attempt as a
    whole. retries: attempts after the first; the wait doubles from `delay` on, with jitter. max_tokens: of a
    reply, hidden reasoning included; one that is cut off is asked for once more with twice as many. budget:
    most US dollars to spend, or None; it needs a price for every judge. prices: a JSON file, added to
    prices.json. repaired_examples: the labeler's worked examples without the misprints of the study's table
    1.
    """

    cache: Path = Path("judges.sqlite")
    concurrency: int = 8
    timeout: float = 120.0
    retries: int = 4
    delay: float = 1.0
    max_tokens: int = 4096
    budget: float | None = None
    prices: Path | None = None
    repaired_examples: bool = False

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
    """One model: `PROVIDER[:MODEL][@BASE_URL][?effort=low&temperature=0]`. `effort` and `temperature` are
    sent only if given, since models reject one or the other. `instead_of`: the study's judge that it stands
    for.
    """

    provider: str
    model: str
    base_url: str | None = None
    effort: str | None = None
    temperature: float | None = None
    instead_of: str = ""

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
    """A panel from judges separated by commas, of which "default" and "study" (`study_panel`) are three each.
    A stand-in stays a string. InputError for an empty panel and for a judge named twice.
    """
    judges: list[JudgeSpec | str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part == STUDY:
            judges += study_panel()
            continue
        named = DEFAULT_MODELS if part == DEFAULT else (part,)
        judges += [name if name == TAGS else JudgeSpec.parse(name) for name in named]
    names = [judge if isinstance(judge, str) else judge.name for judge in judges]
    if not names:
        raise InputError(f"The panel {text!r} is empty; name a judge, `default`, or {TAGS}.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The judge {name} is named twice in the panel; each judge can vote once.")
    return judges


def study_panel(today: date | None = None) -> list[JudgeSpec]:
    """The study's three judges by name; in place of one that is shut down, its nearest successor."""
    today = today or datetime.now(UTC).date()
    return [
        JudgeSpec.parse(own) if today < shut_down else replace(JudgeSpec.parse(successor), instead_of=name)
        for name, own, shut_down, successor in _STUDY
    ]


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
