"""The share of each head's variance that a concept explains.

Take one concept and one head with direct effects x_i (vectors). Group the scenes by the concept's value;
scenes without the concept are a group too. Then eta^2 = sum over groups n_g |mean_g - mean|^2 / sum over
scenes |x_i - mean|^2. Random groups give (groups - 1) / (n - 1) on average, so the share is adjusted R^2,
    1 - (1 - eta^2) (n - 1) / (n - groups),
whose mean is 0 for random groups.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccs.heads import Head
from ccs.model.model import Model
from ccs.synthetic import Scene, draw, scene
from research.world.head_lessons import CONCEPTS, value_of

CARDS = range(810_000, 813_000)
CARRIED = (*CONCEPTS, "Gender", "Skin tones", "Hair", "People")
_AT_ONCE = 500


def shown_value(concept: str, s: Scene) -> str:
    """Return the value of a concept that a scene shows, or "" if none.

    Args:
        concept: One of CARRIED.
        s: The scene.
    """
    people = {"Gender": s.gender, "Skin tones": s.skin_tone, "Hair": s.hair, "People": s.gender and "person"}
    return people[concept] if concept in people else value_of(concept, s)


def share(effects: NDArray[np.floating], values: NDArray[np.str_]) -> NDArray[np.float64]:
    """Compute the share of each head's variance that a concept's values explain.

    Args:
        effects: Direct effects [n, heads, D].
        values: Value of the concept in each scene [n].
    """
    n = len(effects)
    groups, codes = np.unique(values, return_inverse=True)
    centered = effects.astype(np.float64) - effects.mean(axis=0, dtype=np.float64)
    members = (codes == np.arange(len(groups))[:, None]).astype(np.float64)  # [groups, n]
    means = np.einsum("gn,nhd->ghd", members, centered) / members.sum(1)[:, None, None]
    between = np.einsum("g,ghd->h", members.sum(1), means**2)
    eta = between / np.einsum("nhd,nhd->h", centered, centered)
    return np.asarray(1 - (1 - eta) * (n - 1) / (n - len(groups)))


def measured(model: Model) -> dict[Head, dict[str, float]]:
    """Return head -> concept -> explained share of the variance, over held-out scenes."""
    scenes = [scene(seed) for seed in CARDS]
    parts = [
        model.contributions([draw(s) for s in scenes[i : i + _AT_ONCE]], model.heads).direct
        for i in range(0, len(scenes), _AT_ONCE)
    ]
    effects = np.concatenate(parts)
    shares = {
        concept: share(effects, np.array([shown_value(concept, s) for s in scenes])) for concept in CARRIED
    }
    return {
        head: {concept: round(float(values[row]), 3) for concept, values in shares.items()}
        for row, head in enumerate(model.heads)
    }
