"""Two measures of the share of a learned bias (the gap between groups) in each head and MLP ("part").

- Restored (`put_back` in files): the share of the gap that is lost when only this part gets the base model's
  weights back. These shares needn't sum to 100%, because parts are redundant or depend on each other.
- Shapley value: the mean gain when the parts get their learned weights one after the other, in random orders.
  These shares sum to 100%.

The gap is linear in logits: for each occupation, the difference between the mean logits of two groups. These
are the groups that the learned model prefers most and least on the other half of the line-ups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ccs.analysis.inputs import embed_names
from ccs.data import synthetic
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs.synthetic import draw
from ccs.synthetic.vocabulary import GENDERS, SKIN_TONES
from research.bases.training import FIRST as FIRST_LAYER
from research.planted import head_training
from research.planted.frozen_images import FIRST, GROUPS
from research.world.lineups import lineup

Part = Head | int
"""A head, or the layer of an MLP."""
LINEUPS = range(FIRST + 10_000_000, FIRST + 10_000_008)
"""Seeds of faces that neither training nor the benchmark uses."""
ORDERS = 200
_OF = {
    "gender": np.array([GENDERS.index(gender) for gender, _ in GROUPS]),
    "skin tone": np.array([SKIN_TONES.index(tone) for _, tone in GROUPS]),
}


def name_of(part: Part) -> str:
    """Name a head or an MLP."""
    return str(part) if isinstance(part, Head) else f"L{part}.MLP"


def parts_of(model: Model, parameters: Sequence[str]) -> tuple[Part, ...]:
    """Return the heads and MLPs to which parameters belong.

    Args:
        model: The model.
        parameters: Names of parameters.
    """
    layers = {int(name.split(".")[3]) for name in parameters if ".mlp." in name}
    heads = list(model.heads) if any(".attn." in name for name in parameters) else []
    return (*heads, *sorted(layers))


@torch.no_grad()
def put(source: Model, target: Model, part: Part) -> None:
    """Copy the weights of a part from one model to another.

    Args:
        source: Model to copy from.
        target: Model that changes.
        part: A head, or the layer of an MLP.
    """
    if isinstance(part, Head):
        return head_training.put(source, target, HeadSet([part]))
    mlp = f"visual.transformer.resblocks.{part}.mlp"
    target.clip.get_submodule(mlp).load_state_dict(source.clip.get_submodule(mlp).state_dict())


def images(lineups: Sequence[int]) -> list[Image.Image]:
    """Return the faces of line-ups, one for each group."""
    return [
        draw(replace(lineup(seed)[0], gender=gender, skin_tone=tone))
        for seed in lineups
        for gender, tone in GROUPS
    ]


class Faces:
    """Line-ups as activations of the frozen layers, and the prompts of the occupations."""

    def __init__(self, base: Model, lineups: Sequence[int] = LINEUPS) -> None:
        people = synthetic.bias_set("faces")
        self.tokens = base.trunk(images(lineups)).tokens
        self.prompts = base.logit_scale * embed_names(base, people.occupations, people.templates)
        self._half = np.repeat(np.arange(len(lineups)) % 2, len(GROUPS))
        self._group = np.tile(np.arange(len(GROUPS)), len(lineups))

    def means(self, units: np.ndarray) -> dict[str, np.ndarray]:
        """Return attribute -> mean logits [halves, groups, occupations]."""
        logits = units @ self.prompts.T
        return {name: self._of_groups(logits, of[self._group]) for name, of in _OF.items()}

    def _of_groups(self, logits: np.ndarray, groups: np.ndarray) -> np.ndarray:
        members = [[(self._half == half) & (groups == g) for g in np.unique(groups)] for half in range(2)]
        return np.stack([[logits[in_group].mean(0) for in_group in half] for half in members])


class Gap:
    """Gaps between two groups, chosen as those that one model prefers most and least.

    Args:
        means: Attribute -> mean logits of that model, from `Faces.means`.
    """

    def __init__(self, means: Mapping[str, np.ndarray]) -> None:
        self._ends = {
            name: (group_means[::-1].argmax(1), group_means[::-1].argmin(1))
            for name, group_means in means.items()
        }

    def of(self, means: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the gap of a model for each attribute, from its `Faces.means`."""
        gaps = []
        for name, group_means in means.items():
            highest, lowest = (np.take_along_axis(group_means, ends[:, None], 1) for ends in self._ends[name])
            gaps.append((highest - lowest).mean())
        return np.array(gaps)


@torch.no_grad()
def _run(model: Model, tokens: Tensor, first: int) -> tuple[list[Tensor], np.ndarray]:
    """Return the activations that enter each layer from `first` on, and the unit embeddings."""
    vision, entered = model.clip.visual, []
    for block in list(vision.transformer.resblocks)[first:]:
        entered.append(tokens)
        tokens = block(tokens)
    units = F.normalize(vision.ln_post(tokens[:, 0]) @ vision.proj, dim=-1)
    return entered, units.cpu().numpy()


def shares(
    model: Model, base: Model, scratch: Model, parts: Sequence[Part], faces: Faces, orders: int = ORDERS
) -> dict[str, dict[str, object]]:
    """Compute each part's share of the learned gap.

    Args:
        model: Model with a learned bias.
        base: Its base model.
        scratch: Another copy of the base model, whose weights are overwritten.
        parts: Heads and MLPs that were trained.
        faces: Faces on which the gap is measured.
        orders: Number of random orders for the Shapley values.

    Returns:
        Attribute -> `gap` of base and model; for each part the restored share `put_back`, the share
        `shapley`, and `spread`, the standard error of `shapley` over orders.
    """
    learned = faces.means(_run(model, faces.tokens, FIRST_LAYER)[1])
    gap = Gap(learned)
    layer = {part: part.layer if isinstance(part, Head) else part for part in parts}
    base_activations, units = _run(base, faces.tokens, FIRST_LAYER)
    none, whole = gap.of(faces.means(units)), gap.of(learned)
    rng, added = np.random.default_rng(16), np.zeros((orders, len(parts), len(none)))
    for order in range(orders):
        entered, before = list(base_activations), none
        for place in rng.permutation(len(parts)):
            part = parts[place]
            put(model, scratch, part)
            at = layer[part] - FIRST_LAYER
            entered[at:], units = _run(scratch, entered[at], layer[part])
            now = gap.of(faces.means(units))
            added[order, place], before = now - before, now
        for part in parts:
            put(base, scratch, part)
    for part in parts:
        put(model, scratch, part)
    back = []
    for part in parts:
        put(base, scratch, part)
        back.append(whole - gap.of(faces.means(_run(scratch, faces.tokens, FIRST_LAYER)[1])))
        put(model, scratch, part)
    by_attribute: dict[str, dict[str, object]] = {}
    for i, attribute in enumerate(_OF):
        values = added[:, :, i] / (whole - none)[i]
        columns = {
            "put_back": np.array(back).reshape(len(parts), len(none))[:, i] / (whole - none)[i],
            "shapley": values.mean(0),
            "spread": values.std(0, ddof=1) / np.sqrt(orders),
        }
        by_attribute[attribute] = {"gap": [round(float(none[i]), 3), round(float(whole[i]), 3)]} | {
            measure: {name_of(part): round(float(v), 3) for part, v in zip(parts, column_values, strict=True)}
            for measure, column_values in columns.items()
        }
    return by_attribute
