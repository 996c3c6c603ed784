"""Judges: LLMs by name, and the limits on requests to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import parse_qsl

from ccs.errors import InputError
from ccs.texts.labels import TAGS

DEFAULT_MODELS = {"openai": "gpt-6.1-terra", "anthropic": "claude-sonnet-5-5", "google": "gemini-3.8-flash"}
PROVIDERS = (*DEFAULT_MODELS, "compatible")
DEFAULT, PAPER = "default", "paper"
_PAPER_JUDGES = (
    ("GPT-4o", "openai", "gpt-4o", date(2027, 1, 14), "gpt-5.4"),
    ("Gemini 1.5 Pro", "google", "gemini-1.5-pro", date(2025, 9, 24), "gemini-2.5-pro"),
    ("Claude 3.5 Sonnet", "anthropic", "claude-3-5-sonnet-20241022", date(2025, 10, 28), "claude-sonnet-4-5"),
)
"""The paper's judges, the day on which each is shut down, and the model nearest to it in age."""
_OPTION = r"(effort=\w+|temperature=\d+(\.\d+)?)"
_SPEC = re.compile(
    rf"(?P<provider>{'|'.join(PROVIDERS)})(:(?P<model>[^@?\s]+))?"
    rf"(@(?P<url>https?://(\[[\da-f:]+\]|[^/@:?\s]+)(:\d+)?(/[^@?\s]*)?))?"
    rf"(\?(?!(?P<name>\w+)=[^&]*&(?P=name)=)(?P<options>{_OPTION}(&{_OPTION})?))?"  # each once
)


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
        positive = all(limit > 0 for limit in (self.concurrency, self.timeout, self.max_tokens))  # not NaN
        if not positive or not all(limit >= 0 for limit in (self.retries, self.delay, self.budget or 0)):
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
        provider, model, url, options = (
            match.group("provider", "model", "url", "options") if match else [""] * 4
        )
        model = model or DEFAULT_MODELS.get(provider)
        if not model or (provider == "compatible" and not url) or (provider == "anthropic" and options):
            safe_text = re.sub(r"//[^/]*@", "//", text.strip())  # without a password
            raise InputError(
                f"{safe_text!r} is not a judge; a judge is {TAGS} or PROVIDER[:MODEL][@URL][?effort=WORD&"
                f"temperature=NUMBER], where PROVIDER is {', '.join(PROVIDERS[:-1])} or {PROVIDERS[-1]}. The "
                "last needs a model and a URL, as in compatible:llama3.1:8b@http://localhost:11434/v1, and "
                "a key from the environment (COMPATIBLE_API_KEY). anthropic takes no effort or temperature."
            )
        values = dict(parse_qsl(options or ""))
        temperature = float(values["temperature"]) if "temperature" in values else None
        return cls(provider, model, url and url.rstrip("/"), values.get("effort"), temperature)


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
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"The judge {twice[0]} is named twice in the panel; each judge can vote once.")
    return judges


def paper_panel(today: date | None = None) -> list[JudgeSpec]:
    """Return the paper's three judges, each replaced by its nearest successor once it is shut down."""
    today = today or datetime.now(UTC).date()
    return [
        JudgeSpec(provider, model) if today < shut_down else JudgeSpec(provider, successor, instead_of=name)
        for name, provider, model, shut_down, successor in _PAPER_JUDGES
    ]
