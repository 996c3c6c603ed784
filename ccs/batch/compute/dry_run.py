"""The costs of a run before it starts: downloads, terms, LLM requests, dollars, hours, and disk space.

Nothing is opened, fetched, or computed: sizes and licenses are in the records of known sets, heads and
weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np
import torch

from ccs.batch.compute import Settings
from ccs.batch.compute.ablations import count_ablations
from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.judge import Judging, known_pool
from ccs.batch.compute.run import KEPT_BYTES
from ccs.batch.pages import printed
from ccs.data import ALIASES, SOURCES, DatasetRecord
from ccs.errors import InputError
from ccs.judges.prices import CostEstimate, Spending
from ccs.model.encoder import ImageEncoder
from ccs.model.loading import sources
from ccs.model.loading.sources import HUB, UNTRAINED, usable_device
from ccs.texts.pools import ADDRESS, REFERENCE, find_reference

PEAKS = {"h100": (67e12, 3.35e12), "a100": (19.5e12, 2.04e12), "l4": (30.3e12, 0.3e12)}
"""Operations in float32 without TF32, and bytes, that a GPU can do in a second by its vendor's data."""
_REACHED = 0.5
"""The share of these that is assumed."""
_HALF_PRECISION = ((50, 197, 257), (0.206, 0.155, 0.130))
"""Tokens of an image, and the time of an evaluation in bf16 over that in float32: ViT-B-32, ViT-B-16, and
ViT-L-14, measured on an H200 (benchmarks/results/gpu.json).
"""
_CORE = 73e9
"""Operations a second of one core, measured: 16.7 images a second of ViT-B-32 on two (docs/gpus.md)."""
_TOUCHED = 120 * 4
"""Bytes that a pass moves for each number of a layer's activations, by the counts in docs/gpus.md."""
_LAYERS = 2.9
"""Layers that one more ablation set costs, measured (2.8 to 2.9): it shares those before its first head."""
_LAYERS_OF_SINGLE = 1.4
"""The mean over single heads, whose layers are the last four: 2.9, 1.9, 0.9, and 0."""
_DECODED, _FETCHED, _MEASURED = 200, 50e6, 27e-6
"""Photographs a second and core, bytes a second, and seconds for the metrics of an image under ablation."""
_SINGLE = 0.4
"""The share of this for a single head: a quarter of a set with all metrics, measured at FairFace's size (98
against 416 microseconds), of which the mean above, with random sets, is about 0.6.
"""


@dataclass(frozen=True)
class _Model:
    """A model of the run; weights: bytes to fetch, in single precision, NaN if unknown."""

    settings: Settings
    source: sources.Source
    encoder: ImageEncoder
    weights: float

    def needs(self) -> str:
        """Say what must be fetched."""
        if isnan(self.weights):
            return "weights of unknown size to fetch"
        return f"{self.weights / 1e9:.2f} GB of weights, unless they are here" if self.weights else "here"

    def ablations(self, record: DatasetRecord) -> tuple[int, int]:
        """Estimate the numbers of ablation sets of several heads and of single heads on a dataset."""
        return count_ablations(record, self.settings, len(self.encoder.heads))

    def embeddings(self, record: DatasetRecord) -> float:
        """Return the GB of a set's embeddings under all ablation sets, which exist while it is measured."""
        if record.kind not in ("classification", "bias"):
            return 0.0
        images = min(record.rows, self.settings.eval_images or record.rows)
        numbers: int = images * self.source.config["embed_dim"] * sum(self.ablations(record))
        return 4e-9 * numbers


def _model(settings: Settings) -> _Model:
    if settings.clip.startswith(HUB):
        raise InputError(f"{settings.clip}: its configuration is on the Hub, and --dry-run fetches nothing.")
    source = sources.find_model(settings.clip)
    weights: float = 4 * source.values
    if source.place is not None or source.tag == UNTRAINED:
        weights = 0
    elif source.config["text_cfg"].get("hf_model_name"):
        weights = nan  # its text encoder is described on the Hub
    return _Model(settings, source, sources.known_encoder(source, settings.layers), weights)


