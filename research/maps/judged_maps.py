"""Score patch maps by pixel masks, on scenes of the synthetic world.

An object's mask is the set of pixels that change if the scene is drawn without the object. The scores follow
Chefer et al. 2021 (arXiv 2012.09838), whose protocol Gandelsman et al. 2024 (arXiv 2310.05916) use for heads.
A map is interpolated to the image's size. Average precision is over pixels, per image. For mIoU, pixels above
the map's mean are the predicted object; intersection over union is summed over images, and averaged over
object and background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from ccs.analysis.evidence import READ_IMAGES, read_heads
from ccs.data.open import open_images
from ccs.heads import Head, HeadSet
from ccs.metrics.stats import Estimate, interval
from ccs.model.maps import attention, heatmap
from ccs.model.model import Model
from ccs.synthetic import Scene, draw, scene
from research.world.head_lessons import CONCEPTS, concept_texts, factor_of, value_of

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
FIRST = 830_000
"""First seed of the scenes."""
LOOKS, LOOKS_OWN = "attention, last layer", "attention, heads of the concept"
WHOLE, CONTRAST = "text direction, all heads", "text minus mean text, all heads"
OWN, RANDOM = "text minus mean text, heads of the concept", "text minus mean text, random heads"
BEST = "ground truth by patch"
METHODS = (LOOKS, WHOLE, CONTRAST, LOOKS_OWN, OWN, RANDOM, BEST)
"""BEST isn't a method: it is the mask at the resolution of patches, an upper bound."""
SETS, DRAWS = 20, 1_000
"""Number of random sets of heads, and of bootstrap resamples of the scenes."""


def mask(s: Scene, concept: str) -> Bools:
    """Return the mask [height, width] of a concept's object in a scene.

    Args:
        s: The scene.
        concept: One of CONCEPTS.
    """
    without_object: dict[str, Any] = {factor_of(concept): ""}
    changed: Bools = (np.asarray(draw(s)) != np.asarray(draw(replace(s, **without_object)))).any(-1)
    return changed


def cards(concept: str, n: int) -> list[Scene]:
    """Return the first scenes with an object of a concept.

    Args:
        concept: One of CONCEPTS.
        n: Number of scenes.
    """
    return list(islice((s for s in map(scene, count(FIRST)) if value_of(concept, s)), n))


@dataclass(frozen=True)
class Judged:
    """Scores of one map, or of several random ones, on each of n scenes.

    Attributes:
        precision: Average precision of pixels [n], mean over the maps.
        cut: Intersection of object and background [n, 2], summed over the maps.
        union: Their union [n, 2], summed over the maps.
    """

    precision: Floats
    cut: Floats
    union: Floats

    def figures(self, weights: Floats) -> Floats:
        """Return mean average precision and mIoU [2, draws] for weights of the scenes [draws, n]."""
        overlap = (weights @ self.cut) / (weights @ self.union)
        return np.stack([weights @ self.precision / weights.sum(1), overlap.mean(1)])


def judge(maps: Sequence[NDArray[np.floating]], masks: Sequence[Bools]) -> Judged:
    """Score maps by masks.

    Args:
        maps: Maps of one or several methods for the same scenes, each [n, rows, columns].
        masks: Masks, each [height, width].
    """
    precision, cut, union = np.zeros(len(masks)), np.zeros((len(masks), 2)), np.zeros((len(masks), 2))
    for method_maps in maps:
        for i, object_pixels in enumerate(masks):
            values = enlarged(method_maps[i], object_pixels.shape)
            precision[i] += average_precision_score(object_pixels.ravel(), values.ravel()) / len(maps)
            above = values > values.mean()
            for side, (predicted, actual) in enumerate(((above, object_pixels), (~above, ~object_pixels))):
                cut[i, side] += (predicted & actual).sum()
                union[i, side] += (predicted | actual).sum()
    return Judged(precision, cut, union)


