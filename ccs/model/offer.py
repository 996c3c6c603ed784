"""What a model costs before any of its weights are fetched: bytes and memory, and whether it can be used."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from ccs.errors import InputError
from ccs.files import endpoint
from ccs.heads import HeadSet
from ccs.model import sources
from ccs.model.building import WEIGHTS_FILES
from ccs.model.sources import HUB, UNTRAINED

OVERHEAD = 2**29  # bytes that a model in use needs besides its weights
_PICKLE, _SUFFIXES = "open_clip_pytorch_model.bin", (".safetensors", ".bin")
_PROC, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Offer:
    """A model that could be loaded.

    size: bytes of its weights. here: whether they are on this machine. heads: those that can be switched off.
    attention: bytes of a pass, at most, see `ImageTower.attention_bytes`.
    """

    name: str
    size: int
    here: bool
    heads: HeadSet
    attention: int = 0

    @property
    def memory(self) -> int:
        """Bytes needed at most: the module, the file that fills it, and a pass."""
        return 2 * self.size + OVERHEAD + self.attention

    @property
    def sentence(self) -> str:
        """What it costs, in words."""
        fetched = "on this machine already" if self.here else f"{self.size / 1e6:,.0f} MB to fetch"
        return (
            f"{self.name}: {len(self.heads)} heads to switch off, {fetched}, and {self.memory / 1e9:.1f} GB "
            "of memory while it is loaded."
        )


def look(name: str, *, anonymous: bool = False) -> Offer:
    """The offer for the model of that name. Raises InputError, with the reason, if it cannot be used.

    anonymous: the name comes from a stranger. It may not select a folder, and a repository on the Hub must be
    public and hold safetensors: this machine's token opens nothing for strangers.
    """
    asked, size, here = name.strip(), 0, 0
    if anonymous and asked.startswith(HUB):
        size = _on_the_hub(asked, sources.repository_of(asked), safe=True)
    elif anonymous and not sources.is_public(asked):
        raise InputError(sources.unknown(asked[:100]))
    source = sources.find(asked)
    tower = sources.known_tower(source)
    if source.place is not None and source.place.folder is not None:
        here = _held(source.place.folder)
    elif source.repository:
        here = _cached(source.repository)
        size = here or size or _on_the_hub(source.name, source.repository)
    elif source.tag != UNTRAINED:
        raise InputError(f"The weights of {source.name} are not on the Hub, so their size is not known here.")
    return Offer(source.name, here or size, bool(here) or not size, tower.heads, tower.attention_bytes)


def size_sentence(name: str) -> str:
    """What a model costs, in words; "" where nothing has to be fetched or its size is not known."""
    try:
        found = look(name)
    except InputError:
        return ""  # whoever loads it is told why
    return "" if found.here else found.sentence


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


def _on_the_hub(name: str, repository: str, *, safe: bool = False) -> int:
    """Bytes of a repository's weights, from the Hub. safe: without a token, and safetensors only."""
    import huggingface_hub

    try:
        about = huggingface_hub.HfApi(endpoint=endpoint(), token=False if safe else None).model_info(
            repository, files_metadata=True, timeout=5
        )
    except Exception as error:  # the Hub's client raises dozens of kinds, whose text may quote headers
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = "the Hub could not be reached" if status is None else f"the Hub refused (status {status})"
        why = "there is no such public repository" if status in (401, 404) else why
        raise InputError(f"{name} cannot be had: {why}.") from None
    if safe and about.gated:
        raise InputError(f"{name} is gated on the Hub: its terms must be accepted by the machine's owner.")
    sizes = {each.rfilename: each.size or 0 for each in about.siblings or []}
    if whole := [sizes[file] for file in (*WEIGHTS_FILES, *(() if safe else (_PICKLE,))) if file in sizes]:
        return whole[0]
    if shards := [size for file, size in sizes.items() if file.endswith(".safetensors")]:
        return sum(shards)
    raise InputError(f"{name} cannot be used: its repository holds no safetensors.")


def _cached(repository: str) -> int:
    """Bytes of a repository's weights in the cache; 0 if there are none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return _held(Path(snapshot_download(repository, local_files_only=True)))
    except LocalEntryNotFoundError:
        return 0


def _held(folder: Path) -> int:
    """Bytes of the weights in a folder."""
    sizes = [(path.suffix, path.stat().st_size) for path in folder.iterdir()]
    return next(filter(None, (sum(size for kind, size in sizes if kind == one) for one in _SUFFIXES)), 0)
