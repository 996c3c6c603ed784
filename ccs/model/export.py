"""Export of a model with heads switched off as an ordinary open_clip folder.

A head whose columns of the output projection are zero adds nothing, whatever it computes; the projection's
bias stays. So the folder can be loaded without this project.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ccs.errors import InputError
from ccs.files import disk_errors, one_line
from ccs.heads import HeadSet
from ccs.intervention import factors
from ccs.model.model import Model
from ccs.model.towers import convolutional

TOLERANCE = 1e-5
"""The largest difference allowed between the folder's embeddings and ours, in any entry of a unit vector."""

_WEIGHTS, _CONFIG, _CARD = "open_clip_model.safetensors", "open_clip_config.json", "README.md"


def export(model: Model, off: HeadSet, folder: str | Path) -> float:
    """Write `model` with the heads `off` switched off to a new folder: weights, configuration and model card.

    Returns the largest difference between embeddings of random pixels by plain open_clip from that folder and
    by ours, at most 1e-5. Weights are float16 where that loses nothing, else float32. Raises InputError for a
    head outside the model, a folder that is not empty, or a model whose tokenizer is not open_clip's own.
    """
    model.tower.require(off)
    if not model.has_open_clips_tokenizer:
        raise InputError(
            f"{model.name} has a tokenizer of its own, which a folder for open_clip cannot hold."
        )
    folder = Path(folder)
    with disk_errors(folder.parent):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is already there; name a new folder to export to.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            written = Path(scratch) / "model"
            written.mkdir()
            _write_weights(zeroed(model, off), written / _WEIGHTS)
            config = {"model_cfg": model.config, "preprocess_cfg": model.preprocess_config}
            (written / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")
            difference = _difference(model, off, written)
            if not difference <= TOLERANCE:
                raise RuntimeError(f"the exported embeddings differ from ours by {difference:.1e}")
            (written / _CARD).write_text(card(model, off, difference), "utf-8")
            written.replace(folder)
    return difference


def card(model: Model, off: HeadSet, difference: float) -> str:
    """The model card, with the front matter that the Hub reads."""
    import jinja2

    text = Path(__file__).with_name("export_card.md").read_text("utf-8")
    written: str = jinja2.Template(text, trim_blocks=True, keep_trailing_newline=True).render(
        name=one_line(model.name if not model.tag else f"{model.architecture} ({model.tag})"),
        off=off,
        weights=model.weights_hash,
        difference=difference,
        needs_package=_needs_package(model),
    )
    return written


def zeroed(model: Model, off: HeadSet) -> dict[str, Tensor]:
    """The model's weights with these heads' columns of the output projections times their factors."""
    weights = {name: values.detach().cpu() for name, values in model.clip.state_dict().items()}
    names = {id(module): name for name, module in model.clip.named_modules()}
    for head, factor in factors(off, "Weights").items():
        layer = model.tower.layers[head.layer]
        name, d = f"{names[id(layer.projection)]}.weight", layer.head_dim
        weights[name] = weights[name].clone()
        weights[name][:, head.head * d : head.head * d + d] *= factor
    return weights


def _write_weights(weights: dict[str, Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    halves = {name: values.half() for name, values in weights.items()}
    if all(torch.equal(halves[name].to(values.dtype), values) for name, values in weights.items()):
        weights = halves
    try:
        save_file({name: values.contiguous() for name, values in weights.items()}, path)
    except SafetensorError as error:
        raise InputError(f"The weights cannot be written: {error}.") from None


def _needs_package(model: Model) -> bool:
    """True if open_clip alone does not know the model's architecture, which is this package's own."""
    return bool(model.config["vision_cfg"].get("timm_model_name") == convolutional.NAME)


def _difference(model: Model, off: HeadSet, folder: Path) -> float:
    import open_clip

    exported = open_clip.create_model(f"local-dir:{folder}", require_pretrained=True).eval()
    pixels = torch.randn(4, 3, *model.tower.image_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = exported.encode_image(pixels, normalize=True).numpy()
    return float(np.abs(theirs - model.embed_images(pixels, off)).max())
