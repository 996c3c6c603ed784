"""Save and load the state of a training: model, optimizers, and counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ccs.files import atomic_write

MODULES = ("model", "muon", "adam")
"""Attributes of a trainer that have a state dict."""


def save_state(trainer: Any, path: Path, counters: Sequence[str]) -> None:
    """Save the state of a training.

    Args:
        trainer: The trainer, with `MODULES` and its settings.
        path: The file.
        counters: Attributes that are numbers or tensors.
    """
    state = {name: getattr(trainer, name).state_dict() for name in MODULES}
    state |= {name: getattr(trainer, name) for name in counters}
    with atomic_write(path) as temporary:
        torch.save({**state, "settings": asdict(trainer.settings)}, temporary)


def load_state(trainer: Any, path: Path, counters: Sequence[str]) -> None:
    """Load a state that `save_state` wrote.

    Args:
        trainer: The trainer.
        path: The file.
        counters: As for `save_state`.
    """
    state = torch.load(path, map_location=trainer.device, weights_only=True)
    for name in MODULES:
        getattr(trainer, name).load_state_dict(state[name])
    for name in counters:
        value = state[name]
        setattr(trainer, name, value.cpu() if isinstance(value, torch.Tensor) else value)
