"""What a model takes: bytes to fetch, and memory while it is in use."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ccs.errors import InputError
from ccs.files import endpoint
from ccs.model.loading import sources
from ccs.model.loading.config import MAX_CONFIG_BYTES
from ccs.model.loading.weights import INDEX_FILE, WEIGHTS_FILE, WEIGHTS_FILES, shards

OVERHEAD = 2**29  # bytes that a model in use needs besides its weights
_PICKLE = "open_clip_pytorch_model.bin"  # all that some tags of open_clip have
_PROC, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Footprint:
    """What a model takes, in bytes.

    size: of its weights, 0 where it has none or nobody says. here: nothing has to be fetched. memory: at
    most, for the module, the file that fills it, and a pass.
    """

    name: str
    size: int
    here: bool
    memory: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.name}: {self.size / 1e6:,.0f} MB to fetch, and {self.memory / 1e9:.1f} GB of memory "
            "while it is loaded."
        )


def footprint(name: str, token: bool | None = None) -> Footprint:
    """What the model of that name takes. Raises InputError if there is none, or its encoder is not known.

    token: see `sources.find`.
    """
    source = sources.find(name, token)
    folder = _cached(source.repository) if source.place is None or source.repository else source.place.folder
    held = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()} if folder else {}
    size = _size(source, held)
    here = bool(size) or not source.repository
    size = size or (_size(source, _on_the_hub(source.repository, token)) if source.repository else 0)
    return Footprint(source.name, size, here, memory(source, size))


def memory(source: sources.Source, size: int, values: int | None = None) -> int:
    """Bytes at most of a model in use whose files have this size: four a value, and the files beside them."""
    if values is None and source.tag != sources.UNTRAINED:
        values = size // 4
        if not source.config["text_cfg"].get("hf_model_name"):  # else counting would ask the Hub
            with contextlib.suppress(Exception):  # what open_clip cannot build is told when it is loaded
                values = source.values
    return 4 * (values or 0) + size + OVERHEAD + source.attention_bytes


def untrusted_footprint(name: str) -> Footprint:
    """`footprint` of a model that a stranger names.

    Raises InputError for a folder, for what this machine has no room for, and for a repository on the Hub
    that is not public, gated or without safetensors: this machine's token opens nothing for strangers.
    """
    asked = name.strip()
    if not asked.startswith(sources.HUB) and not sources.is_public(asked):
        raise InputError(sources.unknown(asked[:100]))
    if asked.startswith(sources.HUB):
        _require_public(asked, sources.repository_of(asked))
    found = footprint(asked, token=False)
    if not found.here:
        require_room(found.name, found.memory)
    return found


def _require_public(name: str, repository: str) -> None:
    import huggingface_hub

    try:
        about = huggingface_hub.HfApi(endpoint=endpoint(), token=False).model_info(repository, timeout=5)
    except Exception as error:  # the Hub's client raises dozens of kinds, whose text may quote headers
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = "the Hub could not be reached" if status is None else f"the Hub refused (status {status})"
        why = "there is no such public repository" if status in (401, 404) else why
        raise InputError(f"{name} cannot be had: {why}.") from None
    if about.gated:
        raise InputError(f"{name} is gated on the Hub: its terms must be accepted by the machine's owner.")
    if not any(each.rfilename.endswith(".safetensors") for each in about.siblings or []):
        raise InputError(f"{name} cannot be used: its repository holds no safetensors.")


def require_room(what: str, size: int) -> None:
    """Raise InputError, with the figures, where so many bytes are more than this machine has free."""
    free = free_memory()
    if free is not None and size > free:
        raise InputError(
            f"{what} needs about {size / 1e9:.1f} GB of memory, and this machine has "
            f"{free / 1e9:.1f} GB free."
        )


def free_memory() -> int | None:
    """Bytes of memory that this process may still use, here or in its container; None where unknown."""
    found = []
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = _PROC.read_text("ascii").splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, KeyError, ValueError):  # no such group, or "max"
        limit, used = (int((_CGROUP / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
        lines = (_CGROUP / "memory.stat").read_text("ascii").splitlines()
        found.append(limit - used + int(dict(line.split() for line in lines)["inactive_file"]))
    return min(found, default=None)


def _on_the_hub(repository: str, token: bool | None) -> dict[str, int]:
    """Bytes by file of a repository; none where the Hub does not say."""
    import huggingface_hub

    try:
        api = huggingface_hub.HfApi(endpoint=endpoint(), token=token)
        about = api.model_info(repository, files_metadata=True, timeout=5)
    except Exception:  # the Hub's client raises dozens of kinds; whoever loads the model is told why
        return {}
    return {each.rfilename: each.size or 0 for each in about.siblings or []}


def _cached(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, local_files_only=True)) if repository else None
    except LocalEntryNotFoundError:
        return None


def _size(source: sources.Source, files: Mapping[str, int]) -> int:
    """Bytes of those of the files that are read as the model's weights; 0 where one is not there."""
    names = [next((name for name in (*WEIGHTS_FILES, _PICKLE) if name in files), "")]
    if source.place is not None and source.checkpoint:
        names = [WEIGHTS_FILE]
        if INDEX_FILE in files:
            with contextlib.suppress(Exception):  # said when it is loaded
                names = shards(source.place.read(INDEX_FILE, MAX_CONFIG_BYTES) or b"")
    return sum(files[name] for name in names) if all(name in files for name in names) else 0
