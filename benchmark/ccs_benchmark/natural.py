"""The natural track: models that learned a bias through CLIP's own loss, in heads that nobody chose.

The ground truth is each head's Shapley share of the gap between groups (`research/natural`), measured on
faces that the benchmark doesn't use. A ranking of heads has three scores:

- *Gap share*, the primary score: the reduction of the group score gap by ablating its first heads, as a share
of
  the reduction by the ground truth's first heads. It is the mean over CUTS, on fresh faces and unseen
  prompts, as in the faithfulness curves of the Mechanistic Interpretability Benchmark (arXiv 2504.13151).
- *Area*: the same for MaxSkew. MaxSkew has a ceiling, so in some models this is a ratio of small numbers.
- *Agreement*: the weighted rank correlation with the ground truth (Vigna 2015, arXiv 1404.3325). Heads with
  larger shares have larger weights. It needs no ablation, and 0 is chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import weightedtau

from ccs.analysis.task import Task
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs_benchmark import variants
from ccs_benchmark.protocol import Orders, reached

PREFIX = "organism-natural-"
TRUTH = "Shapley shares"
"""The ground truth's name in the cells."""
CUTS = (1, 2, 4, 8)
"""Numbers of ablated heads."""
FIGURES = ("gap_share", "agreement", "area", "max_skew_taken", "accuracy_lost")
"""The last two are measured with the largest of CUTS."""
CELLS = Path(__file__).with_name("cells") / "natural.parquet"
CARRIED = 0.5
"""Minimum share of the gap that all heads together carry; with less, there is nothing to find."""

Shares = Mapping[str, Mapping[Head, float]]
"""Attribute -> head -> its Shapley share of the gap between groups."""


def located() -> tuple[str, ...]:
    """Return the models of this package whose heads carry a learned bias."""
    return tuple(name for name in variants.names() if name.startswith(PREFIX) and truth(name))


def truth(name: str) -> Shares:
    """Return the attributes whose bias heads carry, with each head's share; InputError for another model."""
    all_shares = {
        attribute: {Head.parse(part): share for part, share in known["shapley"].items() if ".H" in part}
        for attribute, known in variants.known(name)["truth"].items()
    }
    return {attribute: shares for attribute, shares in all_shares.items() if sum(shares.values()) >= CARRIED}


def best(shares: Mapping[Head, float]) -> tuple[Head, ...]:
    """Rank heads by falling share."""
    return tuple(sorted(shares, key=lambda head: -shares[head]))


def figures(
    model: Model, unseen: Task, shares: Mapping[Head, float], orders: Orders, names_head: Mapping[str, bool]
) -> dict[str, dict[str, float]]:
    """Compute FIGURES of each order of heads on fresh faces and unseen prompts.

    Args:
        model: A model with a learned bias.
        unseen: Fresh faces, unseen prompts, and control images.
        shares: Head -> Shapley share.
        orders: Method -> its ranking of heads, including TRUTH.
        names_head: Unused. The measures of all tracks have the same parameters.

    Returns:
        Method -> score -> value. `took` is the share of the gap that ablating the ground truth's first heads
        removes.
    """
    sets = [HeadSet(), *sorted({HeadSet(order[:cut]) for order in orders.values() for cut in CUTS}, key=str)]
    by_set = dict(zip(sets, reached(model, unseen, sets), strict=True))
    before = by_set[HeadSet()]

    def reductions(order: Sequence[Head], score: str) -> NDArray[np.float64]:
        """Compute the reduction of a score for each of CUTS.

        Args:
            order: A ranking of heads.
            score: A field of `Reached`.
        """
        return np.array(
            [getattr(before, score) - getattr(by_set[HeadSet(order[:cut])], score) for cut in CUTS]
        )

    skews, gaps = (
        {name: reductions(order, score) for name, order in orders.items()} for score in ("max_skew", "gap")
    )
    return {
        name: {
            "gap_share": gaps[name].mean() / gaps[TRUTH].mean(),
            "agreement": agreement(order, shares),
            "area": skews[name].mean() / skews[TRUTH].mean(),
            "max_skew_taken": skews[name][-1],
            "accuracy_lost": before.accuracy - by_set[HeadSet(order[: CUTS[-1]])].accuracy,
            "took": gaps[TRUTH][-1] / before.gap,
        }
        for name, order in orders.items()
    }


def agreement(order: Sequence[Head], shares: Mapping[Head, float]) -> float:
    """Compute the weighted rank correlation (-1 to 1) of a ranking with the shares.

    Args:
        order: A ranking of heads.
        shares: Head -> Shapley share, whose ranks are the weights.
    """
    by_place = np.array([shares[head] for head in order])
    ranks = np.empty(len(order), np.intp)
    ranks[np.argsort(-by_place, kind="stable")] = np.arange(len(order))
    return float(weightedtau(-np.arange(len(order)), by_place, rank=ranks).statistic)
