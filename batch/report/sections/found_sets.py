"""The searches' results: the front of accuracy and bias, with high, low and random heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pandas as pd

from batch.report.document import Block, Chart, fill, slug
from batch.report.plots import plane
from batch.report.wording import at_ceiling, change, in_brackets
from ccs.results import Results
from ccs.results.searches import Search, beside
from ccs.search import HeldOut


def found_for(results: Results) -> tuple[tuple[Search, ...], str]:
    """The searches kept beside a model's results, and a notice if there are some that cannot be used."""
    weights = str(results.manifest["model"].get("weights_hash", ""))
    return beside(results.folder.parent, results.model, weights)


def search_blocks(results: Results) -> Iterator[Block]:
    """A model's searches: a table and a front for each."""
    found, notice = found_for(results)
    if found or notice:
        yield "### Search: few heads, less skew"
    if notice:
        yield notice
    for search in found:
        yield from _one(search)


def _one(search: Search) -> list[Block]:
    rows: list[dict[str, str]] = []
    points: list[dict[str, str | float]] = []
    for one in search.unseen:
        accuracy = 100 * one.accuracy.value
        rows.append(
            {
                "set": _name(one),
                "heads": str(one.heads) if len(one.heads) <= 6 else f"{len(one.heads)} heads",
                "mean MaxSkew": in_brackets(one.max_skew) + at_ceiling(one.full),
                "change of MaxSkew": change(one.max_skew_change) if one.heads else "–",
                "accuracy (%)": f"{accuracy:.1f}",
                "change of accuracy": change(one.accuracy_change, 100, 1) if one.heads else "–",
                "on the front": "✓" if one.front else "–",
            }
        )
        kind = "step of the search" if one.plan.startswith("step") else one.plan
        points.append({"name": f"{_name(one)}: {one.heads}", "series": kind})
        points[-1] |= {"x": accuracy, "y": one.max_skew.value}
    front = sorted((100 * one.accuracy.value, one.max_skew.value) for one in search.unseen if one.front)
    chance = search.unseen[0].chance.value
    level = ("chance", chance)
    chart = Chart(
        f"{slug(search.model)}-search-{slug(f'{search.people}-{search.attribute}')}",
        plane(pd.DataFrame(points), "accuracy (%)", "mean MaxSkew", front=front, level=level),
        f"{search.model}, {search.people}, {search.attribute}: each set on the half that the search did not "
        f"see. Better is right and low; the line joins the sets that no other beats; dots: the chance level, "
        f"{chance:.3f}.",
    )
    often = Counter(head for off in search.again for head in off)
    return fill(
        "search",
        search=search,
        outcome=outcome(search),
        sets=rows,
        chart=chart,
        often=[f"{head} {n}" for head, n in sorted(often.items(), key=lambda one: (-one[1], one[0]))],
        same=sum(off == search.heads for off in search.again),
    )


def _name(one: HeldOut) -> str:
    return f"{one.plan} {one.seed}" if one.plan == "random" else one.plan


def outcome(search: Search) -> str:
    """The search's outcome in a sentence or two."""
    by_plan = {one.plan: one for one in search.unseen}
    answer, high = by_plan.get("searched"), by_plan.get("high")
    if answer is None:
        return "No head helps within these limits."
    text = f"It found {answer.heads}: MaxSkew {_changes(answer)}."
    if high is not None:
        text += f" The {len(high.heads)} high heads: MaxSkew {_changes(high)}."
    for one in search.unseen:
        better = one.max_skew.value <= answer.max_skew.value and one.accuracy.value >= answer.accuracy.value
        if better and one.plan in ("high", "low", "random"):
            return f"{text} At no lower accuracy {_name(one)} does as well, so the search gained nothing."
    return text


def _changes(one: HeldOut) -> str:
    return f"{change(one.max_skew_change)}, accuracy {change(one.accuracy_change, 100, 1)} points"
