"""The largest errors seen: every fast path against something slow and obvious, on a few of the images."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from ccs.heads import HeadSet
from ccs.model.model import Model


def largest_errors(model: Model, images: Sequence[Image.Image], plans: Sequence[HeadSet]) -> dict[str, float]:
    """Largest absolute difference of a coordinate of the unit embedding, for each fast path.

    `forward`: against open_clip's own encode_image. `plans`: heads off, against a deep copy of the model
    whose output projections have those heads' columns at zero. `contributions`: their sum against the
    embedding.
    """
    pixels = model.preprocess(images)
    fast = model.embed_images(pixels, [HeadSet(), *plans])
    slow = _unit(model.clip, pixels, model)
    parts = model.contributions(pixels)
    total = parts.direct.sum((1, 2)) + parts.remainder
    pruned = [_unit(zeroed(model, off), pixels, model) for off in plans]
    return {
        "forward": float(np.abs(fast[0] - slow).max()),
        "plans": float(
            max((np.abs(a - b).max() for a, b in zip(fast[1:], pruned, strict=True)), default=0.0)
        ),
        "contributions": float(np.abs(total - fast[0]).max()),
    }


def zeroed(model: Model, off: HeadSet) -> Any:
    """A deep copy of the model whose output projections have these heads' columns at zero."""
    clip = copy.deepcopy(model.clip)
    width = model.head_dim
    with torch.no_grad():
        for head in off:
            weight = clip.visual.transformer.resblocks[head.layer].attn.out_proj.weight
            weight[:, head.head * width : (head.head + 1) * width] = 0
    return clip


@torch.no_grad()
def _unit(clip: Any, pixels: torch.Tensor, model: Model) -> np.ndarray:
    clip.eval()
    embedded: np.ndarray = F.normalize(clip.encode_image(pixels.to(model.tower.device)), dim=-1).cpu().numpy()
    return embedded
