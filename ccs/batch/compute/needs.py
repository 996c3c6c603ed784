"""Access to models, judges, and datasets, and room on the disk, before a run starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from huggingface_hub import HfApi, constants

from ccs.batch.compute import Settings
from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.judge import require_judges
from ccs.data import ALIASES, SOURCES, DatasetRecord, untrusted
from ccs.data.hub import connected, explained
from ccs.data.open import local_copy
from ccs.errors import InputError
from ccs.files import endpoint
from ccs.model.loading import sources
from ccs.model.loading.footprint import footprint


def require(by_model: Sequence[Settings], tell: Callable[[str], None]) -> list[Settings]:
    """Check that judges, models, and sets can be used, and that there is room for what is fetched.

    Args:
        by_model: The settings of each model.
        tell: Gets a sentence for each model to fetch, and for each model or set that is left out.

    Returns:
        The settings whose model is accessible.

    Raises:
        InputError: The only model, the images of the statistics, a judge, or a set that the user names isn't
            accessible, or the disk has no room.
    """
    for settings in by_model:
        require_judges(settings)
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
    for name, record in known_records(names_of_data(accessible)).items():
        try:
            download[record.address] = _set_to_fetch(record)
        except InputError as error:
            if name in required:
                raise
            tell(f"{name} is left out: {error}")
    _require_disk(size + sum(download.values()))
    return accessible


def names_of_data(by_model: Sequence[Settings]) -> list[str]:
    """Return the names of all images and sets, each once."""
    names = ((settings.images, *names_of_sets(settings), *settings.galleries) for settings in by_model)
    return list(dict.fromkeys(name for of_model in names for name in of_model))


def known_records(names: Iterable[str]) -> dict[str, DatasetRecord]:
    """Return the records of the known sets among some names."""
    return {name: record for name in names if (record := SOURCES.get(ALIASES.get(name, name)))}


def _weights_to_fetch(name: str, tell: Callable[[str], None]) -> float:
    """Return the bytes of a model's weights that are not here."""
    model, repository = footprint(name), sources.find(name).repository
    if model.here or not repository:
        return 0
    connected()
    with explained(name, repository, copy=False):
        HfApi(endpoint=endpoint()).auth_check(repository)
    tell(f"{model.name}: {model.size / 1e6:,.0f} MB to download.")
    return model.size


def _set_to_fetch(record: DatasetRecord) -> float:
    """Return the bytes of a set that are not here."""
    if local_copy(record) is not None or (record.excerpt and untrusted.excerpt_file(record).exists()):
        return 0
    assert record.hub is not None
    connected()
    held = (Path(constants.HF_HUB_CACHE) / f"datasets--{record.hub.replace('/', '--')}").exists()
    if not (held and constants.HF_HUB_OFFLINE):
        with explained(record.name, record.hub):
            HfApi(endpoint=endpoint()).auth_check(record.hub, repo_type="dataset")
    return 0 if held else record.gigabytes * 1e9


def _require_disk(size: float) -> None:
    home = Path(constants.HF_HOME).absolute()
    place = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise InputError(
            f"{size / 1e9:.1f} GB are to be fetched, and {place} has {free / 1e9:.1f} GB free: make room, "
            "or name a folder on another disk in HF_HOME."
        )
