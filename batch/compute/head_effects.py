"""Rows of the table heads: total effects. A head is off, and later layers react."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ccs.measures import stats
from ccs.plans import PlanName
from ccs.results import queries

Row = dict[str, Any]


def head_effects(rows: Iterable[Row]) -> list[Row]:
    """Effects of single heads from the rows of their plans, with the false discovery rate over the heads."""
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in filter(queries.is_main_figure, rows):
        if (head := PlanName.parse(row["plan"]).head) is None:
            continue
        family = row["dataset"], row["metric"], row.get("attribute", "")
        families.setdefault(family, []).append(
            {"layer": head.layer, "head": head.head, "measure": "total effect", "dataset": family[0]}
            | {"metric": family[1], "factor": family[2], "value": row["difference"]}
            | {"low": row["difference_low"], "high": row["difference_high"], "p_value": row["p_value"]}
        )
    for found in families.values():
        known = [np.nan if row["p_value"] is None else row["p_value"] for row in found]
        for row, q_value in zip(found, stats.benjamini_hochberg(known), strict=True):
            row["q_value"] = float(q_value)
    return [row for found in families.values() for row in found]
