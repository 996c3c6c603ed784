"""Rows of the tables effects and correlations: direct effects beside total ones.

Direct: the contributions of a plan's heads are subtracted from the finished embeddings. Total: the heads'
outputs are zero in the forward pass, and later layers react (see `ccs.effects`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from batch.compute.embed import read_plan
from batch.compute.stages import Stage
from ccs.heads import Head, HeadSet
from ccs.measures import effects
from ccs.measures.stats import Effect
from ccs.plans import Plan

Row = dict[str, Any]
FIGURES = ("top1", "MaxSkew mean")
"""The metrics whose changes are effects: one for what a model can do, one for its bias."""


def main_figures(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of the tables pruning and bias that hold one of FIGURES over all classes, correctly measured."""
    for row in rows:
        if row["metric"] in FIGURES and not row.get("subset") and row.get("mode") != "as-published":
            yield row


def direct_embeddings(
    stage: Stage, kept: HeadSet, plans: Sequence[Plan], base: int
) -> Callable[[int], np.ndarray]:
    """Unit embeddings [n, D] of a plan, its heads' contributions subtracted.

    stage: embeddings of a set, with the contributions of the heads `kept`. base: the place of the plan with
    no head off. One head's contributions are in memory at a time, however many there are.
    """
    place = {head: index for index, head in enumerate(kept)}
    whole = read_plan(stage, base)

    def embeddings(index: int) -> np.ndarray:
        off = plans[index].off
        return effects.subtracted(whole, (read_plan(stage, place[head], "direct") for head in off))

    return embeddings


def plan_effects(direct: Iterable[Row], total: Iterable[Row]) -> list[Row]:
    """A row for each plan (but `none` and single heads), set and metric of which both effects are known.

    direct, total: rows of the tables pruning and bias, with contributions subtracted and with heads at zero.
    """
    known = {_figure(row): row for row in main_figures(total)}
    found = []
    for row in main_figures(direct):
        if row["plan"] == "none" or row["plan"].startswith("single:") or _figure(row) not in known:
            continue
        found.append(
            {key: row[key] for key in ("plan", "seed", "heads", "n_heads", "dataset", "metric")}
            | {"factor": row.get("attribute", "")}
            | _effect("direct", row)
            | _effect("total", known[_figure(row)])
        )
    return found


def _figure(row: Row) -> tuple[Any, ...]:
    return row["plan"], row["seed"], row["dataset"], row["metric"], row.get("attribute", "")


def _effect(name: str, row: Row) -> Row:
    return {
        name: row["difference"],
        f"{name}_low": row["difference_low"],
        f"{name}_high": row["difference_high"],
        f"{name}_p_value": row["p_value"],
    }


def correlations(rows: Iterable[Row], seed: int) -> list[Row]:
    """Of direct with total effects over single heads, from rows of the table heads; four heads at least."""
    sides: dict[tuple[str, str, str], dict[str, dict[Head, Effect]]] = {}
    for row in rows:
        here = sides.setdefault((row["dataset"], row["metric"], row["factor"]), {})
        effect = Effect(row["value"], row["low"], row["high"], row["p_value"])
        here.setdefault(row["measure"], {})[Head(row["layer"], row["head"])] = effect
    found = []
    for (dataset, metric, factor), both in sides.items():
        direct, total = both.get("direct effect", {}), both.get("total effect", {})
        if direct.keys() != total.keys() or len(direct) < 4:
            continue
        about = {"between": "direct and total effect", "dataset": dataset, "metric": metric, "factor": factor}
        found += [
            about
            | {"method": method, "value": one.value, "low": one.low, "high": one.high}
            | {"p_value": one.p_value, "n": len(direct)}
            for method, one in effects.agreement(direct, total, seed=seed).items()
        ]
    return found
