"""The needs of a run before it starts: access to models and sets (`usable`), and a page of downloads, terms,
requests to judges, dollars, hours, and disk space.

For the page nothing is opened, fetched, or computed: sizes and licenses are in the records of known sets,
heads and weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import torch

from ccs.batch.compute import Settings
from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.judge import judges_of, known_pool
from ccs.batch.compute.run import KEPT_BYTES, n_plans
from ccs.batch.pages import printed
from ccs.data import ALIASES, SOURCES, DatasetRecord, synthetic, untrusted
from ccs.data.hub import connected, explained
from ccs.data.open import local_copy, parse_split
from ccs.errors import InputError
from ccs.files import endpoint
from ccs.heads import Head
from ccs.judges.prices import CostEstimate, default_budget
from ccs.judges.question import Question
from ccs.model.encoder import ImageEncoder
from ccs.model.loading import sources
from ccs.model.loading.footprint import footprint
from ccs.model.loading.sources import HUB, UNTRAINED, usable_device
from ccs.texts.pools import ADDRESSES, REFERENCE, find_reference


def usable(chosen: Sequence[Settings], tell: Callable[[str], None]) -> list[Settings]:
    """Check that models and sets can be fetched.

    Args:
        chosen: The settings of each model.
        tell: Gets a sentence for each model or set that is left out.

    Returns:
        The settings whose model is accessible.

    Raises:
        InputError: The only model, the images of the statistics, or a set that the user names isn't
            accessible, or the disk has no room.
    """
    accessible, size = list[Settings](), 0.0
    for settings in chosen:
        try:
            size += _weights_to_fetch(settings.clip)
            accessible.append(settings)
        except InputError as error:
            if len(chosen) == 1:
                raise
            tell(f"error: {settings.models[0]} is left out: {error}")
    named_sets = {name for settings in accessible for name in (*settings.datasets, *settings.galleries)}
    needed = {settings.images for settings in accessible} | named_sets
    download = dict[str, float]()
    for name, record in _registered(_all_data(accessible)).items():
        try:
            download[record.address] = _set_to_fetch(record)
        except InputError as error:
            if name in needed:
                raise
            tell(f"{name} is left out: {error}")
    _require_disk(size + sum(download.values()))
    return accessible


def _all_data(chosen: Sequence[Settings]) -> list[str]:
    """Return the names of all images and sets, each once."""
    return list(
        dict.fromkeys(
            name
            for settings in chosen
            for name in (settings.images, *names_of_sets(settings), *settings.galleries)
        )
    )


def _registered(names: Iterable[str]) -> dict[str, DatasetRecord]:
    return {name: record for name in names if (record := SOURCES.get(ALIASES.get(name, name)))}


def _weights_to_fetch(name: str) -> float:
    """Return the bytes of a model's weights that are not here."""
    takes = footprint(name)
    repository = sources.find(name).repository
    if takes.here or not repository:
        return 0
    from huggingface_hub import HfApi

    connected()
    with explained(name, repository, copy=False):
        HfApi(endpoint=endpoint()).auth_check(repository)
    return takes.size


def _set_to_fetch(record: DatasetRecord) -> float:
    """Return the bytes of a set that are not here."""
    if local_copy(record) is not None or (record.excerpt and untrusted.excerpt_file(record).exists()):
        return 0
    from huggingface_hub import HfApi, constants

    assert record.hub is not None
    connected()
    held = (Path(constants.HF_HUB_CACHE) / f"datasets--{record.hub.replace('/', '--')}").exists()
    if held and constants.HF_HUB_OFFLINE:
        return 0
    api = HfApi(endpoint=endpoint())
    with explained(record.name, record.hub):
        api.auth_check(record.hub, repo_type="dataset")
        info = api.dataset_info(record.hub, revision=record.revision, files_metadata=True, timeout=30)
    return 0 if held else min(record.gigabytes * 1e9, sum(file.size or 0 for file in info.siblings or []))


