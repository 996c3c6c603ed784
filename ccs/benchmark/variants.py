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
    """What the study that made the model of that name says, such as its `base`. InputError for another."""
    from safetensors import safe_open

    with safe_open(_file(name, folder), "pt") as opened:
        return dict(json.loads(opened.metadata()["about"]))


def weights(name: str, folder: Path | None = None) -> str:
    """The start of the SHA-256 of the model's file, by which its scores are known."""
    return sha256(_file(name, folder))[:16]


def load(name: str, folder: Path | None = None, *, device: str = "cpu") -> Model:
    """The model of that name or path, or any other that `ccs.load` knows. Raises InputError."""
    from safetensors.torch import load_file

    if folder is None and name not in names() and not name.endswith(SUFFIX):
        return load_model(name, device=device)
    file, base = _file(name, folder), known(name, folder)["base"]
    model = load(base, file.parent if base in names(file.parent) else None, device=device)
    held = load_file(file, device=str(model.tower.device))
    for parameter, values in held.items():
        if parameter.endswith(_FACTOR):
            continue
        place = model.clip.get_parameter(parameter).detach()
        factor = held.get(parameter + _FACTOR)
        place.copy_(values.float() if factor is None else place + values.float() * factor)
    model.name = file.stem
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
    """The file of a model of the folder, or that a path names."""
    if name in (there := names(folder)):
        return (folder or FOLDER) / f"{name}{SUFFIX}"
    if folder is None and name.endswith(SUFFIX) and Path(name).is_file():
        return Path(name)
    raise InputError(f"{name[:100]!r} is none of these models: {', '.join(there) or 'none'}.")
