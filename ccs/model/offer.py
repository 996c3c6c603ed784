"""The cost of a model before any of its weights are fetched: bytes, memory, whether it can be used at all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ccs.errors import InputError
from ccs.files import endpoint
from ccs.heads import HeadSet
from ccs.model import sources
from ccs.model.building import WEIGHTS_FILES
from ccs.model.checkpoints.weights import INDEX_FILE
from ccs.model.sources import HUB, UNTRAINED, Source

SAFE, UNSAFE = ".safetensors", "open_clip_pytorch_model.bin"
OVERHEAD = 2**29  # bytes that a model in use needs besides its weights
_GIGABYTE = 1e9
_PROC, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_CGROUPS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True)
class Offer:
    """A model that could be loaded.

    size: bytes of its weights. here: whether they are on this machine. repository: where they are on the Hub,
    "" for a folder. heads: those that can be switched off.
    """

    name: str
    size: int
    here: bool
    repository: str
    heads: HeadSet

    @property
    def memory(self) -> int:
        """Bytes needed while it is loaded: the module and the file that fills it."""
        return 2 * self.size + OVERHEAD

    def refusal(self, freed: int = 0) -> str:
        """The reason why this machine cannot load it, or "". freed: bytes that will be freed first."""
        free, room = free_memory(), shutil.disk_usage(_existing(_cache())).free
        if free is not None and self.memory > free + freed:
            return (
                f"{self.name} needs about {self.memory / _GIGABYTE:.1f} GB of memory while it is loaded, and "
                f"this machine has {(free + freed) / _GIGABYTE:.1f} GB free."
            )
        if not self.here and self.size > room - 2**30:
            return (
                f"The weights of {self.name} are {self.size / _GIGABYTE:.1f} GB, and this machine has "
                f"{room / _GIGABYTE:.1f} GB of disk left."
            )
        return ""

    def fetched(self) -> int:
        """Bytes of its weights that have been fetched so far."""
        if self.here or not self.repository:
            return self.size
        blobs = _repository_folder(self.repository) / "blobs"
        return min(self.size, sum(path.stat().st_size for path in _files(blobs)))

    def forget(self) -> None:
        """Remove everything that was fetched."""
        if not self.here and self.repository:
            shutil.rmtree(_repository_folder(self.repository), ignore_errors=True)


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
    heads = sources.require_known_tower(source)
    folder, repository = (source.place.folder, source.place.repository) if source.place else (None, "")
    if folder is not None:
        size = sum(path.stat().st_size for path in _files(folder) if path.suffix == SAFE)
        return Offer(source.name, size, True, "", heads)
    if not (repository := repository or _registered_repository(source)):
        if source.tag == UNTRAINED:
            return Offer(source.name, 0, True, "", heads)
        raise InputError(f"The weights of {source.name} are not on the Hub, so their size is not known here.")
    if local := _local(repository):
        return Offer(source.name, local, True, repository, heads)
    return Offer(source.name, _weights_of(source.name, repository), False, repository, heads)


def free_memory() -> int | None:
    """Bytes of memory that this process may still use, here or in its container; None where unknown."""
    found = []
    try:
        lines = _PROC.read_text("ascii").splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration, ValueError):
        pass
    for limit, used, kept in _CGROUPS:
        try:
            most = int((_CGROUP / limit).read_text("ascii"))
            statistics = (_CGROUP / limit).with_name("memory.stat").read_text("ascii").splitlines()
            cached = next((int(line.split()[1]) for line in statistics if line.split()[0] == kept), 0)
            found.append(most - int((_CGROUP / used).read_text("ascii")) + cached)
        except (OSError, ValueError, IndexError):
            continue  # no such group, or "max"
    return min(found, default=None)


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
    for wanted in WEIGHTS_FILES:
        if wanted in sizes:
            return sizes[wanted]
    if shards := [size for file, size in sizes.items() if file.endswith(SAFE)]:
        return sum(shards)
    if not safe and UNSAFE in sizes:
        return sizes[UNSAFE]
    raise InputError(f"{name} cannot be used: its repository holds no safetensors.")


def _why(error: Exception) -> str:
    """The reason in words, without the error's own text, which may quote request headers."""
    response = getattr(error, "response", None)
    if response is None:
        return "the Hub could not be reached"
    meaning = {401: "there is no such public repository", 404: "there is no such repository"}
    meaning |= {403: "access is not allowed", 429: "the Hub has been asked too often; try again in a minute"}
    return f"{meaning.get(response.status_code, 'the Hub refused')} (status {response.status_code})"


def _registered_repository(source: Source) -> str:
    import open_clip

    found = open_clip.get_pretrained_cfg(source.architecture, source.tag) or {}
    return str(found.get("hf_hub") or "").rstrip("/")


def _local(repository: str) -> int:
    """Bytes of a repository's weights in the cache; 0 if there are none."""
    import huggingface_hub

    for file in (*WEIGHTS_FILES, UNSAFE) if repository else ():
        if isinstance(path := huggingface_hub.try_to_load_from_cache(repository, file), str):
            return Path(path).stat().st_size
    if isinstance(index := huggingface_hub.try_to_load_from_cache(repository, INDEX_FILE), str):
        return sum(path.stat().st_size for path in Path(index).parent.glob(f"*{SAFE}"))
    return 0


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _repository_folder(repository: str) -> Path:
    from huggingface_hub.file_download import repo_folder_name

    return _cache() / repo_folder_name(repo_id=repository, repo_type="model")


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