def _require_disk(size: float) -> None:
    from huggingface_hub import constants

    home = Path(constants.HF_HOME).absolute()
    place = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise InputError(
            f"{size / 1e9:.1f} GB are to be fetched, and {place} has {free / 1e9:.1f} GB free: make room, "
            "or name a folder on another disk in HF_HOME."
        )


# What it costs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """A model of the run.

    Attributes:
        weights: Bytes to fetch, in single precision; None if unknown.
        estimates: The cost of LLMs for all heads, with the pool's longest texts.
    """

    settings: Settings
    source: sources.Source
    encoder: ImageEncoder
    weights: float | None
    estimates: Sequence[CostEstimate]

    @property
    def needs(self) -> str:
        if self.weights is None:
            return "weights of unknown size to fetch"
        return f"{self.weights / 1e9:.2f} GB of weights, unless they are here" if self.weights else "here"


def _model(settings: Settings) -> _Model:
    if settings.clip.startswith(HUB):
        raise InputError("its configuration is on the Hub, and nothing is fetched.")
    source = sources.find(settings.clip)
    encoder = sources.known_encoder(source, settings.layers)
    weights: float | None = 4 * source.values
    if source.place is not None or source.tag == UNTRAINED:
        weights = 0
    elif source.config["text_cfg"].get("hf_model_name"):
        weights = None  # its text encoder is described on the Hub
    return _Model(settings, source, encoder, weights, _estimates(settings, len(encoder.heads)))


def _estimates(settings: Settings, heads: int) -> list[CostEstimate]:
    pool = known_pool(settings)
    panel, labeler = judges_of(settings, pool)
    texts = tuple(sorted(pool.texts, key=len)[-settings.all_ks[-1] :])
    one_head = [] if labeler is None else [labeler.estimate({Head(0, 0): texts[: settings.k]})]
    parts = filter(None, (texts[: settings.k], texts[settings.k :]))
    one_head += panel.estimate([Question("L0.H0", "Backgrounds", part) for part in parts])
    return [estimate.times(heads) for estimate in one_head]


def page(settings: Settings) -> str:
    """Describe the needs of all models for a person to read. Raises InputError if no model can be used."""
    chosen = [settings.for_model(name) for name in dict.fromkeys(settings.models)]
    models, lines, failed = list[_Model](), list[tuple[str, int | None, str]](), list[InputError]()
    for of_model in chosen:
        try:
            model = _model(of_model)
        except InputError as error:
            failed.append(error)
            lines.append((of_model.clip, None, f"not counted: {error}"))
            continue
        models.append(model)
        lines.append((model.source.name, len(model.encoder.heads), model.needs))
    if not models:
        raise failed[0]
    names = _all_data(chosen)
    known = _registered(names)
    records = list(known.values())
    estimates = [estimate for model in models for estimate in model.estimates]
    weights = sum(model.weights or 0 for model in models) / 1e9
    sizes = {record.address: record.gigabytes for record in records}  # an address is fetched once
    expected, budget = sum(estimate.dollars for estimate in estimates), settings.budget
    if budget is None and not isnan(expected):
        budget = default_budget(expected)
    by_judge = [
        CostEstimate.total(judge, [estimate for estimate in estimates if estimate.judge == judge])
        for judge in dict.fromkeys(estimate.judge for estimate in estimates)
    ]
    return printed(
        "cost",
        time=_time(settings, models, records, weights + sum(sizes.values())) if records else None,
        budget=budget if estimates else None,
        by_default=settings.budget is None,
        models=lines,
        records=records,
        others=[(name, _place(name)) for name in names if name not in known],
        texts=REFERENCE
        if find_reference() is None and any(each_model.texts == REFERENCE for each_model in chosen)
        else "",
        address=ADDRESSES[0],
        judges=[*by_judge, CostEstimate.total("all", by_judge)] if estimates else [],
        weights=weights,
        sets=sum(sizes.values()),
        embeddings=max((_embedded(model, record) for model in models for record in records), default=0),
        keep=KEPT_BYTES / 1e9,
    )


def _embedded(model: _Model, record: DatasetRecord) -> float:
    """Return the GB of a set's embeddings under all ablation sets, which exist while it is measured."""
    if record.kind not in ("classification", "bias"):
        return 0.0
    n = min(record.rows, model.settings.eval_images or record.rows)
    numbers: int = n * model.source.config["embed_dim"]
    return 4e-9 * numbers * n_plans(record, model.settings, len(model.encoder.heads))


