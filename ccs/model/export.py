"""Export a model with changed weights as a folder that open_clip or transformers loads without this package.

A head whose columns of the output projection are zero adds nothing, whatever it computes. The projection's
bias stays. A linear map of the embeddings is multiplied into the last projection.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
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
from ccs.heads import IMAGE, TEXT, HeadSet, changes, effect_word, require_weights
from ccs.model.editing import edit_projection
from ccs.model.encoders import convolutional, decompose_registered
from ccs.model.loading.building import PICKLES
from ccs.model.loading.config import KINDS
from ccs.model.loading.weights import renamed
from ccs.model.model import Model

TOLERANCE = 1e-5
"""The largest difference allowed between the folder's embeddings and ours, in any entry of a unit vector."""

_WEIGHTS, _CONFIG, _CARD = "open_clip_model.safetensors", "open_clip_config.json", "README.md"
_LAST_PROJECTIONS = {
    "images": ("visual.proj", "visual.attnpool.c_proj", "visual.head.proj", "visual.trunk.head"),
    "texts": ("text_projection", "text.text_projection"),
}
"""Names of the last linear map of the embeddings in open_clip's models."""
_TRANSPOSED = ("visual.proj", "text_projection")
"""Parameters that transformers holds transposed."""


@dataclass(frozen=True, eq=False)
class WeightChange:
    """The difference between an exported folder and the model.

    Attributes:
        ablated: Heads that are ablated, scaled, or edited (`ccs.edit_heads`).
        images: A matrix [d, d] by which image embeddings are multiplied.
        texts: A matrix [d, d] by which text embeddings are multiplied.
        notes: Sentences for the model card.
    """

    ablated: HeadSet
    images: NDArray[np.floating[Any]] | None = None
    texts: NDArray[np.floating[Any]] | None = None
    notes: Sequence[str] = ()


def export(model: Model, change: HeadSet | WeightChange, folder: str | Path) -> float:
    """Write a model with changed weights to a new folder: weights, configuration, and model card.

    A model in the format of transformers stays in it, with the tokenizer and all other files but the weights.
    Others are in open_clip's, as float16 if that loses nothing, otherwise as float32.

    Args:
        model: The unchanged model.
        change: Heads to ablate or scale, or a `WeightChange`.
        folder: The folder to make.

    Returns:
        The largest difference between embeddings of random pixels and of texts by plain open_clip (or
        transformers) from that folder and by the changed model here, at most `TOLERANCE`.

    Raises:
        InputError: If the model lacks a head, the architecture has no weights that can hold a map, the folder
            isn't empty, or open_clip can't hold the model's tokenizer.
    """
    source = model.checkpoint_folder
    if source is None and model.config["text_cfg"].get("hf_tokenizer_name"):
        raise InputError(f"{model.name} has its own tokenizer, which a folder for open_clip can't hold.")
    if decompose_registered(model.clip.visual) is not None:
        name = type(model.clip.visual).__name__
        raise InputError(f"{name} is a registered encoder, which open_clip can't build: save its state_dict.")
    change = change if isinstance(change, WeightChange) else WeightChange(change)
    model.encoder.require_heads(change.ablated.of_encoder(IMAGE))
    weights = changed_weights(model, change)
    folder = Path(folder)
    with disk_errors(folder.parent):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is already there; name a new folder to export to.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            draft = Path(scratch, "model")
            draft.mkdir()
            if source is None:
                _write_open_clip(model, weights, draft)
            else:
                _write_checkpoint(weights, source, draft)
            difference = _difference(model, change, draft)
            if not difference <= TOLERANCE:
                raise RuntimeError(f"the exported embeddings differ from ours by {difference:.1e}")
            card = model_card(model, change, difference, "transformers" if source else "open_clip")
            (draft / _CARD).write_text(card, "utf-8")
            draft.replace(folder)
    return difference


def _write_checkpoint(weights: dict[str, Tensor], source: Path, draft: Path) -> None:
    """Write a folder of transformers with some of its weights replaced."""
    import transformers

    checkpoint = transformers.AutoModel.from_pretrained(source, local_files_only=True)
    is_siglip = checkpoint.config.model_type == KINDS[1]
    for name, values in checkpoint.state_dict().items():
        if any(part in name for part in ("q_proj", "k_proj", "v_proj")):
            continue  # open_clip joins these three; they never change
        for our_name in set(renamed([(name, values)], is_siglip)) & set(weights):
            values.copy_(weights[our_name].T if our_name in _TRANSPOSED else weights[our_name])
    for file in source.iterdir():
        weights_or_card = file.suffix in (".safetensors", *PICKLES, ".h5", ".msgpack") or file.name == _CARD
        if file.is_file() and not weights_or_card and not file.name.endswith(".index.json"):
            shutil.copy(file, draft)
    checkpoint.save_pretrained(draft)


