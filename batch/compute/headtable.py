"""Rows of the table heads: a single head's effect, direct and total, and what the head is selective for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batch.compute.effecttable import main_figures
from batch.compute.embed import Embedder, read_plan
from batch.compute.settings import Settings
from batch.compute.stages import Store, digest
from ccs.datasets.sets import ImageSet
from ccs.heads import Head
from ccs.measures import stats
from ccs.measures.selectivity import Selectivity, measure

Row = dict[str, Any]
SCENES = 1000
_DEALS = 100


def effects_of(rows: Sequence[Row], measure: str) -> list[Row]:
    """Effects of single heads from the rows of their plans, with the false discovery rate over the heads.

    measure: `total effect` for rows of heads at zero in the forward pass, `direct effect` for rows of their
    contributions subtracted.
    """
    found: list[Row] = []
    for row in main_figures(rows):
        if not row["plan"].startswith("single:"):
            continue
        head = Head.parse(row["plan"].removeprefix("single:"))
        found.append(
            {"layer": head.layer, "head": head.head, "measure": measure, "dataset": row["dataset"]}
            | {"metric": row["metric"], "factor": row.get("attribute", ""), "value": row["difference"]}
            | {"low": row["difference_low"], "high": row["difference_high"], "chance": 0.0}
            | {"p_value": row["p_value"], "q_value": None}
        )
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in found:
        families.setdefault((row["dataset"], row["metric"], row["factor"]), []).append(row)
    for family in families.values():
        known = [np.nan if row["p_value"] is None else row["p_value"] for row in family]
        for row, q_value in zip(family, stats.benjamini_hochberg(known), strict=True):
            row["q_value"] = float(q_value)
    return found


def selectivity(store: Store, embedder: Embedder, images: ImageSet, settings: Settings) -> list[Row]:
    """How much of each head's variance each factor of the drawn scenes explains; nothing for other images."""
    from ccs.world.sets import Drawn, factors

    if not isinstance(images.images, Drawn):
        return []
    few = images.images.scenes[:SCENES]
    scenes = replace(
        images, name="world/factors", images=Drawn(few), fingerprint=f"{images.fingerprint} {len(few)}"
    )
    heads = embedder.model.heads
    inputs = {
        "embeddings": digest(embedder.plans_inputs(scenes, [], heads)),
        "seed": settings.seed,
        "draws": _DEALS,
    }
    stage = store.stage("selectivity", inputs)
    if not stage.done:
        embedded = embedder.plans(scenes, [], heads)
        stage.begin()

        def work() -> None:
            parts = np.stack([read_plan(embedded, index, "direct") for index in range(len(heads))], axis=1)
            found = measure(parts, list(heads), factors(scenes), draws=_DEALS, seed=settings.seed)
            stage.write_json(0, [row for one in found.values() for row in _selective(one)])

        store.processes.once(work)
        stage.finish()
        embedded.discard()
    rows: list[Row] = stage.read_json()
    return rows


def _selective(found: Selectivity) -> list[Row]:
    return [
        {"layer": head.layer, "head": head.head, "measure": "selectivity", "dataset": "world/factors"}
        | {"metric": "", "factor": found.factor, "value": float(found.values[i]), "low": float(found.low[i])}
        | {"high": float(found.high[i]), "chance": float(found.chance[i])}
        | {"p_value": float(found.p_values[i]), "q_value": float(found.q_values[i])}
        for i, head in enumerate(found.heads)
    ]
