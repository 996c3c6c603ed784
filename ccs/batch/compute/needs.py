"""What a run needs, asked before it starts: whether models and sets can be had (`usable`), and a page of
downloads and their terms, requests to judges, dollars, hours and disk.

For the page nothing is opened, fetched or computed: sizes and licenses are those of the registered sets'
records, heads and weights are counted on open_clip's configuration, and questions on the pool of texts.
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
from ccs.data.open import local_copy
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
    """The settings whose model can be had; each thing that cannot is told once. InputError where that is the
    only model, the images of the moments or a set that was asked for by name, or where the disk has no room.
    """
    found, size = list[Settings](), 0.0
    for one in chosen:
        try:
            size += _weights_to_fetch(one.clip)
            found.append(one)
        except InputError as error:
            if len(chosen) == 1:
                raise
            tell(f"error: {one.models[0]} is left out: {error}")
    needed = dict.fromkeys(one.images for one in found)
    optional = dict.fromkeys(name for one in found for name in names_of_sets(one) if name not in one.datasets)
    needed |= dict.fromkeys(name for one in found for name in (*one.datasets, *one.galleries))
    fetched = dict[str, float]()
    for name, record in _registered(needed | optional).items():
        try:
            fetched[record.address] = _set_to_fetch(record)
        except InputError as error:
            if name in needed:
                raise
            tell(f"{name} is left out: {error}")
    _require_disk(size + sum(fetched.values()))
    return found


def _registered(names: Iterable[str]) -> dict[str, DatasetRecord]:
    return {name: record for name in names if (record := SOURCES.get(ALIASES.get(name, name)))}


def _weights_to_fetch(name: str) -> float:
    """Bytes of a model's weights that are not here."""
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
    """Bytes of a set that are not here."""
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
        about = api.dataset_info(record.hub, revision=record.revision, files_metadata=True, timeout=30)
    return 0 if held else min(record.gigabytes * 1e9, sum(file.size or 0 for file in about.siblings or []))


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
    """One of the models. weights: bytes to fetch, in single precision, None where shapes do not tell. asked:
    of language models about all heads, with the pool's longest texts.
    """

    settings: Settings
    source: sources.Source
    tower: ImageEncoder
    weights: float | None
    asked: Sequence[CostEstimate]

    @property
    def needs(self) -> str:
        if self.weights is None:
            return "weights of unknown size to fetch"
        return f"{self.weights / 1e9:.2f} GB of weights, unless they are here" if self.weights else "here"


def _model(settings: Settings) -> _Model:
    if settings.clip.startswith(HUB):
        raise InputError("its configuration is on the Hub, and nothing is fetched.")
    source = sources.find(settings.clip)
    tower = sources.known_tower(source, settings.layers)
    weights: float | None = 4 * source.values
    if source.place is not None or source.tag == UNTRAINED:
        weights = 0
    elif source.config["text_cfg"].get("hf_model_name"):
        weights = None  # its text tower is described on the Hub
    return _Model(settings, source, tower, weights, _asked(settings, len(tower.heads)))


def _asked(settings: Settings, heads: int) -> list[CostEstimate]:
    pool = known_pool(settings)
    panel, labeler = judges_of(settings, pool)
    texts = tuple(sorted(pool.texts, key=len)[-settings.all_ks[-1] :])
    one_head = [] if labeler is None else [labeler.estimate({Head(0, 0): texts[: settings.k]})]
    parts = filter(None, (texts[: settings.k], texts[settings.k :]))
    one_head += panel.estimate([Question("L0.H0", "Backgrounds", part) for part in parts])
    return [one.times(heads) for one in one_head]


