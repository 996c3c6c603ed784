"""The costs of a run before it starts: downloads, terms, LLM requests, dollars, hours, and disk space.

Nothing is opened, fetched, or computed: sizes and licenses are in the records of known datasets, heads and
weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

import os
from collections.abc import Sequence
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import torch

from ccs.batch.compute import Settings
from ccs.batch.compute.ablations import count_ablations
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
"""Tokens per image, and the time of an evaluation in bf16 as a share of float32's: ViT-B-32, ViT-B-16, and
ViT-L-14, measured on an H200 (benchmarks/results/gpu.json).
"""
_LAYERS, _LAYERS_OF_SINGLE = 2.9, 1.4
"""Layers that each ablation set of several heads, or of a single head, adds: those from its first head on."""
_DECODED, _FETCHED, _MEASURED = 200, 50e6, 27e-6
"""Photographs a second and core, bytes a second, and seconds for the metrics of an image under ablation."""


class _Pass(NamedTuple):
    """An encoder's passes over a dataset: images, and ablation sets of several heads and of single heads."""

    encoder: Encoder
    record: DatasetRecord
    images: int
    several: int
    singles: int


def _weights(source: sources.Source) -> float:
    """Return the gigabytes to fetch, in single precision; NaN if its text encoder is described on the Hub."""
    if source.place is not None or source.tag == UNTRAINED:
        return 0
    return nan if source.config["text_cfg"].get("hf_model_name") else 4e-9 * source.values


def describe_needs(settings: Settings) -> str:
    """Describe the needs of all models for a person to read. Raises InputError if a model isn't known."""
    names: dict[str, None] = {}
    passes: list[_Pass] = []
    models, estimates, embeddings = [], [], 0.0
    for of_model in settings.by_model():
        if of_model.clip.startswith(HUB):
            raise InputError(f"{of_model.clip}: its configuration is on the Hub; --dry-run fetches nothing.")
        source = sources.find_model(of_model.clip)
        encoder = sources.known_encoder(source, of_model.layers)
        heads = len(encoder.heads)
        models.append((source.name, heads, _weights(source)))
        estimates += Judging(of_model, known_pool(of_model)).estimate(heads)
        data = dict.fromkeys((of_model.images, *of_model.evaluation_sets(), *settings.galleries))
        names |= data
        for record in filter(None, (SOURCES.get(ALIASES.get(name, name)) for name in data)):
            ablations, limit = (0, 0), of_model.max_images
            if record.kind != "images":
                ablations, limit = count_ablations(record, of_model, heads), of_model.eval_images
            images = min(record.rows, limit or record.rows)
            passes.append(_Pass(encoder, record, images, *ablations))
            embeddings = max(embeddings, 4e-9 * images * source.config["embed_dim"] * sum(ablations))
    records = list({reading.record.name: reading.record for reading in passes}.values())
    by_judge = [
        CostEstimate.total(judge, [estimate for estimate in estimates if estimate.judge == judge])
        for judge in dict.fromkeys(estimate.judge for estimate in estimates)
    ]
    spending = Spending("estimated" if settings.budget is None else settings.budget)
    spending.expect([total := CostEstimate.total("all", by_judge)])
    weights = sum(gigabytes for *_, gigabytes in models if gigabytes > 0)
    sets = sum({record.address: record.gigabytes for record in records}.values())  # fetched once
    return printed(
        "cost",
        time=_hours(settings, passes, weights + sets) if records else None,
        budget=spending.limit if estimates and spending.limit < inf else None,
        by_default=settings.budget is None,
        models=models,
        records=records,
        others=[name for name in names if ALIASES.get(name, name) not in SOURCES],
        judges=[*by_judge, total] if estimates else [],
        weights=weights,
        sets=sets,
        embeddings=embeddings,
        largest_kept=KEPT_BYTES / 1e9,
    )


def _hours(settings: Settings, passes: Sequence[_Pass], gigabytes: float) -> dict[str, Any]:
    """Estimate the hours of each part of a run; gigabytes: to fetch."""
    cores, device = os.cpu_count() or 1, settings.device_like or usable_device(settings.device).type
    if device == "cuda":
        words = torch.cuda.get_device_name().lower().replace("-", " ").split()
        device = next((name for name in SPEEDS if name in words), "")
    if not device:
        return {"device": "", "known": list(SPEEDS)}
    half = device != "cpu" and settings.precision != "fp32"
    operations = decoded = ranked = 0.0
    embedded = set[tuple[Encoder, str]]()
    for encoder, record, items, several, singles in passes:
        images = items * (record.frames if record.kind == "videos" else 1)
        tokens, width, layers = encoder.n_tokens, encoder.width, encoder.n_layers
        if (encoder, record.address) not in embedded or not record.hub:  # what sets share is embedded once
            share = layers + several * _LAYERS + singles * _LAYERS_OF_SINGLE
            if half and record.kind != "images":
                share *= float(np.interp(tokens, *_HALF_PRECISION))
            operations += share * (24 * tokens * width**2 + 4 * tokens**2 * width) * images
            decoded += images
        embedded.add((encoder, record.address))
        ranked += (several + 0.4 * singles) * images * (record.kind == "bias")
    hours = {
        "passes": operations / SPEEDS.get(device, _CORE * cores) / 3600,
        "decoding": decoded / (_DECODED * cores) / 3600,
        "metrics": ranked * _MEASURED / 3600,
        "fetching": 1e9 * gigabytes / _FETCHED / 3600,
    }
    whole = max(hours["passes"], hours["decoding"]) + hours["metrics"] + hours["fetching"]
    precision = "bf16" if half else "fp32"
    return hours | {"device": device, "cores": cores, "whole": whole, "precision": precision}
