"""The arithmetic in which a tower runs, whatever the program around it has chosen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

_LOCK = threading.RLock()


def autocast(device: str, kind: torch.dtype | None) -> contextlib.AbstractContextManager[object]:
    """Autocast to `kind` on devices of this type, or float32 where it is None, even inside an autocast."""
    if not torch.amp.is_autocast_available(device):  # meta, which computes nothing
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False) if kind is None else torch.autocast(device, kind)


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Convolutions in full float32: by default a GPU runs them in TF32, which loses three digits.

    The setting is the process's, so threads take turns. Work on a GPU is only started here, not waited for.
    """
    with _LOCK, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
