"""What each head of a model of the drawn world is selective for, and whether CCS goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccs.heads import Head
from ccs.model.model import Model
from ccs.results import Results, queries
from ccs.texts.concepts import tree
from ccs.world import Scene, drawn_sets
from research.world.correlations import Correlated, with_ccs
from research.world.selectivity import measure

FILE = Path(__file__).with_name("selectivity.parquet")
"""The measured shares of the two organisms; columns: model, weights, layer, head, factor, value, low, high,
chance, p_value, q_value."""
SCENES = 1_000
_PERMUTATIONS = 100
FACTORS: Mapping[str, tuple[str, ...]] = {
    "Colors": ("color",),
    "Patterns": ("pattern",),
    "Textures": ("pattern",),
    "Places": ("place",),
    "Symbols": ("subject",),
    "Backgrounds": ("backdrop",),
    "Ambiance": ("weather",),
    "Styles": ("style",),
    "Professions": ("occupation",),
    "Gender": ("gender",),
    "Ages": ("age",),
    "Hair": ("hair",),
    "Skin tones": ("skin_tone",),
    "People": ("occupation", "gender", "skin_tone", "hair", "age", "kind"),
    "Animals": ("subject",),
    "Nature": ("subject",),
    "Food": ("subject",),
    "Objects": ("subject",),
    "Text": ("kind", "subject"),
    "Counts": ("count",),
}
"""Factors of a drawn scene that a concept names; a concept not listed takes those of its nearest ancestor."""
OWN = "the factor that its label names"
BEST = "its strongest factor"


def factors(scenes: tuple[Scene, ...]) -> dict[str, np.ndarray]:
    """Name of a factor -> str array [scenes], "" where one does not apply.

    `backdrop` joins color, pattern and place: what is behind the subject.
    """
    names = [field.name for field in fields(Scene) if field.name != "seed"] + ["backdrop"]
    return {name: np.array([str(getattr(one, name)) for one in scenes]) for name in names}


def measured(model: Model, n: int = SCENES) -> pd.DataFrame:
    """The shares of each head's variance that the factors of `n` scenes explain, as rows of FILE."""
    images: Any = drawn_sets.image_set(n).images
    found = measure(
        model.contributions(list(images), model.heads).direct,
        list(model.heads),
        factors(images.scenes),
        draws=_PERMUTATIONS,
    )
    rows = []
    for one in found.values():
        figures = {"value": one.values, "low": one.low, "high": one.high, "chance": one.chance}
        figures |= {"p_value": one.p_values, "q_value": one.q_values}
        for place, head in enumerate(one.heads):
            row = {"layer": head.layer, "head": head.head, "factor": one.factor}
            rows.append(row | {name: float(values[place]) for name, values in figures.items()})
    about = {"model": model.name, "weights": model.weights_hash[:16]}
    return pd.DataFrame([about | row for row in rows])


def kept(model: Model, file: Path = FILE) -> pd.DataFrame:
    """`measured`, or what the file holds of these weights; it is extended."""
    held = pd.read_parquet(file) if file.exists() else pd.DataFrame({"model": [], "weights": []})
    own = held[held["weights"] == model.weights_hash[:16]]
    if len(own):
        return own
    own = measured(model)
    pd.concat([held[held["model"] != model.name], own]).to_parquet(file, index=False)
    return own


def factors_of(concept: str | None) -> tuple[str, ...]:
    """The scene's factors that a label names, by the concept or its nearest ancestor that has any."""
    while concept:
        if concept in FACTORS:
            return FACTORS[concept]
        concept = tree().parents.get(concept)
    return ()


def with_selectivity(results: Results, shares: pd.DataFrame) -> list[Correlated]:
    """CCS with the selectivity for what the label names, and with the largest of all factors.

    shares: rows of FILE, of which those of the results' weights count.
    """
    scores = queries.head_scores(results)
    weights = str(results.manifest["model"]["weights_hash"])[:16]
    frame = shares[shares["weights"] == weights]
    if not len(frame) or not scores:
        return []
    largest: dict[str, dict[Head, float]] = {OWN: {}, BEST: {}}
    for _, row in frame.iterrows():
        head, share = Head(row["layer"], row["head"]), row["value"]
        is_own = head in scores and row["factor"] in factors_of(scores[head].label)
        for name in (OWN, BEST) if is_own else (BEST,):
            largest[name][head] = max(share, largest[name].get(head, share))
    return [with_ccs(name, results, found) for name, found in largest.items()]
