"""Models that differ from another in whole parameters: first model, bases, and models with a learned bias.

One safetensors file per model. Those of the first and of the bases hold parameters as float16, the others
differences from their base as int8, with a factor for each row. What is known of the model is in the header.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ccs.errors import InputError
from ccs.files import sha256
from ccs.model.model import Model
from ccs.model.model import load as load_model

SUFFIX, FACTOR = ".safetensors", ".factor"
FOLDER = Path(__file__).with_name("models") / "variants"
FIRST_CONTROL = FOLDER.with_name("first_control")
"""The control that was bundled when the bases were trained; their files hold differences from it."""


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the models in a folder (default: the bundled ones), in order."""
    return tuple(sorted(path.stem for path in (folder or FOLDER).glob(f"*{SUFFIX}")))


def known(name: str) -> dict[str, Any]:
    """Return what is known of how a model was made, such as its `base`; InputError for an unknown model."""
    from safetensors import safe_open

    with safe_open(_file(name), "pt") as opened:
        return dict(json.loads(opened.metadata()["about"]))


def weights(name: str) -> str:
    """Return the start of the SHA-256 of the model's file, by which its scores are known."""
    return sha256(_file(name))[:16]


def load(name: str, *, device: str = "cpu") -> Model:
    """Load a model of this package, or any other that `ccs.load` knows.

    Args:
        name: of the model, or its path.
        device: as in `ccs.load`.

    Raises:
        InputError: If it doesn't exist.
    """
    from safetensors.torch import load_file

    if name not in names() and not name.endswith(SUFFIX):
        return load_model(name, device=device)
    file, base = _file(name), known(name)["base"]
    beside = file.with_name(f"{base}{SUFFIX}")
    model = load(str(beside), device=device) if beside.is_file() else load_base(base, device=device)
    held = load_file(file, device=str(model.encoder.device))
    for parameter, values in held.items():
        if parameter.endswith(FACTOR):
            continue
        place = model.clip.get_parameter(parameter).detach()
        factor = held.get(parameter + FACTOR)
        place.copy_(values.float() if factor is None else place + values.float() * factor)
    model.name = file.stem
    return model


def load_base(name: str, *, device: str = "cpu") -> Model:
    """Load the model that the header of a file names as its base.

    Args:
        name: of the base.
        device: as in `ccs.load`.

    Raises:
        InputError: If it doesn't exist.
    """
    if name == "organism-control":
        return load_model(str(FIRST_CONTROL), device=device)
    return load(name, device=device)


def _file(name: str) -> Path:
    """Return the file of a model that comes with this package, or that a path names."""
    if name in names():
        return FOLDER / f"{name}{SUFFIX}"
    if name.endswith(SUFFIX) and Path(name).is_file():
        return Path(name)
    raise InputError(f"{name[:100]!r} is none of these models: {', '.join(names()) or 'none'}.")