def describe_needs(settings: Settings) -> str:
    """Describe the needs of all models for a person to read. Raises InputError if a model isn't known."""
    models = [_model(of_model) for of_model in settings.by_model()]
    names = dict.fromkeys(
        name
        for of_model in settings.by_model()
        for name in (of_model.images, *names_of_sets(of_model), *settings.galleries)
    )
    records = [record for name in names if (record := SOURCES.get(ALIASES.get(name, name)))]
    estimates = [
        estimate
        for model in models
        for estimate in Judging(model.settings, known_pool(model.settings)).estimate(len(model.encoder.heads))
    ]
    by_judge = [
        CostEstimate.total(judge, [estimate for estimate in estimates if estimate.judge == judge])
        for judge in dict.fromkeys(estimate.judge for estimate in estimates)
    ]
    total, budget = CostEstimate.total("all", by_judge), settings.budget
    if budget is None and not isnan(total.dollars):
        spending = Spending("estimated")
        spending.expect([total])
        budget = spending.limit
    weights = sum(model.weights for model in models if model.weights > 0) / 1e9
    sets = sum({record.address: record.gigabytes for record in records}.values())  # fetched once
    no_reference = any(model.settings.texts == REFERENCE for model in models) and find_reference() is None
    return printed(
        "cost",
        time=_time(settings, models, records, weights + sets) if records else None,
        budget=budget if estimates else None,
        by_default=settings.budget is None,
        models=[(model.source.name, len(model.encoder.heads), model.needs()) for model in models],
        records=records,
        others=[name for name in names if ALIASES.get(name, name) not in SOURCES],
        texts=REFERENCE if no_reference else "",
        address=ADDRESS,
        judges=[*by_judge, total] if estimates else [],
        weights=weights,
        sets=sets,
        embeddings=max((model.embeddings(record) for model in models for record in records), default=0),
        largest_kept=KEPT_BYTES / 1e9,
    )


def _time(
    settings: Settings, models: Sequence[_Model], records: Sequence[DatasetRecord], gigabytes: float
) -> Mapping[str, Any]:
    """Estimate the hours of each part of a run; gigabytes: to fetch."""
    device, cores = _device(settings), os.cpu_count() or 1
    if device is None:
        return {"device": None, "known": list(PEAKS)}
    passes, decoded, ranked = np.sum([_work(model, records, device) for model in models], axis=0)
    seconds = {
        "passes": passes,
        "decoding": decoded / (_DECODED * cores),
        "metrics": ranked * _MEASURED,
        "fetching": 1e9 * gigabytes / _FETCHED,
    }
    hours = {part: value / 3600 for part, value in seconds.items()}
    whole = max(hours["passes"], hours["decoding"]) + hours["metrics"] + hours["fetching"]
    precision = settings.precision.replace("auto", "fp32" if device == "cpu" else "bf16")
    return hours | {"device": device, "cores": cores, "whole": whole, "precision": precision}


def _device(settings: Settings) -> str | None:
    """Return the device that an estimate is for: a key of `PEAKS` or cpu; None for an unknown GPU."""
    if settings.device_like is not None:
        return settings.device_like
    device = usable_device(settings.device)
    if device.type == "cpu":
        return "cpu"
    words = torch.cuda.get_device_name(device).lower().replace("-", " ").split()
    return next((name for name in PEAKS if name in words), None)


def _one_pass(encoder: ImageEncoder, device: str) -> float:
    """Return the seconds for one image in float32."""
    layers, tokens, width = encoder.n_layers, encoder.n_tokens, encoder.width
    operations = layers * (24 * tokens * width**2 + 4 * tokens**2 * width)
    if device == "cpu":
        return operations / (_CORE * (os.cpu_count() or 1))
    peak, moved = PEAKS[device]
    return max(operations / peak, _TOUCHED * layers * tokens * width / moved) / _REACHED


def _work(model: _Model, records: Sequence[DatasetRecord], device: str) -> tuple[float, int, float]:
    """Return a model's seconds of passes, images to decode, and images of people times ablation sets."""
    settings, embedded = model.settings, set[str]()
    single = device == "cpu" or settings.precision == "fp32"
    evaluation = 1.0 if single else float(np.interp(model.encoder.n_tokens, *_HALF_PRECISION))
    passes, decoded, ranked = 0.0, 0, 0.0
    for record in records:
        statistics = record.kind == "images"
        limit = settings.max_images if statistics else settings.eval_images
        items = min(record.rows, limit or record.rows)
        images = items * (record.frames if record.kind == "videos" else 1)
        several, singles = (0, 0) if statistics else model.ablations(record)
        if record.address not in embedded or not record.hub:  # what sets share is embedded once
            layers = several * _LAYERS + singles * _LAYERS_OF_SINGLE
            time = images * (1 + layers / model.encoder.n_layers)
            passes += time if statistics else evaluation * time
            decoded += images
        embedded.add(record.address)
        ranked += (several + _SINGLE * singles) * items * (record.kind == "bias")
    return _one_pass(model.encoder, device) * passes, decoded, ranked
