"""The natural track: models that learned a skew by CLIP's own loss, in which nobody chose the heads.

The truth is graded: each head's Shapley share of the gap between groups (`research/natural`), measured on
faces that the benchmark does not show. A ranking of heads has two figures. Its *area* is the MaxSkew that
goes on the half which the method did not see, with the first heads off, the mean over CUTS, as a share of
what goes with the truth's first heads off (as the faithfulness curves of the Mechanistic Interpretability
Benchmark, arXiv 2504.13151). Its *agreement* is the weighted rank correlation with the truth (Vigna 2015,
arXiv 1404.3325), in which the heads that carry most weigh most; it needs no MaxSkew, and 0 is chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import weightedtau

from ccs.benchmark import variants
from ccs.benchmark.protocol import Subject, names_any, rankings, reached
from ccs.heads import Head, HeadSet
from ccs.locate.base import Method

PREFIX = "organism-natural-"
TRUTH = "Shapley shares"
"""The truth in the place of a method."""
CUTS = (1, 2, 4, 8)
"""How many heads are off."""
FIGURES = ("area", "agreement", "max_skew_taken", "accuracy_lost")
"""The last two with as many heads off as the largest of CUTS."""
CELLS, IDLE = (Path(__file__).with_name(f"{name}_cells.parquet") for name in ("natural", "idle"))
CARRIED = 0.5
"""The least share of the gap in all heads together with which there is something to find."""

Shares = Mapping[str, Mapping[Head, float]]
"""Attribute -> head -> its Shapley share of the gap between groups."""


def located(
    models: str | Path = "natural", known: Callable[[str], Mapping[str, Any]] | None = None
) -> tuple[str, ...]:
    """The models whose heads carry a learned skew, or of which something else is `known`, in order.

    models: "natural", those that come with this package, or a folder of such files.
    """
    if models == "natural":
        every = tuple(name for name in variants.names() if name.startswith(PREFIX))
    else:
        every = tuple(map(str, sorted(Path(models).glob(f"*{variants.SUFFIX}"))))
    return tuple(name for name in every if (known or truth)(name))


def place(name: str) -> tuple[str, Path | None]:
    """The name and folder of a model that is named, or that a path names."""
    path = Path(name)
    return (path.stem, path.parent) if name.endswith(variants.SUFFIX) else (name, None)


def truth(name: str) -> Shares:
    """The attributes whose skew heads carry, with each head's share. Raises InputError for another model."""
    found = {
        attribute: {Head.parse(part): share for part, share in known["shapley"].items() if ".H" in part}
        for attribute, known in variants.known(*place(name))["truth"].items()
    }
    return {attribute: shares for attribute, shares in found.items() if sum(shares.values()) >= CARRIED}


def idle(name: str) -> dict[str, Mapping[Head, float]]:
    """The attributes whose skew no head carries: there was none to learn, or MLPs alone learned."""
    known = variants.known(*place(name))["truth"]
    return {one: {} for one, own in known.items() if not any(".H" in part for part in own["shapley"])}


def cells(
    subject: Subject,
    shares: Mapping[Head, float],
    attribute: str,
    seed: int,
    methods: Mapping[str, Method],
    failed: dict[str, str],
) -> list[dict[str, Any]]:
    """The cells of one model, attribute and split; methods that fail are added to `failed`."""
    evidence, unseen = subject.split(attribute, seed)
    orders, passes = rankings(evidence, methods, seed, failed)
    best = tuple(sorted(shares, key=lambda head: -shares[head]))
    orders, passes = {TRUTH: best, **orders}, {TRUTH: 0.0, **passes}
    wanted = {HeadSet(order[:cut]) for order in orders.values() for cut in CUTS}
    sets = [HeadSet(), *sorted(wanted, key=str)]
    found = dict(zip(sets, reached(subject.model, unseen, sets), strict=True))
    before = found[HeadSet()]

    def taken(order: Sequence[Head], cut: int) -> float:
        return before.max_skew - found[HeadSet(order[:cut])].max_skew

    most = float(np.mean([taken(best, cut) for cut in CUTS]))
    rows = []
    for name, order in orders.items():
        after = found[HeadSet(order[: CUTS[-1]])]
        rows.append(
            {
                "method": name,
                "area": float(np.mean([taken(order, cut) for cut in CUTS])) / most,
                "agreement": agreement(order, shares),
                "max_skew_taken": before.max_skew - after.max_skew,
                "accuracy_lost": before.accuracy - after.accuracy,
                "passes": passes[name],
                "took": most,
                "named": names_any(evidence, order),
                "heads": " ".join(map(str, order)),
            }
        )
    return rows


def idle_cells(
    subject: Subject,
    nobody: Mapping[Head, float],
    attribute: str,
    seed: int,
    methods: Mapping[str, Method],
    failed: dict[str, str],
) -> list[dict[str, Any]]:
    """The cells of a model in which no head carries a skew of the attribute: is one named all the same?"""
    evidence, _ = subject.split(attribute, seed)
    orders, passes = rankings(evidence, methods, seed, failed)
    rows = []
    for name, order in orders.items():
        named = names_any(evidence, order)
        row = {"method": name, "alarm": float(named), "passes": passes[name], "took": 1.0}
        rows.append(row | {"named": named, "heads": " ".join(map(str, order))})
    return rows


def agreement(order: Sequence[Head], shares: Mapping[Head, float]) -> float:
    """The weighted rank correlation (-1 to 1) of an order with the shares, weighted by the shares' ranks."""
    by_place = np.array([shares[head] for head in order])
    ranks = np.empty(len(order), np.intp)
    ranks[np.argsort(-by_place, kind="stable")] = np.arange(len(order))
    return float(weightedtau(-np.arange(len(order)), by_place, rank=ranks).statistic)
