"""The needs of a run before it starts: access to models and sets (`require`), and a page of downloads, terms,
requests to judges, dollars, hours, and disk space (`describe_needs`).

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

import numpy as np
import torch

from ccs.batch.compute import Settings
from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.judge import judges_of, known_pool, require_judges
from ccs.batch.compute.run import KEPT_BYTES, count_ablations
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
from ccs.results.hub_repository import Repository
from ccs.texts.pools import ADDRESSES, REFERENCE, find_reference


def require(by_model: Sequence[Settings], tell: Callable[[str], None]) -> list[Settings]:
    """Check that judges, models, and sets can be used, and that there is room for what is fetched.

    Args:
        by_model: The settings of each model.
        tell: Gets a sentence for each model to fetch, and for each model or set that is left out.

    Returns:
        The settings whose model is accessible.

    Raises:
        InputError: The only model, the images of the statistics, a judge, or a set that the user names isn't
            accessible, the results can't be published, or the disk has no room.
    """
    for settings in by_model:
        require_judges(settings)
    if by_model[0].publish:
        Repository(by_model[0].publish).require_login()
    return _accessible(by_model, tell)


def _accessible(by_model: Sequence[Settings], tell: Callable[[str], None]) -> list[Settings]:
    accessible, size = list[Settings](), 0.0
    for settings in by_model:
        try:
            size += _weights_to_fetch(settings.clip, tell)
            accessible.append(settings)
        except InputError as error:
            if len(by_model) == 1:
                raise
            tell(f"error: {settings.models[0]} is left out: {error}")
    required = {name for settings in accessible for name in (*settings.datasets, *settings.galleries)}
    required |= {settings.images for settings in accessible}
    download = dict[str, float]()
    for name, record in _records(_data_names(accessible)).items():
        try:
            download[record.address] = _set_to_fetch(record)
        except InputError as error:
            if name in required:
                raise
            tell(f"{name} is left out: {error}")
    _require_disk(size + sum(download.values()))
    return accessible


def _data_names(by_model: Sequence[Settings]) -> list[str]:
    """Return the names of all images and sets, each once."""
    names = ((settings.images, *names_of_sets(settings), *settings.galleries) for settings in by_model)
    return list(dict.fromkeys(name for of_model in names for name in of_model))


def _records(names: Iterable[str]) -> dict[str, DatasetRecord]:
    return {name: record for name in names if (record := SOURCES.get(ALIASES.get(name, name)))}


def _weights_to_fetch(name: str, tell: Callable[[str], None]) -> float:
    """Return the bytes of a model's weights that are not here."""
    model, repository = footprint(name), sources.find(name).repository
    if model.here or not repository:
        return 0
    from huggingface_hub import HfApi

    connected()
    with explained(name, repository, copy=False):
        HfApi(endpoint=endpoint()).auth_check(repository)
    tell(model.sentence)
    return model.size


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

    def ablations(self, record: DatasetRecord) -> int:
        """Estimate the number of ablation sets on a dataset."""
        return count_ablations(record, self.settings, len(self.encoder.heads))


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


def describe_needs(settings: Settings) -> str:
    """Describe the needs of all models for a person to read. Raises InputError if no model can be used."""
    by_model = [settings.for_model(name) for name in dict.fromkeys(settings.models)]
    models, lines, errors = list[_Model](), list[tuple[str, int | None, str]](), list[InputError]()
    for model_settings in by_model:
        try:
            model = _model(model_settings)
        except InputError as error:
            errors.append(error)
            lines.append((model_settings.clip, None, f"not counted: {error}"))
            continue
        models.append(model)
        lines.append((model.source.name, len(model.encoder.heads), model.needs))
    if not models:
        raise errors[0]
    names = _data_names(by_model)
    records = _records(names)
    estimates = [estimate for model in models for estimate in model.estimates]
    weights = sum(model.weights or 0 for model in models) / 1e9
    sets = sum({record.address: record.gigabytes for record in records.values()}.values())  # fetched once
    expected, budget = sum(estimate.dollars for estimate in estimates), settings.budget
    if budget is None and not isnan(expected):
        budget = default_budget(expected)
    by_judge = [
        CostEstimate.total(judge, [estimate for estimate in estimates if estimate.judge == judge])
        for judge in dict.fromkeys(estimate.judge for estimate in estimates)
    ]
    no_reference = any(model.texts == REFERENCE for model in by_model) and find_reference() is None
    return printed(
        "cost",
        time=_time(settings, models, list(records.values()), weights + sets) if records else None,
        budget=budget if estimates else None,
        by_default=settings.budget is None,
        models=lines,
        records=list(records.values()),
        others=[(name, _place(name)) for name in names if name not in records],
        texts=REFERENCE if no_reference else "",
        address=ADDRESSES[0],
        judges=[*by_judge, CostEstimate.total("all", by_judge)] if estimates else [],
        weights=weights,
        sets=sets,
        embeddings=max((_embedded(m, record) for m in models for record in records.values()), default=0),
        largest_kept=KEPT_BYTES / 1e9,
    )


