"""Judges: LLMs by name, and the limits on requests to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ccs.errors import InputError
from ccs.texts.labels import TAGS

DEFAULT_MODELS = {"openai": "gpt-6.1-terra", "anthropic": "claude-sonnet-5-5", "google": "gemini-3.8-flash"}
PROVIDERS = (*DEFAULT_MODELS, "compatible")
DEFAULT, PAPER = "default", "paper"
_PAPER_JUDGES = (
    ("GPT-4o", "openai:gpt-4o", date(2027, 1, 14), "openai:gpt-5.4"),
    ("Gemini 1.5 Pro", "google:gemini-1.5-pro", date(2025, 9, 24), "google:gemini-2.5-pro"),
    (
        "Claude 3.5 Sonnet",
        "anthropic:claude-3-5-sonnet-20241022",
        date(2025, 10, 28),
        "anthropic:claude-sonnet-4-5",
    ),
)
"""The paper's judges, the day on which each is shut down, and the model nearest to it in age."""
_SPEC = re.compile(r"(?P<provider>\w+)(:(?P<model>[^@?\s]+))?(@(?P<url>[^?\s]+))?(\?(?P<options>\S+))?")


@dataclass(frozen=True)
class JudgeSettings:
    """Limits of a run, the same for all judges of a panel.

    Attributes:
        cache: SQLite file of answers.
        concurrency: Requests in flight per judge.
        timeout: Seconds for one attempt.
        retries: Attempts after the first; the wait doubles from `delay` on, with jitter.
        delay: Seconds before the second attempt.
        max_tokens: Longest reply, hidden reasoning included.
        budget: US dollars that may be spent, or None; it needs a price for every judge.
        prices: A JSON file of prices, which override the known ones.
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
        positive = min(self.concurrency, self.timeout, self.max_tokens) > 0
        if not positive or min(self.retries, self.delay, self.budget or 0) < 0:
            raise InputError(f"{self} must have positive limits; retries, delay, and budget may be 0.")


@dataclass(frozen=True)
class JudgeSpec:
    """One model: `PROVIDER[:MODEL][@BASE_URL][?effort=low&temperature=0]`.

    `effort` and `temperature` are sent only if given, since some models reject one or the other.
    `instead_of` is the paper's judge whose place it takes.
    """

    provider: str
    model: str
    base_url: str | None = None
    effort: str | None = None
    temperature: float | None = None
    instead_of: str = ""

    @property
    def name(self) -> str:
        """The provider and the model."""
        return f"{self.provider}:{self.model}"

    @classmethod
    def parse(cls, text: str) -> JudgeSpec:
        """Read one judge's name from the command line. Raises InputError."""
        match = _SPEC.fullmatch(text.strip())
        safe_text = re.sub(r"//[^/]*@", "//", text.strip())  # without a password
        if match is None or match["provider"] not in PROVIDERS:
            raise InputError(
                f"{safe_text!r} is not a judge; a judge is {TAGS} or "
                f"PROVIDER:MODEL, where PROVIDER is {', '.join(PROVIDERS[:-1])} or {PROVIDERS[-1]}."
            )
        provider, url = match["provider"], match["url"]
        model = match["model"] or DEFAULT_MODELS.get(provider)
        if model is None or (provider == "compatible" and url is None):
            raise InputError(
                f"The judge {safe_text!r} is incomplete; a compatible server is named with its model and "
                "address, as in compatible:llama3.1:8b@http://localhost:11434/v1."
            )
        parts = urlsplit(url or "http://none")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise InputError(
                f"{safe_text!r} has no server address after @: it begins with http:// or https://, and holds "
                "no user or password; a key comes from the environment (COMPATIBLE_API_KEY)."
            )
        options = dict(parse_qsl(match["options"] or "", keep_blank_values=True))
        effort, temperature = options.pop("effort", None), options.pop("temperature", None)
        if options or effort == "" or not re.fullmatch(r"\d+(\.\d+)?", temperature or "0"):
            raise InputError(
                f"{match['options']!r} are no options of a judge; use effort=WORD or temperature=NUMBER."
            )
        if provider == "anthropic" and temperature is not None:
            raise InputError(f"The judge {provider}:{model} takes no temperature: the API rejects it.")
        number = None if temperature is None else float(temperature)
        return cls(provider, model, url and url.rstrip("/"), effort, number)


def parse_panel(text: str) -> list[JudgeSpec | str]:
    """Read a panel: judges separated by commas, where "default" and "paper" (`paper_panel`) name three.

    Returns:
        The judges; the judge `tags` stays a string.

    Raises:
        InputError: The panel is empty, or names a judge twice.
    """
    judges: list[JudgeSpec | str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part == PAPER:
            judges += paper_panel()
            continue
        specs = DEFAULT_MODELS if part == DEFAULT else (part,)
        judges += [spec if spec == TAGS else JudgeSpec.parse(spec) for spec in specs]
    names = [judge if isinstance(judge, str) else judge.name for judge in judges]
    if not names:
        raise InputError(f"The panel {text!r} is empty; name a judge, `default`, or {TAGS}.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The judge {name} is named twice in the panel; each judge can vote once.")
    return judges


def paper_panel(today: date | None = None) -> list[JudgeSpec]:
    """Return the paper's three judges, each replaced by its nearest successor once it is shut down."""
    today = today or datetime.now(UTC).date()
    return [
        JudgeSpec.parse(spec) if today < shut_down else replace(JudgeSpec.parse(successor), instead_of=name)
        for name, spec, shut_down, successor in _PAPER_JUDGES
    ]