def page(settings: Settings) -> str:
    """The needs of all models, for a person to read. Raises InputError if none can be used."""
    chosen = [settings.for_model(name) for name in dict.fromkeys(settings.models)]
    models, lines, failed = list[_Model](), list[tuple[str, int | None, str]](), list[InputError]()
    for one in chosen:
        try:
            model = _model(one)
        except InputError as error:
            failed.append(error)
            lines.append((one.clip, None, f"not counted: {error}"))
            continue
        models.append(model)
        lines.append((model.source.name, len(model.tower.heads), model.needs))
    if not models:
        raise failed[0]
    names = dict.fromkeys(
        name for one in chosen for name in (one.images, *names_of_sets(one), *one.galleries)
    )
    known = _registered(names)
    records, asked = list(known.values()), [estimate for model in models for estimate in model.asked]
    weights = sum(model.weights or 0 for model in models) / 1e9
    sizes = {record.address: record.gigabytes for record in records}  # an address is fetched once
    expected, budget = sum(one.dollars for one in asked), settings.budget
    if budget is None and not isnan(expected):
        budget = default_budget(expected)
    judges = dict.fromkeys(one.judge for one in asked)
    by_judge = [CostEstimate.total(name, [one for one in asked if one.judge == name]) for name in judges]
    return printed(
        "cost",
        time=_time(settings, models, records, weights + sum(sizes.values())) if records else None,
        budget=budget if asked else None,
        by_default=settings.budget is None,
        models=lines,
        records=records,
        others=[(name, _place(name)) for name in names if name not in known],
        texts=REFERENCE if find_reference() is None and any(one.texts == REFERENCE for one in chosen) else "",
        address=ADDRESSES[0],
        judges=[*by_judge, CostEstimate.total("all", by_judge)] if asked else [],
        weights=weights,
        sets=sum(sizes.values()),
        embeddings=max((_embedded(model, record) for model in models for record in records), default=0),
        keep=KEPT_BYTES / 1e9,
    )


def _embedded(model: _Model, record: DatasetRecord) -> float:
    """GB of a set's embeddings under every plan, which are there while it is measured."""
    if record.kind not in ("classification", "bias"):
        return 0.0
    n = min(record.rows, model.settings.eval_images or record.rows)
    numbers: int = n * model.source.config["embed_dim"]
    return 4e-9 * numbers * n_plans(record, model.settings, len(model.tower.heads))


def _place(name: str) -> str:
    """Where a set that has no record is."""
    if name in {"world", *(f"world/{drawn}" for drawn in ("images", *synthetic.names()))}:
        return "drawn here"
    if Path(name).expanduser().exists():
        return "on disk"
    return "on the Hub, if anywhere" if "/" in name.removeprefix("world/") else "not found here"


# How long does it take? ---------------------------------------------------------------------------------

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


def _time(
    settings: Settings, models: Sequence[_Model], records: Sequence[DatasetRecord], gigabytes: float
) -> Mapping[str, Any]:
    """Hours of each part of a run, and what they rest on; gigabytes: to fetch."""
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
    """The device that an estimate is for: a key of `PEAKS` or cpu; None for a GPU that is not known here."""
    if settings.device_like is not None:
        return settings.device_like
    device = usable_device(settings.device)
    if device.type == "cpu":
        return "cpu"
    named = torch.cuda.get_device_name(device).lower().replace("-", " ").split()
    return next((name for name in PEAKS if name in named), None)


def _one_pass(tower: ImageEncoder, device: str) -> float:
    """Seconds for one image."""
    layers, tokens, width = tower.n_layers, tower.n_tokens, tower.width
    operations = layers * (24 * tokens * width**2 + 4 * tokens**2 * width)
    if device == "cpu":
        return operations / (_CORE * (os.cpu_count() or 1))
    peak, moved = PEAKS[device]
    return max(operations / peak, _TOUCHED * layers * tokens * width / moved) / _REACHED


def _work(model: _Model, records: Sequence[DatasetRecord], device: str) -> tuple[float, int, int]:
    """Of one model: seconds of its passes, images that are decoded, images of people times plans."""
    settings, seen = model.settings, set[str]()
    passes, decoded, figures = 0.0, 0, 0
    for record in records:
        most = settings.max_images if record.kind == "images" else settings.eval_images
        items = min(record.rows, most or record.rows)
        images = items * max(1, record.frames)
        plans = 0 if record.kind == "images" else n_plans(record, settings, len(model.tower.heads))
        if record.address not in seen or not record.hub:  # what sets share is embedded once
            passes += images * (1 + plans * _PLAN / model.tower.n_layers)
            decoded += images
        seen.add(record.address)
        figures += plans * items * (record.kind == "bias")
    return _one_pass(model.tower, device) * passes, decoded, figures
