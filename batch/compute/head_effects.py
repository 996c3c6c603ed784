"""Rows of the table heads: direct beside total effects.

Total effect: a head's output is zero in the forward pass (soft-pruning), and later layers see it and react.
Direct effect: its contribution is subtracted from the finished image embedding, which is then made unit
again; later layers do not react (Gandelsman et al. 2024). Every figure says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from batch.compute.embed import read_plan
from batch.compute.stages import Stage
from ccs.heads import HeadSet
from ccs.measures import ranking, stats
from ccs.plans import Plan, PlanName
from ccs.results import queries

Row = dict[str, Any]


def direct_embeddings(
    stage: Stage, kept: HeadSet, plans: Sequence[Plan], base: int
) -> Callable[[int], np.ndarray]:
    """Unit embeddings [n, D] of a plan, its heads' contributions subtracted.

    stage: embeddings of a set, with the contributions of the heads `kept`. base: the place of the plan with
    no head off. One head's contributions are in memory at a time, however many there are.
    """
    place = {head: index for index, head in enumerate(kept)}
    whole = read_plan(stage, base)
    return lambda index: ranking.subtracted(
        whole, (read_plan(stage, place[head], "direct") for head in plans[index].off)
    )


def head_effects(rows: Iterable[Row], kind: str) -> list[Row]:
    """Effects of single heads from the rows of their plans, with the false discovery rate over the heads.

    kind: `total effect` for rows of heads at zero in the forward pass, `direct effect` for rows of their
    contributions subtracted.
    """
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in filter(queries.is_main_figure, rows):
        if (head := PlanName.parse(row["plan"]).head) is None:
            continue
        family = row["dataset"], row["metric"], row.get("attribute", "")
        families.setdefault(family, []).append(
            {"layer": head.layer, "head": head.head, "measure": kind, "dataset": family[0]}
            | {"metric": family[1], "factor": family[2], "value": row["difference"]}
            | {"low": row["difference_low"], "high": row["difference_high"], "p_value": row["p_value"]}
        )
    for found in families.values():
        known = [np.nan if row["p_value"] is None else row["p_value"] for row in found]
        for row, q_value in zip(found, stats.benjamini_hochberg(known), strict=True):
            row["q_value"] = float(q_value)
    return [row for found in families.values() for row in found]
