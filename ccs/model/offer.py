"""The cost of a model before any of its weights are fetched: bytes, memory, whether it can be used at all."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ccs.errors import InputError
from ccs.files import endpoint
from ccs.heads import HeadSet
from ccs.model import sources
from ccs.model.building import WEIGHTS_FILES
from ccs.model.checkpoints.weights import INDEX_FILE
from ccs.model.sources import HUB, UNTRAINED

SAFE, UNSAFE = ".safetensors", "open_clip_pytorch_model.bin"
OVERHEAD = 2**29  # bytes that a model in use needs besides its weights
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
    def sentence(self) -> str:
        """What it costs, in words."""
        fetched = "on this machine already" if self.here else f"{self.size / 1e6:,.0f} MB to fetch"
        return (
            f"{self.name}: {len(self.heads)} heads to switch off, {fetched}, and {self._memory / 1e9:.1f} GB "
            "of memory while it is loaded."
        )

    @property
    def _memory(self) -> int:
        """Bytes needed at most: the module, the file that fills it, and a pass."""
        return 2 * self.size + OVERHEAD + self.attention

    def refusal(self, freed: int = 0) -> str:
        """The reason why this machine cannot load it, or "". freed: bytes that will be freed first."""
        room = _free_disk()
        if why := _too_large(self.name, self._memory, freed):
            return why
        if not self.here and self.size > room - 2**30:
            return (
                f"The weights of {self.name} are {self.size / 1e9:.1f} GB, and this machine has "
                f"{room / 1e9:.1f} GB of disk left."
            )
        return ""


def look(name: str, *, anonymous: bool = False) -> Offer:
    """The offer for the model of that name. Raises InputError, with the reason, if it cannot be used.

    anonymous: the name comes from a stranger. It may not select a folder, and a repository on the Hub must be
    public and hold safetensors: this machine's token opens nothing for strangers.
    """
    asked = name.strip()
    if anonymous and asked.startswith(HUB):
        _weights_of(asked, sources.repository_of(asked), safe=True)
    elif anonymous and not sources.is_public(asked):
        raise InputError(sources.unknown(asked[:100]))
    source = sources.find(asked)
    tower = sources.known_tower(source)
    known = partial(Offer, heads=tower.heads, attention=tower.attention_bytes)
    if source.place is not None and source.place.folder is not None:
        files = source.place.folder.glob(f"*{SAFE}")
        return known(source.name, sum(path.stat().st_size for path in files), True)
    if source.tag == UNTRAINED:
        return known(source.name, 0, True)
    if not source.repository:
        raise InputError(f"The weights of {source.name} are not on the Hub, so their size is not known here.")
    here = _local(source.repository)
    return known(source.name, here or _weights_of(source.name, source.repository), bool(here))


def size_sentence(name: str) -> str:
    """What a model costs, in words; "" where nothing has to be fetched or its size is not known."""
    try:
        found = look(name)
    except InputError:
        return ""  # whoever loads it is told why
    return "" if found.here else found.sentence


def require_room(name: str, size: int) -> None:
    """Raise InputError, with the figures, where so many bytes are more than this machine has free."""
    if why := _too_large(name, size):
        raise InputError(why)


def _too_large(name: str, size: int, freed: int = 0) -> str:
    free = free_memory()
    if free is None or size <= free + freed:
        return ""
    return (
        f"{name} needs about {size / 1e9:.1f} GB of memory while it is in use, and this machine has "
        f"{(free + freed) / 1e9:.1f} GB free."
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


def _free_disk() -> int:
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    return shutil.disk_usage(next(each for each in (cache, *cache.parents) if each.exists())).free


def _weights_of(name: str, repository: str, *, safe: bool = False) -> int:
    """Bytes of a repository's weights, from the Hub. safe: without a token, and safetensors only."""
    import huggingface_hub

    try:
        about = huggingface_hub.HfApi(endpoint=endpoint(), token=False if safe else None).model_info(
            repository, files_metadata=True, timeout=5
        )
    except Exception as error:  # the Hub's client raises dozens of kinds
        raise InputError(f"{name} cannot be had: {_why(error)}.") from None
    sizes = {each.rfilename: each.size or 0 for each in about.siblings or []}
    if safe and about.gated:
        raise InputError(f"{name} is gated on the Hub: its terms must be accepted by the machine's owner.")
    if whole := [sizes[file] for file in (*WEIGHTS_FILES, *(() if safe else (UNSAFE,))) if file in sizes]:
        return whole[0]
    if shards := [size for file, size in sizes.items() if file.endswith(SAFE)]:
        return sum(shards)
    raise InputError(f"{name} cannot be used: its repository holds no safetensors.")


def _why(error: Exception) -> str:
    """The reason in words, without the error's own text, which may quote request headers."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None:
        return "the Hub could not be reached"
    meaning = {401: "there is no such public repository", 404: "there is no such repository"}
    meaning |= {403: "access is not allowed", 429: "the Hub has been asked too often; try again in a minute"}
    return f"{meaning.get(status, 'the Hub refused')} (status {status})"


def _local(repository: str) -> int:
    """Bytes of a repository's weights in the cache; 0 if there are none."""
    from huggingface_hub import try_to_load_from_cache

    for file in (*WEIGHTS_FILES, UNSAFE, INDEX_FILE):
        if isinstance(path := try_to_load_from_cache(repository, file), str):
            files = Path(path).parent.glob(f"*{SAFE}") if file == INDEX_FILE else [Path(path)]
            return sum(each.stat().st_size for each in files)
    return 0
