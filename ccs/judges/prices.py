"""What requests cost: a dated table of prices, estimates before sending, and a budget that holds."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccs.errors import InputError
from ccs.judges.provider import Request, Usage

_TABLE = Path(__file__).with_name("prices.json")
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_OVERHEAD = 64  # tokens of a message's framing


@dataclass(frozen=True)
class Price:
    """US dollars for a million input and output tokens; `batch_factor` scales both in a batch."""

    input: float
    output: float
    batch_factor: float = 1.0

    def cost(self, usage: Usage, *, batch: bool = False) -> float:
        dollars = (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1e6
        return dollars * self.batch_factor if batch else dollars


@dataclass(frozen=True)
class Prices:
    """Prices by judge name ("openai:gpt-4o"), as of `date` (of the user's own file, if one was given)."""

    date: str
    models: Mapping[str, Price]

    @classmethod
    def load(cls, override: Path | None = None) -> Prices:
        """Read prices.json, and over it a file of the same form. Raises InputError for a file amiss."""
        date, models = _read(_TABLE)
        if override is not None:
            date, own = _read(override)
            models |= own
        return cls(date, models)

    def of(self, name: str) -> Price | None:
        """Return a judge's price, or None if unknown. A dated snapshot costs what its model costs; a
        compatible server is the user's own and free, unless the user's file says otherwise."""
        price = self.models.get(name) or self.models.get(_SNAPSHOT.sub("", name))
        return Price(0.0, 0.0) if price is None and name.startswith("compatible:") else price


def _read(path: Path) -> tuple[str, dict[str, Price]]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        factor = _amount(table.get("batch_factor", 0.5))
        models = {
            str(name): Price(_amount(entry["input"]), _amount(entry["output"]), factor)
            for name, entry in table["models"].items()
        }
        return str(table["date"]), models
    except OSError as error:
        raise InputError(f"The price table {str(path)!r} cannot be read: {error.strerror}.") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InputError(
            f"The price table {str(path)!r} is not of the form of ccs/judges/prices.json: a date, and for "
            'each model under "models" its "input" and "output" in dollars a million tokens.'
        ) from None


def _amount(value: Any) -> float:
    amount = float(value)
    if not (math.isfinite(amount) and amount >= 0):
        raise ValueError(amount)
    return amount


def expected_usage(request: Request, words: int) -> Usage:
    """Estimate a request's tokens: four characters a token in, `words` tokens of answer out.

    A model that reasons before it answers uses more output.
    """
    return Usage(_OVERHEAD + _size(request) // 4, words)


def largest_usage(request: Request, max_tokens: int) -> Usage:
    """Return a bound on a request's tokens: no tokenizer makes more tokens than bytes."""
    return Usage(_OVERHEAD + _size(request), max_tokens)


def _size(request: Request) -> int:
    return len((request.system + request.user + json.dumps(request.schema)).encode())


class Spending:
    """What a run may spend, has spent, and has promised to requests in flight, in US dollars.

    A request is sent only if the most it can cost still fits, so the budget is never exceeded. One object may
    serve a labeler and a panel, so that they share the budget.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = math.inf if limit is None else limit
        self.spent = 0.0
        self._promised = 0.0
        self._waiting: list[asyncio.Event] = []

    async def promise(self, amount: float, *, wait: bool = True) -> bool:
        """Set `amount` aside; False if it does not fit. With `wait`, requests in flight may make room."""
        while self.spent + self._promised + amount > self.limit:
            if self._promised == 0 or not wait:
                return False
            event = asyncio.Event()
            self._waiting.append(event)
            await event.wait()
        self._promised += amount
        return True

    def settle(self, promised: float, actual: float) -> None:
        """Turn a promise into what was really spent."""
        self._promised = max(0.0, self._promised - promised)
        if self._promised < 1e-9:
            self._promised = 0.0
        self.spent += actual
        for event in self._waiting:
            event.set()
        self._waiting.clear()
