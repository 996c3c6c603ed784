"""A run's processes, and its memory: what each stage wrote, shard by shard, so that a killed run resumes.

Started plainly there is one process. Under `torchrun` or `accelerate launch` there are several; each does its
share of the images, and only the first does everything else (LLMs, tables). A user's mistake noticed by one
process ends all of them with the same sentence.

A stage is named and keyed by a hash of everything it depends on. Its shards are files
`INDEX.KEY.CHECKSUM.SUFFIX`, written under another name and renamed: a file under its final name is whole, and
its own name says which inputs made it and which bytes it must hold. Nothing else decides what is done, so a
process may die at any instant. A shard of another key, or that is not what its name says, is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from filelock import FileLock, Timeout
from safetensors.numpy import load_file
from safetensors.numpy import save as save_arrays

from ccs.cli.command_line import package_version
from ccs.errors import InputError, require
from ccs.files import atomic_write, disk_errors, sha256
from ccs.progress import Bar, BarMaker
from ccs.results import STAGES

T = TypeVar("T")

_SHARD = re.compile(r"(\d{5,})\.([0-9a-f]{16})\.([0-9a-f]{16})\.(\w+)")
LOST = "Another process of this run has ended. What is finished is kept; the same command continues."
_WAIT = timedelta(days=7)
"""A process waits this long for the others: the first may query LLM judges for hours."""


class Lost(InputError):
    """Another process is gone, and no model can be computed without it."""


@dataclass(frozen=True)
class Processes:
    """This process, one of `size`, and the device (`cpu`, `cuda:1`) that it computes on."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process is the first."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in order of rank. All must call it."""
        if self.size == 1:
            return [value]
        import torch.distributed

        values: list[Any] = [None] * self.size
        try:
            torch.distributed.all_gather_object(values, value)
        except RuntimeError as error:  # Gloo lost the connection to another process
            raise Lost(LOST) from error
        return values

    def once(self, work: Callable[[], T]) -> T:
        """Do `work` in the first process; all return its result, or raise its InputError."""
        return cast(T, self.gather(self.together(lambda: work() if self.first else None))[0])

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` in each process; all return their result, or raise the first InputError."""
        result, sentence = None, None
        try:
            result = work()
        except InputError as error:
            sentence = str(error)
        if sentences := [text for text in self.gather(sentence) if text is not None]:
            raise InputError(sentences[0])
        return cast(T, result)


def start(device: str = "auto") -> Processes:
    """Join the processes that the launcher started, or be the only one; they share a machine's GPUs in turn.

    Raises InputError if this machine doesn't have the device.
    """
    from ccs.model.loading.sources import usable_device

    chosen = usable_device(device)
    if os.environ.get("WORLD_SIZE", "1") == "1" or "MASTER_ADDR" not in os.environ:  # torchrun sets both
        return Processes(device=str(chosen))
    require("all", "accelerate")
    from accelerate import PartialState

    # Processes exchange small Python objects, so Gloo is enough; NCCL takes one process per GPU.
    state = PartialState(cpu=chosen.type == "cpu", timeout=_WAIT, backend="gloo")
    return Processes(state.process_index, state.num_processes, str(state.device))


def in_processes(device: str, work: Callable[[Processes], int]) -> int:
    """Do `work` in the processes that the launcher started, or in this one; the first reports mistakes.

    Args:
        device: `auto`, or the device to compute on.
        work: Returns the exit status.

    Returns:
        The exit status.

    Raises:
        InputError: In the first process, or if this machine lacks the device, or another process is gone.
    """
    import torch.distributed

    # A launcher sends this to the other processes when one has ended.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes = start(device)
    try:
        return work(processes)
    except InputError as error:
        if processes.first or isinstance(error, Lost):
            raise
        return 2
    finally:
        signal.signal(signal.SIGTERM, previous)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # in order, after the last exchange


# Stages ----------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the output folder for this run. Raises InputError if another run has it."""
    with disk_errors(folder):
        (folder / STAGES).mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / STAGES / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"Another run is writing to {folder}; wait, or give another --out.") from None
        except NotImplementedError:  # filelock's own for a system without flock
            raise InputError(f"The file system of {folder} has no locks; give an --out on another.") from None
    with lock:
        yield


