"""About how long a run takes, from operations, bytes and images, with the assumptions in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ccs.batch.compute.run import n_plans
from ccs.batch.compute.settings import Settings
from ccs.model.loading.sources import AUTO, usable_device
from ccs.model.tower import ImageTower
from ccs.sets import DatasetRecord

PEAKS = {"h100": (67e12, 3.35e12), "a100": (19.5e12, 2.04e12), "l4": (30.3e12, 0.3e12)}
"""Operations in float32 without TF32, and bytes, that each GPU can do in a second, as its vendor says."""
_REACHED = 0.5
"""The share of these that is assumed."""
_CORE = 73e9
"""Operations a second of one core, measured: 16.7 images a second of ViT-B-32 on two (docs/scaling.md)."""
_TOUCHED = 120 * 4
"""Bytes that a pass moves for each number of a layer's activations, by the counts in docs/scaling.md."""
_PLAN = 2.7
"""Layers that one more plan costs: it shares what comes before its first head."""
_DECODED, _FETCHED, _FIGURE = 200, 50e6, 27e-6
"""Photographs a second and core, bytes a second, and seconds for the figures of an image under a plan."""


@dataclass(frozen=True)
class Work:
    """What one model does: seconds of its passes, images that are decoded, images of people times plans."""

    seconds: float
    decoded: int
    figures: int


def device_of(settings: Settings) -> str | None:
    """The device that an estimate is for: a key of `PEAKS` or cpu; None for a GPU that is not known here."""
    if settings.device_like is not None:
        return settings.device_like
    found = usable_device(settings.device or AUTO)
    if found.type == "cpu":
        return "cpu"
    named = torch.cuda.get_device_name(found).lower().replace("-", " ").split()
    return next((name for name in PEAKS if name in named), None)


def work(
    settings: Settings, tower: ImageTower, heads: int, records: Sequence[DatasetRecord], device: str
) -> Work:
    """The work of one model on the images of its moments and on its sets, whose records are known."""
    layers, tokens, width = tower.n_layers, tower.n_tokens, tower.width
    operations = layers * (24 * tokens * width**2 + 4 * tokens**2 * width)
    if device == "cpu":
        one_pass = operations / (_CORE * (os.cpu_count() or 1))
    else:
        peak, moved = PEAKS[device]
        one_pass = max(operations / peak, _TOUCHED * layers * tokens * width / moved) / _REACHED
    passes, decoded, figures, seen = 0.0, 0, 0, set[str]()
    for record in records:
        most = settings.max_images if record.kind == "images" else settings.eval_images
        items = min(record.rows, most or record.rows)
        images = items * max(1, record.frames)
        plans = 0 if record.kind == "images" else n_plans(record, settings, heads)
        if record.address not in seen or not record.hub:  # what sets share is embedded once
            passes += images * (1 + plans * _PLAN / layers)
            decoded += images
        seen.add(record.address)
        figures += plans * items * (record.kind == "bias")
    return Work(one_pass * passes, decoded, figures)


def sentence(device: str | None, works: Sequence[Work], fetched: float) -> str:
    """All of it in words. fetched: bytes."""
    if device is None:
        return f"not known for this GPU; give --device-like {' or '.join(PEAKS)}."
    cores = os.cpu_count() or 1
    passes = sum(one.seconds for one in works) / 3600
    decoding = sum(one.decoded for one in works) / (_DECODED * cores * 3600)
    figures, fetching = sum(one.figures for one in works) * _FIGURE / 3600, fetched / _FETCHED / 3600
    if device == "cpu":
        how = f"{cores} cores of {_CORE / 1e9:.0f} GFLOP/s"
    else:
        peak, moved = PEAKS[device]
        how = f"one {device.upper()} at half of {peak / 1e12:g} TFLOP/s and {moved / 1e9:,.0f} GB/s, float32"
    return (
        f"about {max(passes, decoding) + figures + fetching:.1f} hours, without the wait for language "
        f"models: {passes:.1f} for the models on {how}; beside them {decoding:.1f} to decode {_DECODED} "
        f"photographs a second on each of {cores} cores; {figures:.1f} for figures of bias by one process; "
        f"and {fetching:.1f} to fetch at {_FETCHED / 1e6:.0f} MB/s."
    )