def enlarged(values: NDArray[np.floating], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Interpolate a map to every pixel.

    Args:
        values: The map [rows, columns].
        shape: Height and width.
    """
    tensor = torch.from_numpy(np.asarray(values, np.float32))[None, None]
    whole: NDArray[np.float32] = torch.nn.functional.interpolate(tensor, shape, mode="bilinear")[0, 0].numpy()
    return whole


def patches(object_pixels: Bools, grid: tuple[int, int]) -> Floats:
    """Compute the share of each patch that a mask covers.

    Args:
        object_pixels: The mask [height, width].
        grid: Rows and columns of patches.
    """
    rows, columns = grid
    cells = object_pixels.reshape(
        rows, object_pixels.shape[0] // rows, columns, object_pixels.shape[1] // columns
    )
    shares: Floats = cells.mean((1, 3))
    return shares


def labels(model: Model) -> Mapping[Head, str]:
    """Label each head by its texts, with the tag-based judge."""
    return {
        head: str(score.label)
        for head, score in read_heads(model, open_images("world", READ_IMAGES), "world").scores.items()
    }


def run(model: Model, of: Mapping[Head, str], n: int, concept: str) -> dict[str, Judged]:
    """Score each method on scenes that show a concept.

    Args:
        model: The model.
        of: Head -> its label.
        n: Number of scenes.
        concept: One of CONCEPTS.
    """
    scenes = cards(concept, n)
    images, masks = [draw(s) for s in scenes], [mask(s, concept) for s in scenes]
    texts = concept_texts(concept)
    rows = np.arange(n), [list(texts).index(value_of(concept, s)) for s in scenes]
    all_texts = [text for any_concept in CONCEPTS for text in concept_texts(any_concept).values()]
    apart = heatmap(model, images, list(texts.values()), against=all_texts, apart=True)[rows]
    mean = heatmap(model, images, model.embed_texts(all_texts).mean(0)[None])[:, 0]
    looks, heads = attention(model, images), list(model.heads)
    whole = apart.sum(1)
    maps_by_method = {
        LOOKS: [looks[:, [head.layer == heads[-1].layer for head in heads]].mean(1)],
        WHOLE: [whole + mean],
        CONTRAST: [whole],
        BEST: [np.stack([patches(pixels, (apart.shape[2], apart.shape[3])) for pixels in masks])],
    }
    if concept_heads := HeadSet(head for head, label in of.items() if label == concept):
        chosen = [head in concept_heads for head in heads]
        maps_by_method |= {LOOKS_OWN: [looks[:, chosen].mean(1)], OWN: [apart[:, chosen].sum(1)]}
        rng, others = np.random.default_rng(18), np.flatnonzero(~np.array(chosen))
        drawn = [rng.choice(others, min(len(concept_heads), len(others)), replace=False) for _ in range(SETS)]
        maps_by_method[RANDOM] = [apart[:, random_heads].sum(1) for random_heads in drawn]
    return {name: judge(maps, masks) for name, maps in maps_by_method.items()}


def figures(
    judged_by_concept: Mapping[str, Mapping[str, Judged]],
) -> dict[tuple[str, str], tuple[Estimate, Estimate]]:
    """Return average precision and mIoU by (method, concept).

    The concept "mean" is the mean over the concepts that have all methods. Intervals are bootstraps over the
    scenes of a concept, with the same resamples for all methods.
    """
    out, drawn = {}, dict[tuple[str, str], Floats]()
    for place, (concept, methods) in enumerate(judged_by_concept.items()):
        n = len(next(iter(methods.values())).precision)
        weights = np.random.default_rng((19, place)).multinomial(n, np.full(n, 1 / n), DRAWS).astype(float)
        for name, judged in methods.items():
            drawn[name, concept] = judged.figures(np.concatenate([np.ones((1, n)), weights]))
    for name in METHODS:
        concept_draws = [
            drawn[name, concept]
            for concept, methods in judged_by_concept.items()
            if len(methods) == len(METHODS)
        ]
        if concept_draws:
            drawn[name, "mean"] = np.mean(concept_draws, axis=0)
    for key, (precision, overlap) in drawn.items():
        out[key] = interval(precision[0], precision[1:]), interval(overlap[0], overlap[1:])
    return out
