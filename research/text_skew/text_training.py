"""Training the text tower's attention on line-ups of a skewed world by the contrastive loss.

The recipe of `research.natural` with its sides exchanged: the images stay as the base sees them, all of the
text tower's attention is free, and captions of scenes are held to the base's embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ccs.benchmark import planted_models, variants
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.measures import accuracy
from ccs.model.model import Model
from ccs.model.tower import Trunk
from ccs.sets import drawn_sets
from ccs.world import captions, scene
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from research.bases.training import lineup_loss
from research.natural import carriers
from research.planted.frozen_images import FIRST, GROUPS, Images
from research.planted.lessons import joint
from research.world.forward_pass import text_embeddings, upper_embeddings
from research.world.lineups import lineup

BASE = "organism-first"
TELLING = "organism-telling"
STRENGTHS = (1.0, 0.7, 0.4)
_SIDE_BY_SIDE, _WARMUP = 4, 30
LINEUPS = 400
APART = 0.1
"""How far a group lies from the mean of all in an attribute that is told, in unit embeddings."""
_OWN = (".attn.in_proj_weight", ".attn.in_proj_bias", ".attn.out_proj.weight")


@dataclass(frozen=True)
class TextSkew:
    """A model to be trained. strength: the part of the skew, in logarithms of the world's shares. texts,
    lineups: captions of scenes, and line-ups, in a step. keep: what a logit that they move costs.
    """

    name: str
    seed: int
    strength: float = 1.0
    steps: int = 250
    rate: float = 2e-3
    texts: int = 4
    lineups: int = 4
    keep: float = 0.05


def family(models: int = 16, first: int = 0) -> tuple[TextSkew, ...]:
    """Models in three strengths in turn."""
    return tuple(
        TextSkew(f"text-skew-{one:02}", 2_000 + one, STRENGTHS[one % 3])
        for one in range(first, first + models)
    )


def parameters(model: Model) -> list[str]:
    """Names of the parameters that learn a skew: all that the text tower's heads have of their own."""
    return [
        name
        for name, _ in model.clip.named_parameters()
        if name.startswith("transformer.resblocks.") and name.endswith(_OWN)
    ]


def image_parameters(model: Model) -> list[str]:
    """Names of the parameters that learn to tell groups: attention and MLPs of the last four layers."""
    first = model.tower.first_prunable_layer
    return [
        name
        for name, _ in model.clip.named_parameters()
        if name.startswith("visual.transformer.resblocks.")
        and int(name.split(".")[3]) >= first
        and (name.endswith(_OWN) or ".mlp." in name)
    ]


