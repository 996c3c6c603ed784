"""Rows of the tables effects, correlations and heads: direct beside total effects.

Total effect: a head's output is zero in the forward pass (soft-pruning), and later layers see it and react.
Direct effect: its contribution is subtracted from the finished image embedding, which is then made unit
again; later layers do not react (Gandelsman et al. 2024). Every figure says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from batch.compute.embed import read_plan
from batch.compute.stages import Stage
from ccs.heads import Head, HeadSet
from ccs.measures import ranking, stats
from ccs.plans import Plan, PlanName
from ccs.results import queries

Row = dict[str, Any]


def _main(rows: Iterable[Row], single: bool) -> list[tuple[PlanName, Row]]:
    """The rows of pruning and bias whose change is an effect, of single heads or of plans of several."""
    named = [(PlanName.parse(row["plan"]), row) for row in rows if queries.is_main_figure(row)]
    return [(plan, row) for plan, row in named if plan.kind != "none" and (plan.kind == "single") == single]


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


def plan_effects(direct: Iterable[Row], total: Iterable[Row]) -> list[Row]:
    """A row for each plan (but `none` and single heads), set and metric of which both effects are known.

    direct, total: rows of the tables pruning and bias, with contributions subtracted and with heads at zero.
    """

    def named(row: Row) -> tuple[Any, ...]:
        return row["plan"], row["seed"], row["dataset"], row["metric"], row.get("attribute", "")

    known = {named(row): row for _, row in _main(total, single=False)}
    found = []
    for _, row in _main(direct, single=False):
        if (other := known.get(named(row))) is not None:
            made = {key: row[key] for key in ("plan", "seed", "heads", "n_heads", "dataset", "metric")}
            made["factor"] = row.get("attribute", "")
            for name, side in (("direct", row), ("total", other)):
                made |= {name: side["difference"], f"{name}_p_value": side["p_value"]}
                made |= {f"{name}_{end}": side[f"difference_{end}"] for end in ("low", "high")}
            found.append(made)
    return found


def head_effects(rows: Iterable[Row], kind: str) -> list[Row]:
    """Effects of single heads from the rows of their plans, with the false discovery rate over the heads.

    kind: `total effect` for rows of heads at zero in the forward pass, `direct effect` for rows of their
    contributions subtracted.
    """
    families: dict[tuple[str, str, str], list[Row]] = {}
    for plan, row in _main(rows, single=True):
        head = Head.parse(plan.argument)
        family = row["dataset"], row["metric"], row.get("attribute", "")
        families.setdefault(family, []).append(
            {"layer": head.layer, "head": head.head, "measure": kind, "dataset": family[0]}
            | {"metric": family[1], "factor": family[2], "value": row["difference"], "chance": 0.0}
            | {"low": row["difference_low"], "high": row["difference_high"], "p_value": row["p_value"]}
        )
    for found in families.values():
        known = [np.nan if row["p_value"] is None else row["p_value"] for row in found]
        for row, q_value in zip(found, stats.benjamini_hochberg(known), strict=True):
            row["q_value"] = float(q_value)
    return [row for found in families.values() for row in found]


def correlations(rows: Iterable[Row], seed: int) -> list[Row]:
    """Rows of the correlation of direct with total effects over single heads; from four heads."""
    sides: dict[tuple[str, str, str], dict[str, dict[Head, float]]] = {}
    for row in rows:
        here = sides.setdefault((row["dataset"], row["metric"], row["factor"]), {})
        here.setdefault(row["measure"], {})[Head(row["layer"], row["head"])] = row["value"]
    found = []
    for (dataset, metric, factor), both in sides.items():
        direct, total = both.get("direct effect", {}), both.get("total effect", {})
        if direct.keys() != total.keys() or len(direct) < 4:
            continue
        about = {"between": "direct and total effect", "dataset": dataset, "metric": metric, "factor": factor}
        x, y = ([effects[head] for head in sorted(direct)] for effects in (direct, total))
        for method in ("spearman", "pearson"):
            one = stats.correlation(x, y, method=method, seed=seed)  # resamples heads: of heads such as these
            found.append(about | {"method": method, "n": len(direct)} | asdict(one))
    return found