def _place(name: str) -> str:
    """Say where a set without a record is."""
    if name in {"world", *(f"world/{drawn}" for drawn in ("images", *synthetic.names()))}:
        return "generated here"
    if Path(parse_split(name)[0]).expanduser().exists():
        return "on disk"
    return "on the Hub, if anywhere" if "/" in name.removeprefix("world/") else "not found here"


# How long does it take? ---------------------------------------------------------------------------------

PEAKS = {"h100": (67e12, 3.35e12), "a100": (19.5e12, 2.04e12), "l4": (30.3e12, 0.3e12)}
"""Operations in float32 without TF32, and bytes, that a GPU can do in a second by its vendor's data."""
_HALF_PRECISION = 0.21
"""The time of a pass in bf16 or fp16 on a GPU over that in float32: 0.13 to 0.21, measured."""
_REACHED = 0.5
"""The share of these that is assumed."""
_CORE = 73e9
"""Operations a second of one core, measured: 16.7 images a second of ViT-B-32 on two (docs/gpus.md)."""
_TOUCHED = 120 * 4
"""Bytes that a pass moves for each number of a layer's activations, by the counts in docs/gpus.md."""
_PLAN = 2.7
"""Layers that one more plan costs: it shares what comes before its first head."""
_DECODED, _FETCHED, _FIGURE = 200, 50e6, 27e-6
"""Photographs a second and core, bytes a second, and seconds for the figures of an image under a plan."""


def _time(
    settings: Settings, models: Sequence[_Model], records: Sequence[DatasetRecord], gigabytes: float
) -> Mapping[str, Any]:
    """Estimate the hours of each part of a run; gigabytes: to fetch."""
    device, cores = _device(settings), os.cpu_count() or 1
    if device is None:
        return {"device": None, "known": list(PEAKS)}
    works = [_work(model, records, device) for model in models]
    passes = sum(seconds for seconds, _, _ in works) / 3600
    decoding = sum(decoded for _, decoded, _ in works) / (_DECODED * cores * 3600)
    figures = sum(figures for _, _, figures in works) * _FIGURE / 3600
    fetching = 1e9 * gigabytes / _FETCHED / 3600
    peak, moved = PEAKS.get(device, (_CORE, 0.0))
    return {
        "device": device,
        "cores": cores,
        "gigaflops": peak / 1e9,
        "precision": settings.precision.replace("auto", "bf16"),
        "moved": moved / 1e9,
        "whole": max(passes, decoding) + figures + fetching,
        "passes": passes,
        "decoding": decoding,
        "figures": figures,
        "fetching": fetching,
        "decoded": _DECODED,
        "fetched": _FETCHED / 1e6,
    }


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


def _work(model: _Model, records: Sequence[DatasetRecord], device: str) -> tuple[float, int, int]:
    """Return a model's seconds of passes, images to decode, and images of people times ablation sets."""
    settings, embedded = model.settings, set[str]()
    evaluation = 1.0 if device == "cpu" or settings.precision == "fp32" else _HALF_PRECISION
    passes, decoded, ranked = 0.0, 0, 0
    for record in records:
        statistics = record.kind == "images"
        limit = settings.max_images if statistics else settings.eval_images
        items = min(record.rows, limit or record.rows)
        images = items * max(1, record.frames)
        plans = 0 if statistics else n_plans(record, settings, len(model.encoder.heads))
        if record.address not in embedded or not record.hub:  # what sets share is embedded once
            time = images * (1 + plans * _PLAN / model.encoder.n_layers)
            passes += time if statistics else evaluation * time
            decoded += images
        embedded.add(record.address)
        ranked += plans * items * (record.kind == "bias")
    return _one_pass(model.encoder, device) * passes, decoded, ranked
