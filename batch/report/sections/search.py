"""What searches found: the front of accuracy and bias, beside high, low and random heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batch.report.figures import plane
from batch.report.page import Block, Chart, Grid, Heading, Text
from batch.report.wording import change, in_brackets
from ccs.results import Results
from ccs.results.searches import Search, beside
from ccs.search import HeldOut


def found_for(results: Results) -> tuple[tuple[Search, ...], str]:
    """The searches kept beside a model's results, and a notice where there are some that cannot be used."""
    weights = str(results.manifest["model"].get("weights_hash", ""))
    return beside(results.folder.parent, results.model, weights)


def search_blocks(key: str, results: Results) -> Iterator[Block]:
    """A model's searches: a table and a front each. `key` begins the charts' names."""
    found, notice = found_for(results)
    if found or notice:
        yield Heading(3, "Search: few heads, less skew")
    if notice:
        yield Text(notice)
    for search in found:
        yield from _one(key, search)


def _one(key: str, search: Search) -> Iterator[Block]:
    limits = search.limits
    yield Text(
        f"**{search.people}, {search.attribute}**: the smallest set of heads that lowers the mean MaxSkew "
        f"of {len(search.prompts)} prompts at a loss of at most {100 * limits.max_loss:g} points of "
        f"accuracy on {search.things} (`python -m batch.search`). Chosen on one half of prompts and "
        f"pictures; every figure below is of the other half. {said(search)}"
    )
    rows = [
        [
            name_of(one),
            str(one.heads) if len(one.heads) <= 6 else f"{len(one.heads)} heads",
            in_brackets(one.max_skew),
            change(one.max_skew_change) if one.heads else "–",
            f"{100 * one.accuracy.value:.1f}",
            change(one.accuracy_change, 100, 1) if one.heads else "–",
            "✓" if one.front else "–",
        ]
        for one in search.unseen
    ]
    columns = ["set", "heads", "mean MaxSkew", "its change", "accuracy (%)", "its change", "on the front"]
    yield Grid(columns, rows, "", frozenset({"heads"}))
    points = [
        (f"{name_of(one)}: {one.heads}", 100 * one.accuracy.value, one.max_skew.value, kind_of(one))
        for one in search.unseen
    ]
    front = sorted((100 * one.accuracy.value, one.max_skew.value) for one in search.unseen if one.front)
    chance = search.unseen[0].chance.value
    what = "".join(letter if letter.isalnum() else "-" for letter in f"{search.people}-{search.attribute}")
    yield Chart(
        f"{key}-search-{what}".lower(),
        plane(points, "accuracy (%)", "mean MaxSkew", front=front, level=("chance", chance)),
        f"{search.model}, {search.people}, {search.attribute}: each set on the half that the search did not "
        f"see. Better is right and low; the line joins the sets that no other beats; dots: the chance level, "
        f"{chance:.3f}.",
    )


def name_of(one: HeldOut) -> str:
    """The set's name; random sets have their seed."""
    return f"{one.plan} {one.seed}" if one.plan == "random" else one.plan


def kind_of(one: HeldOut) -> str:
    """What the set is in the chart: the search's own steps are one kind."""
    return "step of the search" if one.plan.startswith("step") else one.plan


def _plan(search: Search, name: str) -> HeldOut | None:
    return next((one for one in search.unseen if one.plan == name), None)


def said(search: Search) -> str:
    """The search's outcome in a sentence or two."""
    answer, high = _plan(search, "searched"), _plan(search, "high")
    if answer is None:
        return "No head helps within these limits."
    text = (
        f"It found {answer.heads}: MaxSkew {change(answer.max_skew_change)}, accuracy "
        f"{change(answer.accuracy_change, 100, 1)} points."
    )
    if high is not None:
        text += (
            f" The {len(high.heads)} high heads: {change(high.max_skew_change)} and "
            f"{change(high.accuracy_change, 100, 1)} points."
        )
    beaten = _beaten_by(answer, [one for one in search.unseen if one.plan in ("high", "low", "random")])
    if beaten:
        text += f" At no lower accuracy {beaten} does as well, so the search gained nothing over it."
    return text


def _beaten_by(answer: HeldOut, others: Sequence[HeldOut]) -> str:
    better = (
        one
        for one in others
        if one.max_skew.value <= answer.max_skew.value and one.accuracy.value >= answer.accuracy.value
    )
    return next((name_of(one) for one in better), "")
