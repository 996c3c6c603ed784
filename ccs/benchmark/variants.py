"""Models that differ from another in whole parameters: the first model, five bases, and models that learned
a skew from these.

One safetensors file per model. Those of the first and of the bases hold parameters as float16, the others
differences from their base as int8, with a factor for each row. What is known of the model is in the header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ccs.errors import InputError
from ccs.files import atomic_write, sha256
from ccs.model.model import Model
from ccs.model.model import load as load_model

FORMAT, SUFFIX = "clip-ccs variant 1", ".safetensors"
FOLDER = Path(__file__).parents[1] / "embedded" / "variants"
_FACTOR = ".factor"


def names(folder: Path | None = None) -> tuple[str, ...]:
    """The names of the models in a folder (default: of those that come with this package), in order."""
    return tuple(sorted(path.stem for path in (folder or FOLDER).glob(f"*{SUFFIX}")))


def known(name: str, folder: Path | None = None) -> dict[str, Any]:
    """What is known of the model of that name: its `base`, and what the study that made it says.

    Raises InputError for a name that is not among `names`.
    """
    from safetensors import safe_open

    with safe_open(_file(name, folder), "pt") as opened:
        return dict(json.loads(opened.metadata()["about"]))


def weights(name: str, folder: Path | None = None) -> str:
    """The start of the SHA-256 of the model's file, by which its scores are known."""
    return sha256(_file(name, folder))[:16]


def load(name: str, folder: Path | None = None, *, device: str = "cpu") -> Model:
    """The model of that name, an embedded one too. Raises InputError for another."""
    from safetensors.torch import load_file

    if folder is None and name not in names():
        return load_model(name, device=device)
    base = known(name, folder)["base"]
    beside = folder if folder is not None and base in names(folder) else None
    model = load(base, beside, device=device)
    held = load_file(_file(name, folder), device=str(model.tower.device))
    for parameter, values in held.items():
        if parameter.endswith(_FACTOR):
            continue
        place = model.clip.get_parameter(parameter).detach()
        factor = held.get(parameter + _FACTOR)
        place.copy_(values.float() if factor is None else place + values.float() * factor)
    model.name = name
    return model


def save(clip: Any, parameters: Iterable[str], about: dict[str, Any], file: Path, base: Any = None) -> None:
    """Write these parameters of open_clip's module, or how they differ from those of `base`."""
    from safetensors.torch import save_file

    held = {}
    for name in parameters:
        values = clip.get_parameter(name).detach().cpu()
        if base is None:
            held[name] = values.half().contiguous()
            continue
        difference = values - base.get_parameter(name).detach().cpu()
        factor = difference.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        held |= {name: (difference / factor).round().char().contiguous(), name + _FACTOR: factor}
    with atomic_write(file) as temporary:
        save_file(held, temporary, {"format": FORMAT, "about": json.dumps(about)})
        temporary.chmod(0o644)


def _file(name: str, folder: Path | None) -> Path:
    if name not in (there := names(folder)):
        raise InputError(f"{name[:100]!r} is none of these models: {', '.join(there) or 'none'}.")
    return (folder or FOLDER) / f"{name}{SUFFIX}"
