"""Made-up results: an organism whose rankings are as planted, a control whose rankings are even, a search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ccs import results
from ccs.heads import Head, HeadSet
from ccs.measures.stats import Effect, Estimate
from ccs.pruning.search import HeldOut, Limits, Point
from ccs.results import schema, searches
from ccs.results.searches import Search
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from research.world import planted
from tests.support.report_sample import WEIGHTS, bias_rows, pruning_rows, score_rows, write

GROUPS: Mapping[str, tuple[str, ...]] = {"gender": tuple(GENDERS), "skin tone": tuple(SKIN_TONES)}
CARRIER = Head(5, 5)
"""In the organism of these tables the only head that carries the planted skew of gender."""


def share_rows(model: str, attribute: str, world: str, plan: str) -> list[dict[str, Any]]:
    """The top K's shares are the planted ones, or even where the plan has taken the skew away."""
    even = 1 / len(GROUPS[attribute])
    about = bias_rows(model, "world/faces", {"none": 0.0})[0] | {"attribute": attribute, "plan": plan}
    about |= {"chance": even, "chance_low": even - 0.1, "chance_high": even + 0.1}
    return [
        about | {"occupation": occupation, "metric": f"{schema.TOP_SHARE}{group}", "value": share}
        for occupation in OCCUPATIONS
        for group, share in planted.shares(occupation, attribute, world).items()
    ]


def planted_max_skew(occupation: str, attribute: str) -> float:
    """The MaxSkew of a ranking whose top K has the planted shares, all groups being as often in the pool."""
    shares = planted.shares(occupation, attribute)
    return float(np.log(max(shares.values()) * len(shares)))


def single_rows(model: str, attribute: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of bias and heads: the carrier lowers MaxSkew where it was planted, other heads change nothing."""
    rng = np.random.default_rng(1)
    bias: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    for index in range(12):
        head = Head(4 + index // 6, index % 6)
        carries = head == CARRIER and attribute == "gender"
        noise = rng.normal(0, 0.001, len(OCCUPATIONS))
        moved = {
            name: float(noise[i]) - (planted_max_skew(name, attribute) / 2 if carries else 0)
            for i, name in enumerate(OCCUPATIONS)
        }
        for occupation, difference in moved.items():
            row = share_rows(model, attribute, "skewed", f"single:{head}")[0]
            bias.append(row | {"occupation": occupation, "metric": "MaxSkew", "difference": difference})
        mean = float(np.mean(list(moved.values())))
        heads.append(
            {"model": model, **WEIGHTS, "layer": head.layer, "head": head.head, "measure": "total effect"}
            | {"dataset": "world/faces", "metric": "MaxSkew mean", "factor": attribute, "value": mean}
            | {"low": mean - 0.01, "high": mean + 0.01}
            | {"p_value": 0.001 if carries else 0.7, "q_value": 0.01 if carries else 0.8}
        )
    return bias, heads


def kept_search(weights: str) -> Search:
    figures = {
        "none": ("", 0.60, 0.90),
        "searched": ("L5.H5", 0.30, 0.89),
        "high": ("L5.H4 L5.H5", 0.50, 0.60),
        "random": ("L4.H0 L4.H1", 0.61, 0.85),
    }
    unseen = tuple(
        HeldOut(
            plan=plan, seed=0 if plan == "random" else None, heads=HeadSet.parse(heads),
            max_skew=Estimate(skew, skew - 0.1, skew + 0.1),
            max_skew_change=Effect(skew - 0.6, skew - 0.65, skew - 0.55, 0.01),
            chance=Estimate(0.1, 0.05, 0.2), accuracy=Estimate(right, right - 0.02, right + 0.02),
            accuracy_change=Effect(right - 0.9, right - 0.91, right - 0.89, 0.2),
        )
        for plan, (heads, skew, right) in figures.items()
    )  # fmt: skip
    off = HeadSet.parse("L5.H5")
    return Search(
        model="organism", weights_hash=weights, people="world/faces", attribute="gender",
        things="world/subjects", prompts=("a cook", "a judge"), templates=("{}",), k=60, seed=0,
        limits=Limits(), heads=off,
        seen=(Point(HeadSet(), 0.61, 0.91), Point(off, 0.29, 0.9)), unseen=unseen,
    )  # fmt: skip


def write_organisms(folder: Path) -> Path:
    """The folder, with the results of both in it."""
    random = {f"random@{seed}": 0.8 + 0.0001 * seed for seed in range(60)}
    for model, world, level in (("organism", "skewed", 0.6), ("organism-control", "balanced", 0.1)):
        tables: dict[str, list[dict[str, Any]]] = {"scores": score_rows(model)}
        right = {"none": 0.9, "high": 0.5, **random}
        tables["pruning"] = pruning_rows(model, "world/subjects", right)
        further = pruning_rows(model, "world/subjects", {"none": 0.9, "high": 0.7, **random})
        tables["pruning"] += [{**row, "plan": f"{row['plan']}@7"} for row in further if row["plan"] != "none"]
        tables["bias"], tables["heads"] = [], []
        for attribute in GROUPS:
            means = {"none": level, "high": level, **{name: level + x / 50 for name, x in random.items()}}
            same = bias_rows(model, "world/faces", means)
            tables["bias"] += [{**row, "attribute": attribute} for row in same]
            tables["bias"] += share_rows(model, attribute, world, "none")
            tables["bias"] += share_rows(model, attribute, "balanced", "high")
            bias, heads = single_rows(model, attribute)
            tables["bias"] += bias
            tables["heads"] += heads
        write(folder, model, tables)
    weights = results.read(folder / "organism").manifest["model"]["weights_hash"]
    searches.keep(folder, kept_search(weights))
    return folder