def digest(value: Any) -> str:
    """Hash a JSON value, which may hold arrays; the same in all processes and on all machines."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Mapping[str, Any] | np.ndarray) -> Any:
    return dict(value) if isinstance(value, Mapping) else value.tolist()


@dataclass
class Stage:
    """One stage of one run. All processes open it, and each writes its own shards in `working`.

    A shard holds arrays by name, or else a JSON value.
    """

    name: str
    key: str
    folder: Path
    shards: int
    store: Store
    paths: dict[int, Path] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """The shards that are missing, as far as this process knows before the stage is finished."""
        return [index for index in range(self.shards) if index not in self.paths]

    @contextmanager
    def working(self, total: int) -> Iterator[Any]:
        """Do the stage under a bar of `total` items; then all processes know what the others wrote."""
        with self.store.working(self.name, total) as bar:
            yield bar
            for written in self.store.processes.gather(self.paths):
                self.paths = self.paths | written

    def write(self, value: Any, index: int = 0) -> None:
        """Write a shard.

        Args:
            value: Its arrays by name, or its JSON value.
            index: The shard.
        """
        # Bytes first and one plain write: a full disk is then an OSError and not a fault in mapped memory.
        if isinstance(value, dict) and all(isinstance(part, np.ndarray) for part in value.values()):
            suffix = "safetensors"
            data = save_arrays({name: np.ascontiguousarray(array) for name, array in value.items()})
        else:
            suffix, data = "json", json.dumps(value, ensure_ascii=False).encode()
        checksum = hashlib.sha256(data).hexdigest()[:16]
        path = self.folder / f"{index:05d}.{self.key}.{checksum}.{suffix}"
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
        self.paths[index] = path

    def read(self, index: int = 0) -> Any:
        """Return a shard's arrays, or its JSON value."""
        path = self.paths[index]
        return json.loads(path.read_bytes()) if path.suffix == ".json" else load_file(path)

    def discard(self, largest: float) -> None:
        """Remove the shards, whose results are kept elsewhere, if they have more bytes than `largest`."""
        if sum(path.stat().st_size for path in self.paths.values()) > largest:
            for path in self.paths.values():
                path.unlink()

    def sort(self) -> dict[int, Path]:
        """Return the valid shards in the folder; all others are removed."""
        whole: dict[int, Path] = {}
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.iterdir():
                match = _SHARD.fullmatch(path.name)
                place = int(match[1]) if match and match[2] == self.key else self.shards
                if match and place < self.shards and sha256(path)[:16] == match[3]:
                    whole[place] = path
                elif match or path.suffix == ".tmp":
                    path.unlink()
        return whole


@dataclass
class Store:
    """The stages of one model's run.

    Attributes:
        folder: The folder of the stages.
        processes: The processes of the run.
        bar: Makes the bar of a stage's progress.
        seconds: Part -> its duration, for the parts done in this run.
    """

    folder: Path
    processes: Processes
    bar: BarMaker = Bar
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def working(self, name: str, total: int = 1) -> Iterator[Any]:
        """Show the bar of a part of the run, full at the end, and note how long the part took.

        Args:
            name: The part's name.
            total: The number of items on its bar.
        """
        started = time.monotonic()
        with self.bar(desc=name, total=total) as bar:
            yield bar
            bar.update(total - bar.n)
        self.seconds[name] = round(time.monotonic() - started, 2)

    def stage(self, name: str, inputs: Mapping[str, Any], shards: int = 1) -> Stage:
        """Open a stage.

        Args:
            name: Its name.
            inputs: All that it depends on, JSON; other inputs, or another version of this package, make the
                old shards void.
            shards: The number of shards.
        """
        key = digest([package_version(), name, inputs, shards])[:16]
        stage = Stage(name, key, self.folder / name.replace("/", "--"), shards, self)
        stage.paths = self.processes.once(stage.sort)
        return stage

    def once(self, name: str, inputs: Mapping[str, Any], work: Callable[[], Any], total: int = 1) -> Stage:
        """Do a stage of one shard in the first process, unless it is already done, and return it.

        Args:
            name: The stage's name.
            inputs: All that it depends on.
            work: Computes the value.
            total: The number of items on the stage's bar.
        """
        stage = self.stage(name, inputs)
        if stage.missing:
            with stage.working(total):
                self.processes.once(lambda: stage.write(work()))
        return stage
