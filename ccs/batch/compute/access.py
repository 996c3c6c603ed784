"""Whether a run's models and sets can be had, and the disk holds them: asked before anything is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.settings import Settings
from ccs.errors import InputError
from ccs.files import endpoint
from ccs.model.loading import sources
from ccs.model.loading.footprint import footprint
from ccs.sets import SOURCES, DatasetRecord, excerpts
from ccs.sets.fetching import connected, explained
from ccs.sets.known_sets import ALIASES
from ccs.sets.open import local_copy


def usable(chosen: Sequence[Settings], tell: Callable[[str], None]) -> list[Settings]:
    """The settings whose model can be had; each thing that cannot is told once.

    Raises InputError where that is the only model, the images of the moments or a set that was asked for by
    name, and where the disk has no room for what is to be fetched.
    """
    found, size = list[Settings](), 0.0
    for one in chosen:
        try:
            size += _model(one.clip)
            found.append(one)
        except InputError as error:
            if len(chosen) == 1:
                raise
            tell(f"error: {one.models[0]} is left out: {error}")
    needed = dict.fromkeys(one.images for one in found)
    optional = dict.fromkeys(name for one in found for name in names_of_sets(one) if name not in one.sets)
    needed |= dict.fromkeys(name for one in found for name in (*one.sets, *one.people))
    fetched = dict[str, float]()
    for name in needed | optional:
        if (record := SOURCES.get(ALIASES.get(name, name))) is None:
            continue
        try:
            fetched[record.address] = _set(record)
        except InputError as error:
            if name in needed:
                raise
            tell(f"{name} is left out: {error}")
    _require_disk(size + sum(fetched.values()))
    return found


def _model(name: str) -> float:
    """Bytes of weights to fetch."""
    takes = footprint(name)
    repository = sources.find(name).repository
    if takes.here or not repository:
        return 0
    from huggingface_hub import HfApi

    connected()
    with explained(name, repository, copy=False):
        HfApi(endpoint=endpoint()).auth_check(repository)
    return takes.size


def _set(record: DatasetRecord) -> float:
    """Bytes to fetch of a set, nothing where it is here."""
    if local_copy(record) is not None or (record.excerpt and excerpts.kept(record).exists()):
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

    place = Path(constants.HF_HOME)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if size > free:
        raise InputError(
            f"{size / 1e9:.1f} GB are to be fetched, and {place} has {free / 1e9:.1f} GB free: make room, "
            "or name a folder on another disk in HF_HOME."
        )
