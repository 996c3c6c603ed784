"""Write model files that `ccs_benchmark` and `ccs.load` read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors.torch import save_file
from torch import Tensor

from ccs.files import atomic_write
from ccs.model.loading.weights import EMBEDDING, WORDS
from ccs_benchmark.planted_models import FORMAT, Truth, by_head, slices
from ccs_benchmark.variants import FACTOR


def save_planted(clip: Any, known: Truth, file: Path) -> None:
    """Write the slices of `known.heads` as float16, for `ccs_benchmark.planted_models`.

    Args:
        clip: The open_clip module.
        known: Its ground truth.
        file: Output file.
    """
    held = {
        name: by_head(name, clip.get_parameter(name).detach().cpu())[head_slices].half().contiguous()
        for name, head_slices in slices(clip, known.heads).items()
    }
    _write(held, {"format": FORMAT, "truth": as_json(known)}, file)


def as_json(known: object, indent: int | None = None) -> str:
    """Convert a model's ground truth to JSON.

    Args:
        known: A `Truth` or `KnownHeads`.
        indent: As in `json.dumps`.
    """
    return TypeAdapter(type(known)).dump_json(known, indent=indent).decode()


def save_variant(
    clip: Any, parameters: Iterable[str], metadata: dict[str, Any], file: Path, base: Any = None
) -> None:
    """Write parameters for `ccs_benchmark.variants`.

    Args:
        clip: The open_clip module.
        parameters: Names of the parameters.
        metadata: Metadata of the file.
        file: Output file.
        base: The base module, to write int8 differences from it. Default: write float16 values.
    """
    held = {}
    for name in parameters:
        values = clip.get_parameter(name).detach().cpu()
        if base is None:
            held[name] = values.half().contiguous()
            continue
        difference = values - base.get_parameter(name).detach().cpu()
        factor = difference.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        held |= {name: (difference / factor).round().char().contiguous(), name + FACTOR: factor}
    _write(held, {"format": "clip-ccs variant 1", "about": json.dumps(metadata)}, file)


def only_words_read(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keep only the nonzero word embeddings of weights, and add the indices of these words."""
    rows = weights[EMBEDDING]
    words = rows.any(1).nonzero()[:, 0]
    return weights | {EMBEDDING: rows[words].contiguous(), WORDS: words.int()}


def _write(held: Mapping[str, Tensor], metadata: Mapping[str, str], file: Path) -> None:
    with atomic_write(file) as temporary:
        save_file(dict(held), temporary, dict(metadata))
        temporary.chmod(0o644)
