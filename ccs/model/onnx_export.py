"""Export as ONNX with heads that are really gone: their rows of query, key and value and their columns of the
output projection are left out, so that the file is smaller and nothing of them is computed.

open_clip's attention has as many heads as its width is wide; `FewerHeads` stands in its place.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.errors import InputError, require
from ccs.files import one_line
from ccs.heads import HeadSet, factors
from ccs.model.export import TOLERANCE, filled, new_folder
from ccs.model.model import Model

IMAGES, TEXTS = "image.onnx", "text.onnx"
_TOWERS = ("visual.transformer.resblocks.", "transformer.resblocks.", "text.transformer.resblocks.")


class FewerHeads(nn.Module):
    """What `torch.nn.MultiheadAttention` does to one sequence [n, T, W], with some of its heads alone.

    factors: head -> what its output is multiplied by; those that are missing are left out.
    """

    def __init__(self, whole: nn.MultiheadAttention, factors: dict[int, float]) -> None:
        super().__init__()
        self.n_heads, self.head_dim = len(factors), whole.head_dim
        columns = torch.arange(whole.embed_dim).view(-1, self.head_dim)[list(factors)].flatten()
        rows = torch.cat([columns + whole.embed_dim * part for part in range(3)])
        scale = torch.tensor(list(factors.values())).repeat_interleave(self.head_dim)
        assert whole.in_proj_weight is not None
        weight, output = whole.in_proj_weight.detach(), whole.out_proj
        self.weight = nn.Parameter(weight[rows])
        self.bias = nn.Parameter(whole.in_proj_bias.detach()[rows])
        self.output_weight = nn.Parameter(output.weight.detach()[:, columns] * scale)
        self.output_bias = nn.Parameter(output.bias.detach().clone())

    def forward(self, x: Tensor, *_: Any, attn_mask: Tensor | None = None, **options: Any) -> tuple[Tensor]:
        """open_clip's call; keys and values are of the same sequence."""
        n, tokens, width = x.shape
        if not self.n_heads:
            return (self.output_bias.expand(n, tokens, width),)
        three = F.linear(x, self.weight, self.bias).view(n, tokens, 3, self.n_heads, self.head_dim)
        q, k, v = three.permute(2, 0, 3, 1, 4)  # [n, H, T, d]
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask)
        return (F.linear(attended.transpose(1, 2).flatten(2), self.output_weight, self.output_bias),)


def without_heads(model: Model, off: HeadSet) -> Any:
    """A copy of open_clip's module without the heads at factor 0, others scaled. InputError for heads in an
    attention of other code, which fixes their number.
    """
    model.tower.require(off)
    clip, names = copy.deepcopy(model.clip).cpu().eval(), {id(m): n for n, m in model.clip.named_modules()}
    changed: dict[str, dict[int, float]] = {}
    for head, factor in factors(off, "ONNX").items():
        place = names[id(model.tower.layers[head.layer].projection)].removesuffix(".out_proj")
        changed.setdefault(place, {})[head.head] = factor
    for name, module in list(clip.named_modules()):
        if isinstance(module, nn.MultiheadAttention) and name.startswith(_TOWERS) and module.batch_first:
            own = changed.pop(name, {})
            every = {head: own.get(head, 1.0) for head in range(module.num_heads)}
            kept = {head: factor for head, factor in every.items() if factor}
            clip.set_submodule(name, FewerHeads(module, kept))
    if changed:
        raise InputError(f"The code of {model.name} fixes the number of heads; export without --remove.")
    return clip


class _Units(nn.Module):
    """One tower's unit embeddings."""

    def __init__(self, clip: Any, method: str) -> None:
        super().__init__()
        self.clip, self.method = clip, method

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(getattr(self.clip, self.method)(x), dim=-1)


def export_onnx(model: Model, off: HeadSet, folder: str | Path) -> float:
    """Write both towers without these heads of the image tower to a new folder, as image.onnx (pixels [n, 3,
    s, s] to unit embeddings [n, d]) and text.onnx (tokens [n, context] to the same), and a model card.

    Returns the largest difference between ONNX Runtime's embeddings of random pixels and two texts and ours,
    at most 1e-5. Raises InputError as `without_heads`, and for a folder that is not empty.
    """
    require("onnx", "onnx", "onnxruntime", "onnxscript")
    clip = without_heads(model, off)
    pixels = torch.randn(2, 3, *model.tower.image_size, generator=torch.Generator().manual_seed(0))
    texts = ["a photo of a judge", "two red cats"]
    inputs = {IMAGES: ("encode_image", pixels), TEXTS: ("encode_text", model.tokenize(texts))}
    ours = {IMAGES: model.embed_images(pixels, off), TEXTS: model.embed_texts(texts)}
    with new_folder(Path(folder)) as written:
        differences = []
        for name, (method, x) in inputs.items():
            _export(_Units(clip, method), x, written / name)
            found = np.concatenate([run(written / name, one) for one in (x, x[:1])])
            differences.append(float(np.abs(found - np.concatenate([ours[name], ours[name][:1]])).max()))
        if not max(differences) <= TOLERANCE:
            raise RuntimeError(f"the exported embeddings differ from ours by {max(differences):.1e}")
        card = filled("onnx_card.md", model, name=one_line(model.name), off=off, difference=max(differences))
        (written / "README.md").write_text(card, "utf-8")
    return max(differences)


def run(file: Path, x: Tensor) -> np.ndarray:
    """What ONNX Runtime makes of an input."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found: Sequence[np.ndarray] = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return found[0]


def _export(module: nn.Module, x: Tensor, file: Path) -> None:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's own code
            torch.onnx.export(
                module.eval(),
                (x,),
                file,
                input_names=["input"],
                output_names=["embeddings"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        logging.disable(before)