def model_card(model: Model, change: WeightChange, difference: float, library: str) -> str:
    """Return the model card, with the front matter that the Hub reads.

    Args:
        model: The unchanged model.
        change: The change of its weights.
        difference: The largest difference of an embedding, as `export` returns it.
        library: "open_clip" or "transformers".
    """
    import jinja2

    template = Path(__file__).with_name("export_card.md").read_text("utf-8")
    card = jinja2.Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        model=model,
        name=one_line(model.name if not model.tag else f"{model.architecture} ({model.tag})"),
        ablated=change.ablated,
        effect=effect_word(change.ablated),
        attributes=", ".join(sorted({part.attribute for _, part in changes(change.ablated)})),
        maps=[kind for kind in _LAST_PROJECTIONS if getattr(change, kind) is not None],
        notes=list(map(one_line, change.notes)),
        library=library,
        difference=difference,
        # Without this package, open_clip doesn't know our own architecture.
        needs_package=model.config["vision_cfg"].get("timm_model_name") == convolutional.NAME,
    )
    return str(card)


def changed_weights(model: Model, change: WeightChange) -> dict[str, Tensor]:
    """Compute the weights that change.

    Args:
        model: The model, which stays as it is.
        change: The change. Heads multiply their columns of the output projections, and maps multiply the last
            projections.

    Returns:
        The changed weights by name.

    Raises:
        InputError: If weights can't hold the change.
    """
    changed: dict[str, Tensor] = {}
    names = {id(module): name for name, module in model.clip.named_modules()}
    require_weights(change.ablated)
    for head, head_change in changes(change.ablated):
        layer = (model if head.encoder == IMAGE else model.texts).encoder.layers[head.layer]
        columns = slice(head.head * layer.head_dim, (head.head + 1) * layer.head_dim)
        name = names[id(layer.projection)]
        for parameter, values in layer.projection.named_parameters():
            changed.setdefault(f"{name}.{parameter}", values.detach().clone())
        weight, bias = changed[f"{name}.weight"], changed.get(f"{name}.bias")
        if head_change.attribute:
            edit_projection(weight, bias, columns, change.ablated.mean_output(head))
        else:
            weight[:, columns] *= head_change.factor
    weights = {**model.clip.state_dict(), **changed}
    for kind, projections in _LAST_PROJECTIONS.items():
        if (matrix := getattr(change, kind)) is None:
            continue
        product = torch.as_tensor(matrix, dtype=torch.float64)
        last = [name for name in weights if {name, name.rpartition(".")[0]} & set(projections)]
        if not last:
            raise InputError(
                f"In this architecture the embeddings of {kind} do not end in a linear map, so no "
                "weights can hold the projection."
            )
        for name in last:  # a parameter [W, d], or a module's weight [d, W] and bias [d]
            values = weights[name].cpu().double()
            mapped = values @ product.T if name in projections else product @ values
            changed[name] = mapped.to(weights[name])
    return changed


def _write_open_clip(model: Model, changed: dict[str, Tensor], draft: Path) -> None:
    """Write a folder of open_clip: weights, as halves if that loses nothing, and configuration."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    weights = {**model.clip.state_dict(), **changed}
    if all(torch.equal(values.half().to(values.dtype), values) for values in weights.values()):
        weights = {name: values.half() for name, values in weights.items()}
    try:
        save_file({name: values.contiguous() for name, values in weights.items()}, draft / _WEIGHTS)
    except SafetensorError as error:
        raise InputError(f"The weights can't be written: {error}.") from None
    config = {"model_cfg": model.config, "preprocess_cfg": model.preprocess_config}
    (draft / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")


@torch.no_grad()
def _difference(model: Model, change: WeightChange, folder: Path) -> float:
    """Return the largest difference of the folder's embeddings, by its own library, from ours."""
    pixels = torch.randn(4, 3, *model.encoder.image_size, generator=torch.Generator().manual_seed(0))
    texts = ["a photo of a judge", "two red cats"]
    tokens = model.tokenize(texts)
    if model.checkpoint_folder is not None:
        import transformers

        exported: Any = transformers.AutoModel.from_pretrained(folder, local_files_only=True).float().eval()
        outputs = exported.get_image_features(pixels), exported.get_text_features(tokens)
        features = [getattr(output, "pooler_output", output) for output in outputs]
    else:
        import open_clip

        exported = open_clip.create_model(f"local-dir:{folder}", require_pretrained=True).eval()
        features = [exported.encode_image(pixels), exported.encode_text(tokens)]
    in_images, in_texts = (change.ablated.of_encoder(encoder) for encoder in (IMAGE, TEXT))
    ours = model.embed_images(pixels, in_images), model.embed_texts(texts, ablate=in_texts)
    differences = []
    for vectors, units, matrix in zip(features, ours, (change.images, change.texts), strict=True):
        mapped = torch.from_numpy(units if matrix is None else units @ np.asarray(matrix).T)
        expected = F.normalize(mapped, dim=-1)
        differences.append(float((F.normalize(vectors.float(), dim=-1) - expected).abs().max()))
    return max(differences)
