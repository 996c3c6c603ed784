"""The size of a model: bytes to download, and memory while it is in use."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ccs.errors import InputError
from ccs.files import endpoint
from ccs.model.loading import sources
from ccs.model.loading.config import MAX_CONFIG_BYTES

OVERHEAD = 2**29  # bytes that a model in use needs besides its weights
_PICKLE = "open_clip_pytorch_model.bin"  # all that some tags of open_clip have
_PROC, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Footprint:
    """The size of a model in bytes.

    Attributes:
        name: The model's name.
        size: The size of its weights; 0 if it has none, or if it is unknown.
        here: Whether nothing has to be downloaded.
        memory: An upper bound for the module, the file that fills it, and a pass.
    """

    name: str
    size: int
    here: bool
    memory: int


def footprint(name: str) -> Footprint:
    """Return the size of a model.

    Args:
        name: As in `ccs.load`.

    Raises:
        InputError: If there is no such model, or the heads of its encoder are unknown.
    """
    source = sources.find_model(name)
    folder = _cached(source.repository) if source.place is None or source.repository else source.place.folder
    held = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()} if folder else {}
    size = _size(source, held)
    here = bool(size) or not source.repository
    size = size or (_size(source, _on_the_hub(source.repository)) if source.repository else 0)
    return Footprint(source.name, size, here, memory(source, size))


def memory(source: sources.Source, size: int, values: int | None = None) -> int:
    """Return an upper bound for the memory of a model in use: four bytes per weight, plus its files.

    Args:
        source: The model.
        size: Bytes of its files.
        values: The number of its weights, if known.
    """
    if values is None and source.tag != sources.UNTRAINED:
        values = size // 4
        if not source.config["text_cfg"].get("hf_model_name"):  # counting would ask the Hub
            with contextlib.suppress(Exception):  # reported when it is loaded
                values = source.values
    return 4 * (values or 0) + size + OVERHEAD + source.attention_bytes


def require_room(subject: str, size: int) -> None:
    """Check that this machine has enough free memory.

    Args:
        subject: The subject of the error's sentence.
        size: Bytes that are needed.

    Raises:
        InputError: If it has less.
    """
    free = free_memory()
    if free is not None and size > free:
        needed, free_gb = f"{size / 1e9:.1f} GB", f"{free / 1e9:.1f} GB"
        raise InputError(f"{subject} needs about {needed} of memory, and this machine has {free_gb} free.")


def free_memory() -> int | None:
    """Return the bytes of memory that this process may still use, or None if unknown."""
    limits = []
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = _PROC.read_text("ascii").splitlines()
        limits.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, KeyError, ValueError):  # no such group, or "max"
        limit, used = (int((_CGROUP / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
        lines = (_CGROUP / "memory.stat").read_text("ascii").splitlines()
        limits.append(limit - used + int(dict(line.split() for line in lines)["inactive_file"]))
    return min(limits, default=None)


def _on_the_hub(repository: str) -> dict[str, int]:
    """Bytes by file of a repository; nothing if the Hub doesn't say."""
    import huggingface_hub

    try:
        info = huggingface_hub.HfApi(endpoint=endpoint()).model_info(
            repository, files_metadata=True, timeout=5
        )
    except Exception:  # the Hub's client raises dozens of kinds; `load` reports the reason
        return {}
    return {file.rfilename: file.size or 0 for file in info.siblings or []}


def _cached(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, local_files_only=True)) if repository else None
    except LocalEntryNotFoundError:
        return None


def _size(source: sources.Source, files: Mapping[str, int]) -> int:
    """Bytes of the files that hold the model's weights; 0 if one is missing."""
    from ccs.model.loading.weights import INDEX_FILE, WEIGHTS_FILE, WEIGHTS_FILES, shards  # imports PyTorch

    names = [next((name for name in (*WEIGHTS_FILES, _PICKLE) if name in files), "")]
    if source.place is not None and source.checkpoint:
        names = [WEIGHTS_FILE]
        if INDEX_FILE in files:
            with contextlib.suppress(Exception):  # reported when it is loaded
                names = shards(source.place.read(INDEX_FILE, MAX_CONFIG_BYTES) or b"")
    return sum(files[name] for name in names) if all(name in files for name in names) else 0
