"""Exactness: what the device computes, against open_clip's own pass and the plain computation on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import ccs
from benchmarks.gpu import sample
from benchmarks.gpu.lines import Bench, Line, Measured
from ccs import HeadSet
from ccs.metrics.bias import measure
from ccs.metrics.ranking import Ranking
from ccs.model.export import WeightChange, changed_weights
from ccs.model.model import Model
from ccs.model.side import Contributions

PART = "exactness"
ABLATION_SETS, TEXTS, K = 4, 400, 5
ALLOWED = {torch.bfloat16: 5e-3, torch.float16: 1e-3}
"""Largest error of a coordinate of the unit embedding, by a few times what the type's digits leave."""


def lines(models: tuple[str, ...] = Bench.models) -> Iterator[Line]:
    """The lines of every architecture."""
    for name in models:
        at = partial(Line, PART, model=name)
        yield at(f"{name}, embeddings under ablation", "of a coordinate", 1e-5, partial(ablations, name=name))
        yield at(f"{name}, contributions", "of a coordinate", 1e-5, partial(contributions, name=name))
        yield at(f"{name}, moments", "of a head's largest", 1e-4, partial(moments, name=name))
        yield at(
            f"{name}, TEXTSPAN's picks", "picks that differ", 0, partial(picks, name=name), anywhere=False
        )
        for kind, limit in ALLOWED.items():
            words = f"{name}, {str(kind).removeprefix('torch.')} against float32"
            yield at(words, "of a coordinate", limit, partial(halves, name=name, kind=kind))
    # One face among the first 60 is ln(31/30).
    yield Line(PART, "MaxSkew", "from the CPU's", 0.04, skew, anywhere=False, model=models[0])


def ablation_sets(model: Model) -> list[HeadSet]:
    return sample.ablations(model.heads, ABLATION_SETS)


def ablations(bench: Bench, name: str) -> Measured:
    """Measure the largest error of embeddings with ablated heads.

    Args:
        bench: The device and the size of the work.
        name: The architecture.

    Raises:
        RuntimeError: If the ablation sets change nothing.
    """
    model = sample.model(bench, name)
    embeddings = model.embed_images(sample.pixels(model, bench.compared), ablation_sets(model))
    expected = _reference(bench, name)
    changed = np.abs(expected[1:] - expected[0]).max()
    if changed < 1e-4:
        raise RuntimeError("The ablations change nothing, so nothing is compared.")
    return float(np.abs(embeddings - expected).max()), f"ablations change up to {changed:.1e}"


def _reference(bench: Bench, name: str) -> np.ndarray:
    """open_clip's own pass on the CPU under each ablation, by weights at zero: [ablations, n, D]."""

    def make() -> np.ndarray:
        here = sample.model(bench, name, "cpu")
        x, weights, rows = sample.pixels(here, bench.compared), here.clip.state_dict(), []
        for heads in ablation_sets(here):
            with torch.no_grad():
                embedded = torch.func.functional_call(
                    here.clip.visual, _visual(weights | changed_weights(here, WeightChange(heads))), (x,)
                )
            rows.append(torch.nn.functional.normalize(embedded, dim=-1).numpy())
        return np.stack(rows)

    reference: np.ndarray = bench.once(("reference", name), make)
    return reference


def _visual(weights: dict[str, Any]) -> dict[str, Any]:
    """The weights of the image encoder, by their names in it."""
    prefix = "visual."
    return {key.removeprefix(prefix): values for key, values in weights.items() if key.startswith(prefix)}


def _contributions(bench: Bench, name: str) -> Contributions:
    """Those of the CPU."""
    here = sample.model(bench, name, "cpu")
    x = sample.pixels(here, bench.compared)
    reference: Contributions = bench.once(("contributions", name), lambda: here.contributions(x))
    return reference


def contributions(bench: Bench, name: str) -> Measured:
    """Measure the largest error of the contributions' sum and, on a GPU, of each contribution.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
    """
    model = sample.model(bench, name)
    measured = model.contributions(sample.pixels(model, bench.compared))
    total = measured.direct.sum((1, 2)) + measured.remainder
    error = float(np.abs(total - _reference(bench, name)[0]).max())
    if bench.gpu:
        error = max(error, float(np.abs(measured.direct - _contributions(bench, name).direct).max()))
    return error


def moments(bench: Bench, name: str) -> Measured:
    """Measure the largest error of head statistics against the CPU's full matrix of contributions.

    Args:
        bench: The device and the size of the work.
        name: The architecture.

    Returns:
        The largest error, relative to the head's largest second moment.
    """
    model = sample.model(bench, name)
    collected = ccs.collect_moments(model, [sample.pixels(model, bench.compared)])
    direct, worst = _contributions(bench, name).direct.astype(np.float64), 0.0
    for row, head in enumerate(collected.heads):
        plain = direct[:, head.layer, head.head]
        second = plain.T @ plain / len(plain)
        ours = collected.basis[row].T @ collected.second(row) @ collected.basis[row]
        worst = max(worst, float(np.abs(ours - second).max() / np.abs(second).max()))
    return worst


def picks(bench: Bench, name: str) -> Measured:
    """Count TEXTSPAN's picks that differ between the device and the CPU.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
    """
    model, here = sample.model(bench, name), sample.model(bench, name, "cpu")
    texts, embedded = [f"text {i}" for i in range(TEXTS)], sample.unit(TEXTS, model.dim)
    x = sample.pixels(model, bench.compared)
    ours, theirs = (ccs.textspan(ccs.collect_moments(m, [x]), texts, embedded, K) for m in (model, here))
    pairs = [(a.index, b.index) for head in theirs for a, b in zip(ours[head], theirs[head], strict=True)]
    return float(sum(a != b for a, b in pairs)), f"of {len(pairs)}"


def halves(bench: Bench, name: str, kind: torch.dtype) -> Measured:
    """Measure the largest error of embeddings with ablated heads in half precision.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
        kind: The type for autocast.
    """
    model, half = sample.model(bench, name), sample.model(bench, name, kind=kind)
    x = sample.pixels(model, bench.compared)
    halved, expected = (m.embed_images(x, ablation_sets(m)) for m in (half, model))
    return float(np.abs(halved - expected).max()), f"cosine at least {(halved * expected).sum(-1).min():.5f}"


def skew(bench: Bench) -> Measured:
    """The largest difference over occupations and ablations."""
    name = bench.models[0]
    people = sample.gallery(bench, bench.ranked)
    skews = []
    for device in (bench.device, "cpu"):
        model = sample.model(bench, name, device)
        texts = model.embed_texts([f"a photo of a {occupation}" for occupation in people.occupations])
        rows = model.embed_images(people.images, ablation_sets(model)[:2])
        ranking = Ranking(texts, people.groups["gender"], people.k["gender"])
        ranked = [measure(embeddings, ranking, draws=40) for embeddings in rows]
        skews.append(np.array([result.max_skew.values for result in ranked]))
    return float(np.abs(skews[0] - skews[1]).max()), f"{bench.ranked} images, {name}"
