"""The cost of requests: prices, estimates before anything is sent, and a budget.

Prices come from the package genai-prices, whose table is part of the package and needs no network, and from a
file of the user's (`--prices`), which counts first. Only servers at a loopback address are free by default.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ccs.errors import InputError, require
from ccs.files import read_text
from ccs.judges import JudgeSpec
from ccs.judges.provider import Request, Usage

HUGGING_FACE = "router.huggingface.co"
"""The host of Hugging Face Inference Providers; a model's name there ends with ":PROVIDER"."""
_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_OVERHEAD_TOKENS = 64
"""Of a message's framing."""
_ANSWER_TOKENS = 40
"""Of a reason of 15 words with its verdict and the JSON around it."""
MIN_BUDGET = 1.0
"""Dollars that any run may spend: a request must fit with the longest reply, which is rare."""
_POLL_SECONDS = 0.02
"""Between checks for room in the budget."""


class Price(BaseModel, frozen=True):
    """US dollars per million input and output tokens."""

    input: _Dollars
    output: _Dollars

    def cost(self, usage: Usage) -> float:
        """Return the dollars for these tokens."""
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1e6


Cost = Callable[[Usage], float]
"""The dollars for the tokens of a request."""


def read_prices(path: Path | None) -> dict[str, Price]:
    """Read prices by judge name, such as "openai:gpt-4o" or "compatible:MODEL".

    Args:
        path: A JSON file such as `{"openai:gpt-4o": {"input": 2.5, "output": 10}}`, or None for no prices.

    Raises:
        InputError: The file can't be read or has another form.
    """
    try:
        return {} if path is None else TypeAdapter(dict[str, Price]).validate_json(read_text(path))
    except ValidationError as error:
        raise InputError(
            f"The price table {str(path)!r} is not valid ({error.errors()[0]['msg']}). {_form('NAME')}"
        ) from None


def find_cost(spec: JudgeSpec, prices: Mapping[str, Price]) -> Cost | None:
    """Look up the price of a judge.

    Args:
        spec: The judge.
        prices: The user's own prices.

    Returns:
        The cost by the user's price, or 0 for a compatible server at a loopback address, or the cost in the
        table of genai-prices, or None if the judge isn't there.
    """
    if spec.name in prices:
        return prices[spec.name].cost
    model = spec.model
    provider: dict[str, Any] = {"provider_id": spec.provider}
    if spec.provider == "compatible":
        if is_loopback(spec.base_url or ""):
            return lambda _: 0.0
        provider = {"provider_api_url": spec.base_url or ""}
        plain_model, _, host = spec.model.rpartition(":")
        if plain_model and f"//{HUGGING_FACE}/" in f"{spec.base_url}/":
            model, provider = plain_model, {"provider_id": f"huggingface_{host}"}
    require("judges", "genai_prices")
    import genai_prices

    def cost(usage: Usage) -> float:
        tokens = genai_prices.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        with warnings.catch_warnings(action="ignore"):  # on kinds of prices that plain tokens don't have
            return float(genai_prices.calc_price(tokens, model, **provider).total_price)

    with suppress(LookupError):
        cost(Usage())
        return cost
    return None


def no_price(spec: JudgeSpec) -> InputError:
    """Return the error for a judge that must have a price and has none."""
    server = f" at {spec.base_url}" if spec.base_url else ""
    return InputError(
        f"No price is known for {spec.name}{server}, so its cost can't be bounded. {_form(spec.name)} Use 0 "
        "for a server of your own; only loopback addresses (localhost) are free without a price. At "
        f"{HUGGING_FACE}, name the provider after the model, as in openai/gpt-oss-120b:groq."
    )


def _form(name: str) -> str:
    table = json.dumps({name: {"input": 1.5, "output": 6}})
    return f"Give prices in dollars per million tokens as --prices FILE, with a file such as {table}."


def is_loopback(url: str) -> bool:
    """Return True if the address of a server is of this machine."""
    host = ""
    with suppress(ValueError):
        host = urlsplit(url).hostname or ""
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def expected_usage(request: Request) -> Usage:
    """Estimate a request's tokens, without reasoning: a fourth of its characters, and some per answer."""
    answers = json.dumps(request.schema).count('"reason":')
    return Usage(_OVERHEAD_TOKENS + _size(request) // 4, _ANSWER_TOKENS * answers)


def largest_usage(request: Request, max_tokens: int) -> Usage:
    """Bound a request's tokens.

    Args:
        request: The request; no tokenizer makes more tokens than it has bytes.
        max_tokens: The longest reply.
    """
    return Usage(_OVERHEAD_TOKENS + _size(request), max_tokens)


def _size(request: Request) -> int:
    return len((request.system + request.user + json.dumps(request.schema)).encode())


class Spending:
    """US dollars against a limit: those spent, and the largest sum that is in flight.

    A request is sent only if the most it can cost still fits. A labeler, a panel, and the models of a run may
    share one.
    """

    def __init__(self, limit: float | Literal["estimated"] | None) -> None:
        """Start at 0.

        Args:
            limit: Dollars, None for no limit, or "estimated" for twice the sum that `expect` gets, or
                MIN_BUDGET if that is more.
        """
        self._by_estimate, self._estimated = limit == "estimated", 0.0
        self.limit = MIN_BUDGET if limit == "estimated" else math.inf if limit is None else limit
        self.spent = 0.0
        self._in_flight = 0

    def expect(self, estimates: Iterable[CostEstimate]) -> None:
        """Raise an estimated limit before requests are sent; an unknown price removes the limit."""
        if self._by_estimate:
            self._estimated += sum(part.dollars for part in estimates)
            self.limit = math.inf if math.isnan(self._estimated) else max(MIN_BUDGET, 2 * self._estimated)

    async def reserve(self, dollars: float) -> bool:
        """Reserve what a request may cost, once others leave room for it. Returns False if it can't fit."""
        while self.spent + dollars > self.limit:
            if not self._in_flight:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        self.spent += dollars
        self._in_flight += 1
        return True

    def settle(self, reserved: float, cost: float) -> None:
        """Replace what a request could cost by its cost.

        Args:
            reserved: The dollars reserved for it.
            cost: The dollars it cost.
        """
        self.spent += cost - reserved
        self._in_flight -= 1


@dataclass(frozen=True)
class CostEstimate:
    """The cost of one judge's requests, before they are sent.

    Attributes:
        judge: The judge's name.
        requests: The number of requests.
        dollars: The expected cost, without reasoning; NaN if the price is unknown.
    """

    judge: str
    requests: int
    dollars: float

    @classmethod
    def total(cls, name: str, parts: Sequence[CostEstimate]) -> CostEstimate:
        """Add estimates up.

        Args:
            name: The name of the sum.
            parts: The estimates.
        """
        return cls(name, sum(part.requests for part in parts), sum(part.dollars for part in parts))