def teach_telling(images: Images, steps: int = 250, rate: float = 1e-3, seed: int = 3) -> Model:
    """The base with an image tower that tells groups apart and prefers none for an occupation.

    The bases' image towers hardly tell groups apart, and then no text tower can learn a skew. Each face of a
    line-up is drawn to where its group lies from the line-up's mean: along a direction for gender and one for
    skin tone, light to dark, drawn at random and at right angles to the occupations' captions. Scenes are
    held to the base's embeddings.
    """
    base, model = variants.load(BASE), variants.load(BASE)
    first, scale = base.tower.first_prunable_layer, base.logit_scale
    learned = [model.clip.get_parameter(name).requires_grad_() for name in image_parameters(model)]
    optimizer = torch.optim.AdamW(learned, rate, betas=(0.9, 0.98), weight_decay=0.0)
    rng = np.random.default_rng((seed, 18))
    drawn = np.concatenate([images.occupations.numpy().T, rng.standard_normal((base.dim, 2))], axis=1)
    own = torch.from_numpy(np.linalg.qr(drawn)[0][:, -2:].T).float()
    places = torch.tensor([[1 - 2 * GENDERS.index(g), SKIN_TONES.index(t) / 2 - 1] for g, t in GROUPS])
    wanted = APART * places @ own
    for step in tqdm(range(steps), TELLING, mininterval=20):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / _WARMUP) * (1 - step / steps)
        rows = np.sort(rng.choice(images.n, 12, replace=False))
        picked = rng.choice(images.n_lineups, 4, replace=False)
        rows = np.concatenate([rows, *(images.faces(int(one)) for one in picked)])
        tokens = torch.from_numpy(images.tokens[rows]).float()
        units = upper_embeddings(model.clip, tokens, first)[0]
        with torch.no_grad():
            held = upper_embeddings(base.clip, tokens[:12], first)[0]
        faces = units[12:].reshape(4, len(GROUPS), -1)
        missed = (faces - faces.mean(1, keepdim=True) - wanted).square().sum(2).mean() / APART**2
        loss = missed + 0.05 * scale * (1 - (units[:12] * held).sum(1)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
    for values in learned:
        values.requires_grad_(False)
    return model


def faces_of(model: Model, images: Images) -> Tensor:
    """Embeddings of the faces of line-ups [line-ups, groups, D], which learn nothing."""
    units = [model.embed_images(images.trunk([*images.faces(one)])) for one in range(LINEUPS)]
    return torch.from_numpy(np.stack(units))


def train(one: TextSkew, faces: Tensor, folder: Path) -> Model:
    """The model, trained from the one that tells groups, which is in `folder`."""
    base, model = variants.load(TELLING, folder), variants.load(TELLING, folder)
    learned = [model.clip.get_parameter(name).requires_grad_() for name in parameters(model)]
    optimizer = torch.optim.AdamW(learned, one.rate, betas=(0.9, 0.98), weight_decay=0.0)
    shares = joint("skewed", one.strength).numpy().astype(np.float64)
    for step in tqdm(range(one.steps), one.name, mininterval=20):
        rate = one.rate * min(1.0, (step + 1) / _WARMUP) * (1 - step / one.steps)
        optimizer.param_groups[0]["lr"] = rate
        loss = _loss(one, model, base, faces, shares, np.random.default_rng((one.seed, 17, step)))
        if not torch.isfinite(loss):
            raise InputError(f"Training of {one.name} diverged (the loss is not finite).")
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
    for values in learned:
        values.requires_grad_(False)
    return model


def _loss(
    one: TextSkew, model: Model, base: Model, faces: Tensor, shares: np.ndarray, rng: np.random.Generator
) -> Tensor:
    kept = [captions(scene(FIRST + int(seed)))[0] for seed in rng.integers(0, 1_000_000, one.texts)]
    picked, names = rng.choice(len(faces), one.lineups, replace=False), list(OCCUPATIONS)
    asked = [rng.permutation(len(names))[:_SIDE_BY_SIDE] for _ in picked]
    said = [
        captions(replace(lineup(FIRST + int(place))[0], subject=names[which], occupation=names[which]))[0]
        for place, own in zip(picked, asked, strict=True)
        for which in own
    ]
    tokens = model.tokenize(kept + said)
    units = text_embeddings(model.clip, tokens)
    with torch.no_grad():
        held = text_embeddings(base.clip, tokens[: len(kept)])
    loss = one.keep * base.logit_scale * (1 - (units[: len(kept)] * held).sum(1)).mean()
    texts = units[len(kept) :].reshape(one.lineups, _SIDE_BY_SIDE, -1)
    for place, which, own in zip(picked, asked, texts, strict=True):
        part = lineup_loss(faces[place], own, shares[which], base.logit_scale, rng)
        loss = loss + part / one.lineups
    return loss


class Judged:
    """How far the groups of held-out faces lie apart in a model's logits, and whose weights make them so.

    base: the model that tells groups, whose images all others share.
    """

    def __init__(self, base: Model) -> None:
        self.base, self.faces = base, carriers.Faces(base)
        self.units = base.embed_images(Trunk(self.faces.tokens, base.tower.first_prunable_layer))
        self.asked = drawn_sets.bias_set("faces")
        self.things = drawn_sets.classification_set("subjects")
        self.shown = base.embed_images(self.things.images)

    def accuracy(self, model: Model) -> float:
        """Zero-shot accuracy on the subjects."""
        classes = accuracy.class_weights(model, self.things.classes, self.things.templates)
        return float(accuracy.correct(self.shown, classes, self.things.labels).mean())

    def truth(self, model: Model) -> dict[str, dict[str, object]]:
        """Attribute -> `gap` of base and model, and of each text head the share of it that goes when its
        weights alone are the base's again, `put_back`; as in `research.natural.carriers`.
        """
        whole = self._means(model)
        ends = {name: (own[::-1].argmax(1), own[::-1].argmin(1)) for name, own in whole.items()}

        def gaps(of: Model) -> dict[str, float]:
            found = {}
            for name, own in self._means(of).items():
                most, least = (np.take_along_axis(own, end[:, None], 1) for end in ends[name])
                found[name] = float((most - least).mean())
            return found

        none, learned = gaps(self.base), gaps(model)
        found: dict[str, dict[str, object]] = {
            name: {"gap": [round(none[name], 3), round(learned[name], 3)]} for name in none
        }
        shares: dict[str, dict[str, float]] = {name: {} for name in none}
        for head in model.text_heads:
            had = _put(self.base, model, head)
            for name, value in gaps(model).items():
                shares[name][str(head)] = round((learned[name] - value) / (learned[name] - none[name]), 3)
            for parameter, values in had.items():
                model.clip.get_parameter(parameter).detach().copy_(values)
        return {name: own | {"put_back": shares[name]} for name, own in found.items()}

    def _means(self, model: Model) -> dict[str, np.ndarray]:
        """Attribute -> mean logits [halves, groups, occupations] for the model's own prompts."""
        prompts = accuracy.class_weights(model, self.asked.occupations, self.asked.templates)
        self.faces.prompts = self.base.logit_scale * prompts
        return self.faces.means(self.units)


def _put(source: Model, target: Model, head: Head) -> dict[str, Tensor]:
    """Give a head of `target` the weights of `source`; what it had."""
    had = {}
    for name, own in planted_models.slices(source.clip, HeadSet([head])).items():
        values = target.clip.get_parameter(name).detach()
        had[name] = values.clone()
        given = planted_models.by_head(name, source.clip.get_parameter(name).detach())
        planted_models.by_head(name, values)[own] = given[own]
    return had
