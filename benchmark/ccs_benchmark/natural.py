"""The natural track: models that learned a skew by CLIP's own loss, in which nobody chose the heads.

The truth is graded: each head's Shapley share of the gap between groups (`research/natural`), measured on
faces that the benchmark does not show. A ranking of heads has two figures. Its *area* is the MaxSkew that
goes on the half which the method did not see, with the first heads off, the mean over CUTS, as a share of
what goes with the truth's first heads off (as the faithfulness curves of the Mechanistic Interpretability
Benchmark, arXiv 2504.13151). Its *agreement* is the weighted rank correlation with the truth (Vigna 2015,
arXiv 1404.3325), in which the heads that carry most weigh most; it needs no MaxSkew, and 0 is chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import weightedtau

from ccs.analysis.task import Task
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs_benchmark import variants
from ccs_benchmark.protocol import Orders, reached

PREFIX = "organism-natural-"
TRUTH = "Shapley shares"
"""The truth in the place of a method."""
CUTS = (1, 2, 4, 8)
"""How many heads are off."""
FIGURES = ("area", "agreement", "max_skew_taken", "accuracy_lost")
"""The last two with as many heads off as the largest of CUTS."""
CELLS = Path(__file__).with_name("cells") / "natural.parquet"
CARRIED = 0.5
"""The least share of the gap in all heads together with which there is something to find."""

Shares = Mapping[str, Mapping[Head, float]]
"""Attribute -> head -> its Shapley share of the gap between groups."""


def located() -> tuple[str, ...]:
    """The models of this package whose heads carry a learned skew."""
    return tuple(name for name in variants.names() if name.startswith(PREFIX) and truth(name))


def truth(name: str) -> Shares:
    """The attributes whose skew heads carry, with each head's share. Raises InputError for another model."""
    found = {
        attribute: {Head.parse(part): share for part, share in known["shapley"].items() if ".H" in part}
        for attribute, known in variants.known(name)["truth"].items()
    }
    return {attribute: shares for attribute, shares in found.items() if sum(shares.values()) >= CARRIED}


def best(shares: Mapping[Head, float]) -> tuple[Head, ...]:
    """The heads that carry most first: the order of TRUTH."""
    return tuple(sorted(shares, key=lambda head: -shares[head]))


def figures(
    model: Model, unseen: Task, shares: Mapping[Head, float], orders: Orders, named: Mapping[str, bool]
) -> dict[str, dict[str, float]]:
    """The figures of each order of heads on the half that was not seen, of which TRUTH is one."""
    wanted = {HeadSet(order[:cut]) for order in orders.values() for cut in CUTS}
    sets = [HeadSet(), *sorted(wanted, key=str)]
    found = dict(zip(sets, reached(model, unseen, sets), strict=True))
    before = found[HeadSet()]

    def taken(order: Sequence[Head], cut: int) -> float:
        return before.max_skew - found[HeadSet(order[:cut])].max_skew

    areas = {name: float(np.mean([taken(order, cut) for cut in CUTS])) for name, order in orders.items()}
    most = areas[TRUTH]
    return {
        name: {
            "area": areas[name] / most,
            "agreement": agreement(order, shares),
            "max_skew_taken": taken(order, CUTS[-1]),
            "accuracy_lost": before.accuracy - found[HeadSet(order[: CUTS[-1]])].accuracy,
            "took": most,
        }
        for name, order in orders.items()
    }


def agreement(order: Sequence[Head], shares: Mapping[Head, float]) -> float:
    """The weighted rank correlation (-1 to 1) of an order with the shares, weighted by the shares' ranks."""
    by_place = np.array([shares[head] for head in order])
    ranks = np.empty(len(order), np.intp)
    ranks[np.argsort(-by_place, kind="stable")] = np.arange(len(order))
    return float(weightedtau(-np.arange(len(order)), by_place, rank=ranks).statistic)
