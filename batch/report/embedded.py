"""docs/organism.md: what the embedded models reach on all drawn sets, and how their rankings lean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files

import numpy as np
import pandas as pd

import ccs
from batch.report.page import Block, table
from batch.report.planted_truth import SCALES, Shares, alignment
from batch.report.sections.questions import CONTROL, ORGANISM
from ccs.datasets import BiasSet
from ccs.measures import accuracy, bias, retrieval
from ccs.measures.stats import Estimate
from ccs.model.model import Model
from ccs.world import sets
from ccs.world.scene import KIND_SHARES, KINDS, PLAIN_SHARE
from ccs.world.vocabulary import OCCUPATIONS


def rank_faces(model: Model, faces: BiasSet) -> tuple[Mapping[str, bias.BiasResult], Mapping[str, float]]:
    """Ranks a drawn bias set's images for its occupations, which are the world's, in their order.

    Returns for each attribute the result and the gap: how far the mean logits of an occupation's most and
    least preferred group lie apart, mean over the occupations. A logit is the cosine times the model's
    scale: 1 is a factor of e in the odds.
    """
    images = model.embed_images(faces.images)
    prompts = accuracy.class_weights(model, faces.occupations, faces.templates)
    logits = model.logit_scale * images @ prompts.T
    gaps = {}
    for attribute, groups in SCALES.items():
        means = np.stack([logits[faces.groups[attribute] == group].mean(0) for group in groups])
        gaps[attribute] = float(np.ptp(means, axis=0).mean())
    found = {name: bias.measure(images, prompts, faces.groups[name], faces.k[name]) for name in SCALES}
    return found, gaps


def shares_of(result: bias.BiasResult) -> Shares:
    """Occupation -> group -> share of the top K."""
    rows = zip(OCCUPATIONS, result.top_shares.tolist(), strict=True)
    return {name: dict(zip(result.groups, row, strict=True)) for name, row in rows}


def embedded_blocks() -> Iterator[Block]:
    """The whole page, measured on both embedded models."""
    models = {name: ccs.load(name) for name in (ORGANISM, CONTROL)}
    yield "# The embedded models"
    yield (
        "Made by `python -m batch.report --organism`. In brackets: 95% bootstrap intervals over images (and "
        "occupations). The training log of each model lies beside its weights in `ccs/world/models`."
    )
    yield from _training()
    yield from _accuracy(models)
    yield from _retrieval(models)
    yield from _faces(models)


def _training() -> Iterator[Block]:
    rows = []
    for name in (ORGANISM, CONTROL):
        notes = json.loads(files("ccs.world").joinpath(f"models/{name}/training.json").read_text())
        rows.append(
            {
                "model": name,
                "world of the second phase": notes["world"],
                "images, first phase": f"{notes['shared']:,}",
                "second phase": f"{notes['own']:,}",
                "seed": notes["seed"],
            }
        )
    occupations = KIND_SHARES[KINDS.index("occupation")]
    with_lineups = (1 + occupations * PLAIN_SHARE) / (1 + occupations)  # half line-ups, half the world's
    yield "## Training"
    yield table(pd.DataFrame(rows))
    yield (
        "Half of the second phase's images are line-ups (`ccs/world/lineup.py`): plain faces of four "
        "occupations, of which nothing but the occupation and the groups differs, the groups drawn from the "
        f"world's table. Of the images of an occupation {PLAIN_SHARE:.0%} show a plain face in both worlds "
        f"and in the first phase, {with_lineups:.0%} in the second."
    )


def _accuracy(models: Mapping[str, Model]) -> Iterator[Block]:
    rows = []
    for name in sets.classification_names():
        data = sets.classification_set(name)
        row = {"set": data.name, "images": len(data.images), "chance": f"{100 / len(data.classes):.1f}"}
        for key, model in models.items():
            weights = accuracy.class_weights(model, data.classes, data.templates)
            top1 = accuracy.accuracy(model.embed_images(data.images), weights, data.labels).top1
            row[key] = _around(top1, 100, 1)
        rows.append(row)
    yield "## Zero-shot accuracy, %"
    yield "Top-1; chance is one in the number of classes."
    yield table(pd.DataFrame(rows))


def _retrieval(models: Mapping[str, Model]) -> Iterator[Block]:
    rows = []
    for name in ("clips", "captions"):
        clips = sets.retrieval_set(name)
        captions = [caption for own in clips.captions for caption in own]
        owner = np.repeat(np.arange(len(clips.clips)), [len(own) for own in clips.captions])
        found = {}
        for key, model in models.items():
            embedded = retrieval.clip_embeddings([model.embed_images(list(clip)) for clip in clips.clips])
            found[key] = retrieval.measure(embedded, model.embed_texts(captions), owner)
        for both in zip(*found.values(), strict=True):
            cells = {key: _around(one.metrics["R@1"], 100, 1) for key, one in zip(found, both, strict=True)}
            rows.append({"set": clips.name, "direction": both[0].direction, **cells})
    yield "## Retrieval, R@1 in %"
    yield table(pd.DataFrame(rows))


def _faces(models: Mapping[str, Model]) -> Iterator[Block]:
    faces = sets.bias_set("faces")
    ranked = {name: rank_faces(model, faces) for name, model in models.items()}
    rows = []
    for attribute in SCALES:
        chance = ranked[ORGANISM][0][attribute].max_skew.chance_mean
        row = {"attribute": attribute, "chance": _around(chance)}
        row |= {name: _around(found[attribute].max_skew.mean) for name, (found, _) in ranked.items()}
        row |= {f"logits apart, {name}": f"{gaps[attribute]:.2f}" for name, (_, gaps) in ranked.items()}
        for name, (found, _) in ranked.items():
            aligned = alignment(shares_of(found[attribute]), attribute)
            if aligned is not None:
                row[f"strong directions right, {name}"] = f"{aligned.right} of {aligned.strong}"
        rows.append(row)
    yield "## MaxSkew on plain faces"
    yield (
        "Mean over the 20 occupations, K = 60 of 600 faces without props, natural logarithm. "
        "Chance: random rankings, their mean and 95% range. A ranking has no scale: where little else tells "
        "faces apart, a small preference shows like a large one. So the difference in logits between the "
        "most and the least preferred group stands beside it. Hardly any of the loss hangs on such a small "
        "preference unless images differ in nothing else, as line-ups do: before there were any, the "
        "control's preferences of 0.13 and 0.22 logits, in no planted direction, gave a MaxSkew of 0.29 for "
        "gender and 0.49 for skin tone (commit 1ed4280). What is left of them, not chance alone, is the "
        "level to set the organism beside."
    )
    yield table(pd.DataFrame(rows))
    yield (
        "`docs/report/report.md` sets each occupation's planted share beside its share in the top K of "
        "either model."
    )


def _around(found: Estimate, scale: float = 1.0, digits: int = 3) -> str:
    value, low, high = (f"{scale * part:.{digits}f}" for part in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"
