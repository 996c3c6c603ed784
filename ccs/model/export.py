"""Export of a model with heads switched off, or with its embeddings mapped, as a folder that needs nothing of
this project: open_clip's, or transformers' where the model came from a folder of that kind.

A head whose columns of the output projection are zero adds nothing, whatever it computes; the projection's
bias stays. A linear map of the embeddings is multiplied into the last projection.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.files import disk_errors, one_line
from ccs.heads import HeadSet, factors, verb
from ccs.model.encoders import convolutional
from ccs.model.loading.config import CONFIG_FILE, KINDS
from ccs.model.loading.weights import renamed, siglip_renamed
from ccs.model.model import Model

TOLERANCE = 1e-5
"""The largest difference allowed between the folder's embeddings and ours, in any entry of a unit vector."""

_WEIGHTS, _CONFIG, _CARD = "open_clip_model.safetensors", "open_clip_config.json", "README.md"
_LAST = {
    "images": ("visual.proj", "visual.attnpool.c_proj", "visual.head.proj", "visual.trunk.head"),
    "texts": ("text_projection", "text.text_projection"),
}
"""What the last linear map of the embeddings is called in open_clip's models."""


@dataclass(frozen=True, eq=False)
class Change:
    """What a folder holds that the model does not. off: heads of the image encoder that are off or scaled.
    images, texts: matrices [d, d] by which embeddings are multiplied. said: sentences for its card.
    """

    off: HeadSet
    images: NDArray[np.floating[Any]] | None = None
    texts: NDArray[np.floating[Any]] | None = None
    said: Sequence[str] = ()


