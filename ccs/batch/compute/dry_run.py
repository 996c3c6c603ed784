"""The costs of a run before it starts: downloads, terms, LLM requests, dollars, hours, and disk space.

Nothing is opened, fetched, or computed: sizes and licenses are in the records of known datasets, heads and
weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isnan, nan
from typing import Any, NamedTuple

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
from ccs.model.encoder import Encoder
from ccs.model.loading import sources
from ccs.model.loading.sources import HUB, UNTRAINED, usable_device

SPEEDS = {"h100": 33.5e12, "a100": 9.75e12, "l4": 8e12}
"""Operations in float32 a second: half of the vendor's number; an L4 waits for its memory."""
_CORE = 73e9
"""Operations a second of one core, measured: 16.7 images a second of ViT-B-32 on two (docs/gpus.md)."""
_HALF_PRECISION = ((50, 197, 257), (0.206, 0.155, 0.130))
"""Tokens of an image, and the time of an evaluation in bf16 over that in float32: ViT-B-32, ViT-B-16, and
ViT-L-14, measured on an H200 (benchmarks/results/gpu.json).
"""
_LAYERS, _LAYERS_OF_SINGLE = 2.9, 1.4
"""Layers that one more ablation set of several heads, or of one, costs: those from its first head on."""
_DECODED, _FETCHED, _MEASURED = 200, 50e6, 27e-6
"""Photographs a second and core, bytes a second, and seconds for the metrics of an image under ablation."""


class _Model(NamedTuple):
    """A model of the run; weights: gigabytes to fetch, in single precision, NaN if unknown."""

    settings: Settings
    source: sources.Source
    encoder: Encoder
    weights: float

    def images(self, record: DatasetRecord) -> int:
        """Return the number of images of a dataset that the run reads, or of clips."""
        limit = self.settings.max_images if record.kind == "images" else self.settings.eval_images
        return min(record.rows, limit or record.rows)

    def ablations(self, record: DatasetRecord) -> tuple[int, int]:
        """Estimate the numbers of ablation sets of several heads and of single heads on a dataset."""
        if record.kind == "images":
            return 0, 0
        return count_ablations(record, self.settings, len(self.encoder.heads))

    def embeddings(self, record: DatasetRecord) -> float:
        """Return the GB of a dataset's embeddings under all ablation sets, which are temporary."""
        numbers: int = self.images(record) * self.source.config["embed_dim"] * sum(self.ablations(record))
        return 4e-9 * numbers


def _model(settings: Settings) -> _Model:
    if settings.clip.startswith(HUB):
        raise InputError(f"{settings.clip}: its configuration is on the Hub, and --dry-run fetches nothing.")
    source = sources.find_model(settings.clip)
    weights: float = 4e-9 * source.values
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
        for model in models
        for name in (model.settings.images, *names_of_sets(model.settings), *settings.galleries)
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
    weights = sum(model.weights for model in models if model.weights > 0)
    sets = sum({record.address: record.gigabytes for record in records}.values())  # fetched once
    return printed(
        "cost",
        time=_hours(settings, models, records, weights + sets) if records else None,
        budget=budget if estimates else None,
        by_default=settings.budget is None,
        models=[(model.source.name, len(model.encoder.heads), model.weights) for model in models],
        records=records,
        others=[name for name in names if ALIASES.get(name, name) not in SOURCES],
        judges=[*by_judge, total] if estimates else [],
        weights=weights,
        sets=sets,
        embeddings=max((model.embeddings(record) for model in models for record in records), default=0),
        largest_kept=KEPT_BYTES / 1e9,
    )


def _hours(
    settings: Settings, models: Sequence[_Model], records: Sequence[DatasetRecord], gigabytes: float
) -> dict[str, Any]:
    """Estimate the hours of each part of a run; gigabytes: to fetch."""
    cores, device = os.cpu_count() or 1, settings.device_like or usable_device(settings.device).type
    if device == "cuda":
        words = torch.cuda.get_device_name().lower().replace("-", " ").split()
        device = next((name for name in SPEEDS if name in words), "")
    if not device:
        return {"device": "", "known": list(SPEEDS)}
    half = device != "cpu" and settings.precision != "fp32"
    passes = decoded = ranked = 0.0
    for model in models:
        tokens, width, layers = model.encoder.n_tokens, model.encoder.width, model.encoder.n_layers
        one_pass = layers * (24 * tokens * width**2 + 4 * tokens**2 * width)  # operations
        bf16, embedded = float(np.interp(tokens, *_HALF_PRECISION)), set[str]()
        for record in records:
            several, singles = model.ablations(record)
            images = model.images(record) * (record.frames if record.kind == "videos" else 1)
            if record.address not in embedded or not record.hub:  # what sets share is embedded once
                share = 1 + (several * _LAYERS + singles * _LAYERS_OF_SINGLE) / layers
                evaluation = bf16 if half and record.kind != "images" else 1
                passes += evaluation * one_pass * images * share
                decoded += images
            embedded.add(record.address)
            ranked += (several + 0.4 * singles) * images * (record.kind == "bias")
    hours = {
        "passes": passes / SPEEDS.get(device, _CORE * cores) / 3600,
        "decoding": decoded / (_DECODED * cores) / 3600,
        "metrics": ranked * _MEASURED / 3600,
        "fetching": 1e9 * gigabytes / _FETCHED / 3600,
    }
    whole = max(hours["passes"], hours["decoding"]) + hours["metrics"] + hours["fetching"]
    precision = "bf16" if half else "fp32"
    return hours | {"device": device, "cores": cores, "whole": whole, "precision": precision}
