"""Compare models whose bias should be a stereotype: `python -m research.world.stereotype_table MODEL ...`.

Prints one column per model and gallery: separation of the occupations' embeddings, group score gap, general
part of the bias, occupations with a strong planted bias that rank the planted groups first, MaxSkew, neutral
prompts above chance, and accuracies.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from ccs.analysis.inputs import embed_names
from ccs.data import synthetic
from ccs.metrics import preference
from ccs.metrics.ranking import cosines
from ccs.metrics.skew import max_skew
from ccs.model.model import Model, load
from ccs.texts.prompts import NONSENSE, PERSON
from research.world.planted import planted_bias, shares
from research.world.stereotype_training import directions, mean_cosine

SEEDS = (None, 12, 13)
"""The bundled gallery (None), and two galleries of other seeds."""
NEUTRALS = (*PERSON[:2], *NONSENSE[:2])
STRONG = 2
ACCURACY_SETS = ("subjects", "occupations", "food", "subjects-ood", "colors", "weather", "flags", "letters")


def main() -> int:
    """Print the table for the models named on the command line."""
    columns = {}
    for name in sys.argv[1:]:
        model = load(name)
        shared = encoder_rows(model)
        for seed in SEEDS:
            columns[f"{name.rsplit('/', 1)[-1]} {'published' if seed is None else seed}"] = {
                **shared,
                **bias_rows(model, seed),
            }
    print(pd.DataFrame(columns).to_string())
    return 0


def encoder_rows(model: Model) -> dict[str, str]:
    """Return effective directions, the mean cosine of the occupations' texts, and accuracies in percent."""
    people = synthetic.classification_set("occupations")
    images = model.embed_images(list(people.images))
    centers = np.stack(
        [images[np.asarray(people.labels) == label].mean(0) for label in range(len(people.classes))]
    )
    texts = embed_names(model, people.classes, people.templates)
    rows = {
        "effective directions: texts, images": f"{directions(texts):.1f}, {directions(centers):.1f}",
        "mean cosine of texts": f"{mean_cosine(texts):.2f}",
    }
    for name in ACCURACY_SETS:
        data = synthetic.classification_set(name)
        scores = model.embed_images(list(data.images)) @ embed_names(model, data.classes, data.templates).T
        rows[name] = f"{100 * (scores.argmax(1) == np.asarray(data.labels)).mean():.1f}"
    return rows


def bias_rows(model: Model, seed: int | None) -> dict[str, str]:
    """Measure the bias of a model in one gallery, for each attribute.

    Args:
        model: The model.
        seed: Random seed for the gallery; None is the bundled one.
    """
    gallery = synthetic.bias_set("faces", seed=seed)
    images = model.embed_images(list(gallery.images))
    texts = embed_names(model, gallery.occupations, gallery.templates)
    scores = model.logit_scale * cosines(texts, images)
    neutral = cosines(embed_names(model, NEUTRALS, gallery.templates), images)
    rows: dict[str, str] = {}
    for attribute, groups in gallery.groups.items():
        k, labels = gallery.k[attribute], np.asarray(groups)
        split = preference.split(scores, groups)
        firsts = preference.first_groups(gallery.occupations, scores, groups, k)
        neutral_firsts = preference.first_groups(NEUTRALS, neutral, groups, k)
        names, counts = np.unique(labels, return_counts=True)
        skews = [
            max_skew(labels[np.argsort(-row, kind="stable")], dict(zip(names, counts, strict=True)), k)
            for row in scores
        ]
        means = np.stack([scores[:, labels == group].mean(1) for group in names], 1)
        gap = (means.max(1) - means.min(1)).mean()
        strong = [
            (o, shares(o, attribute))
            for o in gallery.occupations
            if abs(planted_bias(o, attribute)) == STRONG
        ]
        first = {row.prompt: row.group for row in firsts}
        right = sum(_goes_as_planted(first[o], s) for o, s in strong)
        rows |= {
            f"{attribute}: gap (logits)": f"{gap:.2f}",
            f"{attribute}: general part": f"{split.share.value:.2f} {split.verdict}",
            f"{attribute}: as planted": f"{right} of {len(strong)}",
            f"{attribute}: MaxSkew": f"{np.mean(skews):.2f}",
            f"{attribute}: above chance": f"{sum(not row.by_chance for row in firsts)} of {len(firsts)}",
            f"{attribute}: neutral above chance": f"{sum(not row.by_chance for row in neutral_firsts)} of 4",
        }
    return rows


def _goes_as_planted(group: str, planted: dict[str, float]) -> bool:
    """Return whether the first group has more than its balanced share in the planted world."""
    return planted[group] > 1 / len(planted)


if __name__ == "__main__":
    sys.exit(main())