def export(model: Model, change: HeadSet | Change, folder: str | Path, place: str | Path = "") -> float:
    """Write `model` with heads off, or a `Change`, to a new folder: weights, configuration and model card.

    place: where the model was loaded from; where that is a folder of transformers the new one is too, with
    its tokenizer and all other files but the weights. Returns the largest difference between embeddings of
    random pixels and texts by plain open_clip (or transformers) from that folder and by ours, at most 1e-5.
    Weights are float16 where that loses nothing, else float32. Raises InputError for a head outside the
    model, a map for which the architecture has no weights, a folder that is not empty, or a model for
    open_clip whose tokenizer is not open_clip's own.
    """
    held = Path(place)
    theirs = bool(place) and (held / CONFIG_FILE).is_file() and not (held / _CONFIG).is_file()
    if not theirs and not model.has_open_clips_tokenizer:
        raise InputError(
            f"{model.name} has a tokenizer of its own, which a folder for open_clip cannot hold."
        )
    change = change if isinstance(change, Change) else Change(change)
    model.encoder.require(change.off)
    weights = changed(model, change)
    with new_folder(Path(folder)) as written:
        if theirs:
            _write_checkpoint(weights, held, written)
        else:
            _write_weights(_whole(model, weights), written / _WEIGHTS)
            config = {"model_cfg": model.config, "preprocess_cfg": model.preprocess_config}
            (written / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")
        difference = _difference(model, change, written, _by_transformers if theirs else _by_open_clip)
        if not difference <= TOLERANCE:
            raise RuntimeError(f"the exported embeddings differ from ours by {difference:.1e}")
        about = card(model, change, difference, "transformers" if theirs else "open_clip")
        (written / _CARD).write_text(about, "utf-8")
    return difference


_TURNED = ("visual.proj", "text_projection")
"""Parameters that transformers holds transposed."""


def _write_checkpoint(weights: dict[str, Tensor], place: Path, written: Path) -> None:
    """A folder of transformers as it is, but for these of its weights."""
    import transformers

    theirs = transformers.AutoModel.from_pretrained(place, local_files_only=True)
    rename = siglip_renamed if theirs.config.model_type == KINDS[1] else renamed
    for name, values in theirs.state_dict().items():
        if any(part in name for part in ("q_proj", "k_proj", "v_proj")):
            continue  # one of three of ours, which never changes
        for ours in set(rename([(name, values)])) & set(weights):
            values.copy_(weights[ours].T if ours in _TURNED else weights[ours])
    left_out = shutil.ignore_patterns("*.safetensors", "*.bin", "*.index.json", "*.h5", "*.msgpack", _CARD)
    shutil.copytree(place, written, ignore=left_out, dirs_exist_ok=True)
    theirs.save_pretrained(written)


Embedded = Callable[[Model, Path, Tensor, Tensor], tuple[Tensor, Tensor]]


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `folder` in the end; InputError where that is not empty."""
    with disk_errors(folder.parent):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is already there; name a new folder to export to.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            written = Path(scratch) / "model"
            written.mkdir()
            yield written
            written.replace(folder)


def card(model: Model, change: Change, difference: float, library: str) -> str:
    """The model card, with the front matter that the Hub reads."""
    name = one_line(model.name if not model.tag else f"{model.architecture} ({model.tag})")
    maps = [name for name in ("images", "texts") if getattr(change, name) is not None]
    # open_clip alone does not know an architecture that is this package's own.
    ours = model.config["vision_cfg"].get("timm_model_name") == convolutional.NAME
    return filled(
        "export_card.md",
        model,
        name=name,
        off=change.off,
        verb=verb(change.off),
        maps=maps,
        said=list(map(one_line, change.said)),
        library=library,
        difference=difference,
        needs_package=ours,
    )


def filled(template: str, model: Model, **fields: Any) -> str:
    """A model card of this folder with its fields filled in."""
    import jinja2

    text = Path(__file__).with_name(template).read_text("utf-8")
    card = jinja2.Template(text, trim_blocks=True, keep_trailing_newline=True)
    return str(card.render(model=model, **fields))


def zeroed(model: Model, off: HeadSet) -> dict[str, Tensor]:
    """The model's weights with these heads' columns of the output projections times their factors."""
    return _whole(model, changed(model, Change(off)))


def _whole(model: Model, some: dict[str, Tensor]) -> dict[str, Tensor]:
    """All of the model's weights, with some in the place of its own."""
    return {name: values.detach().cpu() for name, values in {**model.clip.state_dict(), **some}.items()}


def changed(model: Model, change: Change) -> dict[str, Tensor]:
    """The weights that change: the heads' columns of the output projections times their factors, and the last
    projections multiplied by the maps. Raises InputError for what they cannot hold.
    """
    found: dict[str, Tensor] = {}
    names = {id(module): name for name, module in model.clip.named_modules()}
    for head, factor in factors(change.off, "Weights").items():
        layer = model.encoder.layers[head.layer]
        name, d = f"{names[id(layer.projection)]}.weight", layer.head_dim
        if name not in found:
            found[name] = layer.projection.weight.detach().clone()
        found[name][:, head.head * d : head.head * d + d] *= factor
    weights = {**model.clip.state_dict(), **found}
    for kind, last in _LAST.items():
        if (matrix := getattr(change, kind)) is not None:
            found |= _multiplied(weights, last, torch.as_tensor(matrix, dtype=torch.float64), kind)
    return found


def _multiplied(
    weights: dict[str, Tensor], last: Sequence[str], matrix: Tensor, kind: str
) -> dict[str, Tensor]:
    """The last projection with its results multiplied by a matrix [d, d]."""
    for name in last:
        if name in weights:  # [W, d]
            values = weights[name]
            return {name: (values.cpu().double() @ matrix.T).to(values)}
        parts = {f"{name}.weight", f"{name}.bias"} & set(weights)  # of a linear layer: [d, W], perhaps [d]
        if parts:
            return {one: (matrix @ weights[one].cpu().double()).to(weights[one]) for one in parts}
    raise InputError(
        f"In this architecture the embeddings of {kind} do not end in a linear map, so no weights can hold "
        "the projection."
    )


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


def _difference(model: Model, change: Change, folder: Path, embed: Embedded) -> float:
    pixels = torch.randn(4, 3, *model.encoder.image_size, generator=torch.Generator().manual_seed(0))
    texts = ["a photo of a judge", "two red cats"]
    with torch.no_grad():
        theirs = embed(model, folder, pixels, model.tokenize(texts))
    ours = model.embed_images(pixels, change.off), model.embed_texts(texts)
    differences = []
    for found, units, matrix in zip(theirs, ours, (change.images, change.texts), strict=True):
        moved = units if matrix is None else units @ np.asarray(matrix).T
        moved = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
        differences.append(float(np.abs(F.normalize(found.float(), dim=-1).numpy() - moved).max()))
    return max(differences)


def _by_open_clip(model: Model, folder: Path, pixels: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    import open_clip

    exported = open_clip.create_model(f"local-dir:{folder}", require_pretrained=True).eval()
    return exported.encode_image(pixels), exported.encode_text(tokens)


def _by_transformers(model: Model, folder: Path, pixels: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    import transformers

    exported = transformers.AutoModel.from_pretrained(folder, local_files_only=True).float().eval()
    found = exported.get_image_features(pixels), exported.get_text_features(tokens)
    seen, read = (getattr(each, "pooler_output", each) for each in found)
    return seen, read
