"""What requests cost: a dated table of prices, estimates before sending, and a budget that holds."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import BaseModel, Field, ValidationError

from ccs.errors import InputError
from ccs.judges.provider import Request, Usage

_TABLE = Path(__file__).with_name("prices.json")
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_OVERHEAD = 64  # tokens of a message's framing
_ANSWER = 40  # tokens of a reason of 15 words with its verdict and the JSON around it
_POLL = 0.02  # seconds between looks at whether the budget has room again


class Price(BaseModel, frozen=True):
    """US dollars per million input and output tokens."""

    input: _Dollars
    output: _Dollars

    def cost(self, usage: Usage) -> float:
        """Return what this usage costs, in US dollars."""
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1e6


class Prices(BaseModel, frozen=True):
    """Prices by judge name ("openai:gpt-4o"), as of `date` (the user's own file's, if one was given)."""

    date: str
    models: dict[str, Price]

    @classmethod
    def load(cls, override: Path | None = None) -> Prices:
        """Read prices.json, and over it a file of the same form. Raises InputError for an unusable file."""
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
        """Return a judge's price, or None if unknown. A dated snapshot costs what its model costs; a
        compatible server is the user's own and free, unless the user's file says otherwise."""
        free = Price(input=0.0, output=0.0) if name.startswith("compatible:") else None
        return self.models.get(name) or self.models.get(_SNAPSHOT.sub("", name)) or free


def expected_usage(request: Request) -> Usage:
    """Estimate a request's tokens: four characters each in, and a fixed number out for each verdict or label.

    A model that reasons before it answers uses more output.
    """
    answers = json.dumps(request.schema).count('"reason":')
    return Usage(_OVERHEAD + _size(request) // 4, _ANSWER * answers)


def largest_usage(request: Request, max_tokens: int) -> Usage:
    """Return an upper bound on a request's tokens: no tokenizer makes more tokens than bytes."""
    return Usage(_OVERHEAD + _size(request), max_tokens)


def _size(request: Request) -> int:
    return len((request.system + request.user + json.dumps(request.schema)).encode())


class Spending:
    """US dollars that a run may spend, has spent, and has promised to requests in flight.

    A request is sent only if the most it can cost still fits, so the budget is never exceeded. One object may
    serve a labeler and a panel, so that they share the budget.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = math.inf if limit is None else limit
        self.spent = 0.0
        self._promised: list[float] = []

    async def promise(self, amount: float) -> bool:
        """Reserve `amount`, waiting for requests in flight to make room; False if it does not fit."""
        while self.spent + sum(self._promised) + amount > self.limit:
            if not self._promised:
                return False
            await asyncio.sleep(_POLL)
        self._promised.append(amount)
        return True

    def settle(self, promised: float, actual: float) -> None:
        """Replace a promise by what was really spent."""
        self._promised.remove(promised)
        self.spent += actual


@dataclass(frozen=True)
class CostEstimate:
    """What one judge would be asked, and for how much: questions, those cached, and requests left to send.

    Tokens and dollars are what to expect of a model that does not reason before it answers; `at_most` is the
    bound that the budget is checked against. Dollars are None where no price is known.
    """

    judge: str
    questions: int
    cached: int
    requests: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    at_most: float | None


def estimate_table(estimates: Sequence[CostEstimate], prices: Prices) -> str:
    """Return estimates as lines of text, with a total and the date of the prices."""
    table = pd.DataFrame([asdict(each) for each in estimates]).rename(
        columns=lambda name: name.replace("_", " ")
    )
    dollars = "{:,.4f}".format
    lines = [table.to_string(index=False, na_rep="unknown", float_format=dollars)]
    expected, most = table["dollars"].sum(), table["at most"].sum()
    lines.append(f"total {dollars(expected)} dollars, at most {dollars(most)} (prices of {prices.date})")
    if unknown := [each.judge for each in estimates if each.dollars is None]:
        lines.append(f"without {', '.join(unknown)}, whose prices are unknown")
    return "\n".join(lines)
