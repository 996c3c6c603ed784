"""What asking would take, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ccs.judges.cache import Cache
from ccs.judges.caller import Caller
from ccs.judges.prices import Prices, expected_usage, largest_usage
from ccs.judges.provider import Request


@dataclass(frozen=True)
class Estimate:
    """What one judge would be asked: questions, of them answered (cached) or in a batch (pending), and
    requests left.

    Tokens and dollars are what to expect of a model that does not reason before it answers; `most` is the
    bound that the budget is held against. Dollars are None where no price is known.
    """

    judge: str
    questions: int
    cached: int
    pending: int
    requests: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    most: float | None


def estimate(
    caller: Caller,
    requests: Mapping[str, Request],
    fresh: Collection[str],
    answer_tokens: Callable[[Request], int],
) -> Estimate:
    """Return what asking `requests` (by cache key) would take, those of `fresh` although they are cached."""
    settings = caller.settings
    waiting: Collection[str] = ()
    answered: Collection[str] = ()
    if settings.cache.exists():  # a dry run leaves no file behind
        with Cache(settings.cache) as cache:
            waiting = cache.pending(requests)
            answered = {k for k in requests if k not in fresh and k not in waiting and cache.get(k)}
    left = [request for key, request in requests.items() if key not in waiting and key not in answered]
    usages = [expected_usage(request, answer_tokens(request)) for request in left]
    dollars = most = None
    if (price := caller.price) is not None:
        batch = settings.batch and caller.provider.has_batches
        dollars = sum(price.cost(usage, batch=batch) for usage in usages)
        most = sum(price.cost(largest_usage(each, settings.max_tokens), batch=batch) for each in left)
    return Estimate(
        judge=caller.provider.name,
        questions=len(requests),
        cached=len(answered),
        pending=len(waiting),
        requests=len(left),
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        dollars=dollars,
        most=most,
    )


def estimate_table(estimates: Sequence[Estimate], prices: Prices) -> str:
    """Return estimates as lines of text, with a total and the date of the prices."""
    rows = [["judge", "cached", "in batch", "requests", "tokens in", "tokens out", "dollars", "at most"]]
    for each in estimates:
        counts = (each.cached, each.pending, each.requests, each.input_tokens, each.output_tokens)
        rows.append([each.judge, *(f"{n:,}" for n in counts), _dollars(each.dollars), _dollars(each.most)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)])
        for row in rows
    ]
    expected = sum(each.dollars or 0.0 for each in estimates)
    most = sum(each.most or 0.0 for each in estimates)
    lines.append(f"total {_dollars(expected)} dollars, at most {_dollars(most)} (prices of {prices.date})")
    if unknown := [each.judge for each in estimates if each.dollars is None]:
        lines.append(f"without {', '.join(unknown)}, whose prices are unknown")
    return "\n".join(lines)


def _dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:.4f}" if amount < 1 else f"{amount:.2f}"
