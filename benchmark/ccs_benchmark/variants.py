"""Models that differ from a base model in whole parameters: bases, and models with a learned bias.

One safetensors file per model. `organism-first` and the base models have float16 parameters; the others have
int8 differences from their base, with a factor per row. The header has the facts about the model.
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
"""The control that was bundled when the base models were trained. Their files have differences from it."""


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the models in a folder (default: the bundled ones), in order."""
    return tuple(sorted(path.stem for path in (folder or FOLDER).glob(f"*{SUFFIX}")))


def known(name: str) -> dict[str, Any]:
    """Return facts about a model, such as its `base`; InputError for an unknown model."""
    from safetensors import safe_open

    with safe_open(_file(name), "pt") as opened:
        return dict(json.loads(opened.metadata()["about"]))


def weights(name: str) -> str:
    """Return the start of the SHA-256 of the model's file, which identifies its scores."""
    return sha256(_file(name))[:16]


def load(name: str, *, device: str = "cpu") -> Model:
    """Load a model of this package, or any other that `ccs.load` knows.

    Args:
        name: Name of the model, or its path.
        device: As in `ccs.load`.

    Raises:
        InputError: If it doesn't exist.
    """
    from safetensors.torch import load_file

    if name not in names() and not name.endswith(SUFFIX):
        return load_model(name, device=device)
    file, base = _file(name), known(name)["base"]
    base_file = file.with_name(f"{base}{SUFFIX}")
    model = load(str(base_file), device=device) if base_file.is_file() else load_base(base, device=device)
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
        name: Name of the base.
        device: As in `ccs.load`.

    Raises:
        InputError: If it doesn't exist.
    """
    if name == "organism-control":
        return load_model(str(FIRST_CONTROL), device=device)
    return load(name, device=device)


def _file(name: str) -> Path:
    """Return the file of a bundled model or of a path."""
    if name in names():
        return FOLDER / f"{name}{SUFFIX}"
    if name.endswith(SUFFIX) and Path(name).is_file():
        return Path(name)
    raise InputError(f"Unknown model {name[:100]!r}. Bundled models: {', '.join(names()) or 'none'}.")
