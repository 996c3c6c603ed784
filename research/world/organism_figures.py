"""Write organism.md: accuracy of the bundled models on all synthetic datasets, and their bias."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ccs
from ccs.analysis.inputs import embed_names
from ccs.batch.pages import Block, filled, in_brackets
from ccs.data import BiasSet, synthetic
from ccs.metrics import accuracy, bias, bias_result, retrieval
from ccs.metrics.ranking import Ranking
from ccs.model.model import Model
from ccs.synthetic.vocabulary import OCCUPATIONS
from research.world import CONTROL, ORGANISM
from research.world.planted_truth import SCALES, Shares, alignment


def rank_faces(model: Model, faces: BiasSet) -> Mapping[str, bias_result.BiasResult]:
    """Compute MaxSkew and the cross-fitted logit gap (`ccs.metrics.skew`) of each attribute.

    A logit is the cosine times the model's scale: 1 is a factor of e in the odds.

    Args:
        model: The model.
        faces: A synthetic gallery, ranked for the world's occupations, in their order.
    """
    images, prompts = model.embed_images(faces.images), _prompts(model, faces)
    return {
        name: bias.measure(
            images,
            Ranking(prompts, faces.groups[name], faces.k[name]),
            metrics=("MaxSkew", "logit gap (cross-fitted)"),
            logit_scale=model.logit_scale,
        )
        for name in SCALES
    }


def _prompts(model: Model, faces: BiasSet) -> NDArray[np.floating]:
    return embed_names(model, faces.occupations, faces.templates)


def shares_of(result: bias_result.BiasResult) -> Shares:
    """Return occupation -> group -> share of the top K."""
    rows = zip(OCCUPATIONS, result.top_shares.tolist(), strict=True)
    return {name: dict(zip(result.groups, row, strict=True)) for name, row in rows}


def embedded_blocks() -> list[Block]:
    """Measure both bundled models and write the whole document."""
    models = {name: ccs.load(name) for name in (ORGANISM, CONTROL)}
    return filled(
        Path(__file__).with_name("templates"),
        "embedded",
        training=[_training(name) for name in models],
        accuracy=[_accuracy(models, name) for name in synthetic.CLASSES],
        retrieval=_retrieval(models),
        skew=_faces(models),
    )


def _training(name: str) -> dict[str, str]:
    notes = json.loads(files("ccs.bundled").joinpath(f"{name}/training.json").read_text("utf-8"))
    gender, tone = notes["strengths"]
    return {
        "model": name,
        "groups in the last steps": notes["world"],
        "strength": f"gender {gender:g}, skin tone {tone:g}" if notes["world"] == "skewed" else "–",
        "shared steps": f"{notes['common']:,}",
        "last steps": f"{notes['own']:,}",
        "seed": notes["seed"],
    }


def _accuracy(models: Mapping[str, Model], name: str) -> dict[str, str]:
    data = synthetic.classification_set(name)
    row = {"set": data.name, "images": str(len(data.images)), "chance": f"{100 / len(data.classes):.1f}"}
    for key, model in models.items():
        weights = embed_names(model, data.classes, data.templates)
        top1 = accuracy.accuracy(model.embed_images(data.images), weights, data.labels).top1
        row[key] = in_brackets(top1.times(100), 1)
    return row


def _retrieval(models: Mapping[str, Model]) -> list[dict[str, str]]:
    clips = synthetic.retrieval_set()
    captions = [caption for clip_captions in clips.captions for caption in clip_captions]
    owner = np.repeat(np.arange(len(clips.clips)), [len(clip_captions) for clip_captions in clips.captions])
    rows: dict[str, dict[str, str]] = {}
    for key, model in models.items():
        embedded = np.stack([model.embed_images(list(clip)).mean(axis=0) for clip in clips.clips])
        for measured in retrieval.measure_recall(embedded, model.embed_texts(captions), owner):
            row = rows.setdefault(measured.direction, {"set": clips.name, "direction": measured.direction})
            row[key] = in_brackets(measured.metrics["R@1"].times(100), 1)
    return list(rows.values())


def _faces(models: Mapping[str, Model]) -> list[dict[str, str]]:
    faces = synthetic.bias_set("faces")
    ranked = {name: rank_faces(model, faces) for name, model in models.items()}
    rows = []
    for attribute in SCALES:
        results_by_model = {name: results[attribute] for name, results in ranked.items()}
        row = {"attribute": attribute, "chance": in_brackets(results_by_model[ORGANISM].max_skew.chance_mean)}
        row |= {name: in_brackets(result.max_skew.mean) for name, result in results_by_model.items()}
        gaps = {
            name: result.metrics["logit gap (cross-fitted)"].mean.value
            for name, result in results_by_model.items()
        }
        row |= {f"logit gap, {name}": f"{gap:.2f}" for name, gap in gaps.items()}
        for name, result in results_by_model.items():
            aligned = alignment(shares_of(result), attribute)
            if aligned is not None:
                row[f"planted direction, {name}"] = aligned.counted
        rows.append(row)
    return rows
