"""The cost of requests: a dated table of prices, estimates before sending, and a budget."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from ccs.errors import InputError
from ccs.judges.provider import Request, Usage

_TABLE = Path(__file__).with_name("prices.json")
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_OVERHEAD = 64  # tokens of a message's framing
_ANSWER = 40  # tokens of a reason of 15 words with its verdict and the JSON around it
DEFAULT_LEAST = 1.0
"""Dollars that any run may spend: a request must fit with the longest reply, which few have."""
_POLL = 0.02  # seconds between checks for room in the budget


class Price(BaseModel, frozen=True):
    """US dollars per million input and output tokens."""

    input: _Dollars
    output: _Dollars

    def cost(self, usage: Usage) -> float:
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1e6


class Prices(BaseModel, frozen=True):
    """Prices by judge name ("openai:gpt-4o") as of `date` (of the user's own file, if one is given)."""

    date: str
    models: dict[str, Price]

    @classmethod
    def load(cls, override: Path | None = None) -> Prices:
        """The prices in prices.json, overridden by those in a file of the same form. Raises InputError."""
        known = Prices(date="", models={})
        for path in filter(None, (_TABLE, override)):
            try:
                own = cls.model_validate_json(path.read_bytes())
            except OSError as error:
                raise InputError(f"The price table {str(path)!r} cannot be read: {error.strerror}.") from None
            except ValidationError:
                raise InputError(
                    f"The price table {str(path)!r} is not of the form of ccs/judges/prices.json: "
                    'a date, and "models" with "input" and "output" of each, in dollars per million tokens.'
                ) from None
            known = Prices(date=own.date, models=known.models | own.models)
        return known

    def of(self, name: str) -> Price | None:
        """A judge's price, or None. A snapshot costs what its model does; a compatible server is free."""
        free = Price(input=0.0, output=0.0) if name.startswith("compatible:") else None
        return self.models.get(name) or self.models.get(_SNAPSHOT.sub("", name)) or free


def expected_usage(request: Request) -> Usage:
    """The expected tokens, without reasoning: a fourth of the input's characters, and some per answer."""
    answers = json.dumps(request.schema).count('"reason":')
    return Usage(_OVERHEAD + _size(request) // 4, _ANSWER * answers)


def largest_usage(request: Request, max_tokens: int) -> Usage:
    """An upper bound on a request's tokens: no tokenizer produces more tokens than bytes."""
    return Usage(_OVERHEAD + _size(request), max_tokens)


def _size(request: Request) -> int:
    return len((request.system + request.user + json.dumps(request.schema)).encode())


def default_budget(expected: float) -> float:
    """Dollars that may be spent where the user names no budget: twice what is expected, or DEFAULT_LEAST."""
    return max(DEFAULT_LEAST, 2 * expected)


class Spending:
    """A running sum of US dollars against a limit: what was spent, and the most that is in flight.

    A request is sent only if the most it can cost still fits. A labeler, a panel and the models of a run may
    share one. limit: dollars; None for no limit, "estimated" for what `expect` is told.
    """

    def __init__(self, limit: float | Literal["estimated"] | None) -> None:
        self._by_estimate, self._expected = limit == "estimated", 0.0
        self.limit = DEFAULT_LEAST if limit == "estimated" else math.inf if limit is None else limit
        self.spent = 0.0
        self._in_flight = 0

    def expect(self, asked: Iterable[CostEstimate]) -> None:
        """Raise an estimated limit by what is about to be asked; to none where a price is not known."""
        if self._by_estimate:
            self._expected += sum(math.inf if math.isnan(one.dollars) else one.dollars for one in asked)
            self.limit = default_budget(self._expected)

    async def reserve(self, most: float) -> bool:
        """Add the most that a request may cost, once others leave room for it; False if it cannot fit."""
        while self.spent + most > self.limit:
            if not self._in_flight:
                return False
            await asyncio.sleep(_POLL)
        self.spent += most
        self._in_flight += 1
        return True

    def settle(self, most: float, cost: float) -> None:
        """Replace the most that a request could cost by what it did cost."""
        self.spent += cost - most
        self._in_flight -= 1


@dataclass(frozen=True)
class CostEstimate:
    """The cost of asking one judge. dollars: expected, without reasoning; at_most: with every attempt paid
    for and the longest replies. Both are NaN if the price is unknown.
    """

    judge: str
    requests: int
    dollars: float
    at_most: float

    @classmethod
    def total(cls, name: str, parts: Sequence[CostEstimate]) -> CostEstimate:
        """The cost of all parts, under a name; NaN with an unknown price among them."""
        asked = sum(one.requests for one in parts)
        return cls(name, asked, sum(one.dollars for one in parts), sum(one.at_most for one in parts))

    def times(self, n: int) -> CostEstimate:
        return CostEstimate(self.judge, n * self.requests, n * self.dollars, n * self.at_most)