def _embedded(model: _Model, record: DatasetRecord) -> float:
    """Return the GB of a set's embeddings under all ablation sets, which exist while it is measured."""
    if record.kind not in ("classification", "bias"):
        return 0.0
    images = min(record.rows, model.settings.eval_images or record.rows)
    numbers: int = images * model.source.config["embed_dim"] * model.ablations(record)
    return 4e-9 * numbers


def _place(name: str) -> str:
    """Say where a set without a record is."""
    if name in {"world", *(f"world/{part}" for part in ("images", *synthetic.names()))}:
        return "generated here"
    if Path(parse_split(name)[0]).expanduser().exists():
        return "on disk"
    return "on the Hub, if anywhere" if "/" in name.removeprefix("world/") else "not found here"


# How long it takes --------------------------------------------------------------------------------------

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
_LAYERS_OF_ABLATION = 2.9
"""Layers that one more ablation set costs, measured (2.8 to 2.9): it shares those before its first head."""
_DECODED, _FETCHED, _MEASURED = 200, 50e6, 27e-6
"""Photographs a second and core, bytes a second, and seconds for the metrics of an image under ablation."""


def _time(
    settings: Settings, models: Sequence[_Model], records: Sequence[DatasetRecord], gigabytes: float
) -> Mapping[str, Any]:
    """Estimate the hours of each part of a run; gigabytes: to fetch."""
    device, cores = _device(settings), os.cpu_count() or 1
    if device is None:
        return {"device": None, "known": list(PEAKS)}
    works = [_work(model, records, device) for model in models]
    seconds = {
        "passes": sum(passes for passes, _, _ in works),
        "decoding": sum(decoded for _, decoded, _ in works) / (_DECODED * cores),
        "metrics": sum(ranked for _, _, ranked in works) * _MEASURED,
        "fetching": 1e9 * gigabytes / _FETCHED,
    }
    hours = {part: value / 3600 for part, value in seconds.items()}
    peak, moved = PEAKS.get(device, (_CORE, 0.0))
    return hours | {
        "device": device,
        "cores": cores,
        "gigaflops": peak / 1e9,
        "precision": settings.precision.replace("auto", "bf16"),
        "moved": moved / 1e9,
        "whole": max(hours["passes"], hours["decoding"]) + hours["metrics"] + hours["fetching"],
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
    single = device == "cpu" or settings.precision == "fp32"
    evaluation = 1.0 if single else float(np.interp(model.encoder.n_tokens, *_HALF_PRECISION))
    passes, decoded, ranked = 0.0, 0, 0
    for record in records:
        statistics = record.kind == "images"
        limit = settings.max_images if statistics else settings.eval_images
        items = min(record.rows, limit or record.rows)
        images = items * max(1, record.frames)
        ablations = 0 if statistics else model.ablations(record)
        if record.address not in embedded or not record.hub:  # what sets share is embedded once
            time = images * (1 + ablations * _LAYERS_OF_ABLATION / model.encoder.n_layers)
            passes += time if statistics else evaluation * time
            decoded += images
        embedded.add(record.address)
        ranked += ablations * items * (record.kind == "bias")
    return _one_pass(model.encoder, device) * passes, decoded, ranked
