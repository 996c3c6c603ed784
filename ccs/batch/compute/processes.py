"""One process or many: who does what, and how all come to the same end.

Started plainly there is one process. Under `torchrun` or `accelerate launch` there are several; each does its
share of the images, and what is not images (language models, tables) is done by the first alone. A user's
mistake noticed by one process ends all of them with the same sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

from ccs.errors import InputError, require

T = TypeVar("T")

LOST = "Another process of this run has ended. What is finished is kept; the same command continues."

_WAIT = timedelta(days=7)
"""A process waits this long for the others: the first may be asking language models for hours."""


class Lost(InputError):
    """Another process is gone, and no model can be done without it."""


@dataclass(frozen=True)
class Processes:
    """This process, one of `size`, and the device (`cpu`, `cuda:1`) that it computes on."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """True in the process that does what is done once."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's part of the items, every `size`-th; empty if there are more processes than items."""
        return list(items[self.rank :: self.size])

    def gather(self, value: T) -> list[T]:
        """Everyone's value, in order of rank. All processes must call it."""
        if self.size == 1:
            return [value]
        from accelerate.utils import gather_object

        return _exchanged(lambda: gather_object([value]))

    def once(self, work: Callable[[], T]) -> T:
        """Do `work` in the first process; all return what it returned, or raise its InputError."""
        result = [self.together(lambda: work() if self.first else None)]
        if self.size > 1:
            from accelerate.utils import broadcast_object_list

            _exchanged(lambda: broadcast_object_list(result))
        return cast(T, result[0])

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` in every process; all return their own result, or raise the first InputError."""
        result, sentence = None, None
        try:
            result = work()
        except InputError as error:
            sentence = str(error)
        if failed := [one for one in self.gather(sentence) if one is not None]:
            raise InputError(failed[0])
        return cast(T, result)


def _exchanged(exchange: Callable[[], list[T]]) -> list[T]:
    try:
        return exchange()
    except RuntimeError as error:  # Gloo's, whose connection to another process is gone
        raise Lost(LOST) from error


def start(device: str | None = None) -> Processes:
    """Join the processes that the launcher started, or be the only one. `device`: None chooses.

    Several processes share a machine's GPUs in turn, also one GPU. Raises InputError for a device that this
    machine does not have.
    """
    from ccs.model.loading.sources import AUTO, DEVICE, usable_device

    chosen = usable_device(device or AUTO)
    by_accelerate = "ACCELERATE_MIXED_PRECISION" in os.environ and "ACCELERATE_USE_CPU" not in os.environ
    if by_accelerate and chosen.type == "cpu" and (device or os.environ.get(DEVICE)) != "cpu":
        raise InputError(
            "`accelerate launch --multi_gpu` was asked for, but no GPU is found here: give --device cpu to "
            "compute on the CPU all the same, or start with torchrun --standalone --nproc_per_node N."
        )
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return Processes(device=str(chosen))
    require("all", "accelerate")
    from accelerate import PartialState

    # What is exchanged are small Python objects, for which Gloo is enough; NCCL takes one process per GPU.
    state = PartialState(cpu=chosen.type == "cpu", timeout=_WAIT, backend="gloo")
    return Processes(state.process_index, state.num_processes, str(state.device))


def stop() -> None:
    """Leave the others in order, after the last exchange."""
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
