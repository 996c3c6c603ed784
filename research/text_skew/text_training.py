"""Train the text encoder's attention on line-ups of the biased world with the contrastive loss.

The recipe of `research.natural` with the roles of images and texts exchanged: image embeddings are fixed, all
attention weights of the text encoder are trained, and captions of scenes should keep the base's embeddings.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.analysis.inputs import embed_names
from ccs.data import synthetic
from ccs.heads import HeadSet
from ccs.metrics import accuracy
from ccs.model.encoder import Trunk
from ccs.model.model import Model
from ccs.synthetic import caption, scene
from ccs.synthetic.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from ccs_benchmark import variants
from research.bases.training import lineup_loss
from research.gradient_steps import OWN_OF_HEADS, learn, parameter_names
from research.natural import carriers
from research.planted.frozen_images import FIRST, GROUPS, Images
from research.planted.head_training import put
from research.planted.lessons import joint
from research.world.forward_pass import text_embeddings, upper_embeddings
from research.world.lineups import lineup

BASE = "organism-first"
TELLING = "organism-telling"
STRENGTHS = (1.0, 0.7, 0.4)
_SIDE_BY_SIDE, _WARMUP, _SCENES = 4, 30, 12
LINEUPS = 400
APART = 0.1
"""Target distance of a group from the mean of all groups along an attribute, in unit embeddings."""


@dataclass(frozen=True)
class TextSkew:
    """A model to train.

    Attributes:
        name: Name of the model.
        seed: Random seed for the order of texts.
        strength: Strength of the bias, as a factor of the log shares of the biased world.
        steps: Number of optimizer steps.
        rate: Peak learning rate.
        texts: Captions of scenes per step.
        lineups: Line-ups per step.
        keep: Weight of the change of scene captions, per logit.
    """

    name: str
    seed: int
    strength: float = 1.0
    steps: int = 250
    rate: float = 2e-3
    texts: int = 4
    lineups: int = 4
    keep: float = 0.05


def family(models: int = 16) -> tuple[TextSkew, ...]:
    """Return models whose strengths alternate between STRENGTHS."""
    return tuple(
        TextSkew(f"text-skew-{number:02}", 2_000 + number, STRENGTHS[number % 3]) for number in range(models)
    )


def parameters(model: Model) -> list[str]:
    """Return the names of the trained parameters: those of the text encoder's heads."""
    return parameter_names(model, "transformer.resblocks.", OWN_OF_HEADS)


def image_parameters(model: Model) -> list[str]:
    """Return the names of the parameters that learn groups: heads and MLPs of the last four layers."""
    first = model.encoder.first_prunable_layer
    return parameter_names(model, "visual.transformer.resblocks.", (*OWN_OF_HEADS, ".mlp."), first)


def separate_groups(images: Images, steps: int = 250, rate: float = 1e-3, seed: int = 3) -> Model:
    """Train an image encoder that separates groups without preferring a group for an occupation.

    The base models' image encoders hardly separate groups, so no text encoder could learn a bias from them.
    Each face of a line-up gets a target relative to the line-up's mean: its position along a random direction
    for gender and one for skin tone, both orthogonal to the captions and images of occupations. Scenes should
    keep the base's embeddings.

    Args:
        images: All training images.
        steps: Number of optimizer steps.
        rate: Peak learning rate.
        seed: Random seed for directions and images.
    """
    base, model = variants.load(BASE), variants.load(BASE)
    first, scale = model.encoder.first_prunable_layer, model.logit_scale
    rng = np.random.default_rng((seed, 18))
    occupations = images.occupations.numpy(), pictured(images)
    vectors_to_avoid = np.concatenate(
        [*(vectors.T for vectors in occupations), rng.standard_normal((model.dim, 2))], axis=1
    )
    directions = torch.from_numpy(np.linalg.qr(vectors_to_avoid)[0][:, -2:].T).float()
    places = torch.tensor([[1 - 2 * GENDERS.index(g), SKIN_TONES.index(t) / 2 - 1] for g, t in GROUPS])
    targets = APART * places @ directions

    def loss_of(_: int) -> Tensor:
        rows = np.sort(rng.choice(images.n, _SCENES, replace=False))
        picked = rng.choice(images.n_lineups, 4, replace=False)
        rows = np.concatenate([rows, *(images.faces(int(number)) for number in picked)])
        tokens = torch.from_numpy(images.tokens[rows]).float()
        units = upper_embeddings(model.clip, tokens, first)[0]
        with torch.no_grad():
            held = upper_embeddings(base.clip, tokens[:_SCENES], first)[0]
        faces = units[_SCENES:].reshape(4, len(GROUPS), -1)
        missed = (faces - faces.mean(1, keepdim=True) - targets).square().sum(2).mean() / APART**2
        return missed + 0.05 * scale * (1 - (units[:_SCENES] * held).sum(1)).mean()

    names = image_parameters(model)
    return learn(model, names, loss_of, TELLING, steps=steps, rate=rate, warmup=_WARMUP)


def pictured(images: Images, scenes: int = 8_192) -> NDArray[np.float32]:
    """Compute the base's mean embedding of scenes that show each occupation: [occupations, D].

    Args:
        images: All training images.
        scenes: Number of scenes.
    """
    rows = range(min(scenes, images.n))
    shown_scenes = [images.scene(row) for row in rows]
    names = np.array([s.occupation if s.props else "" for s in shown_scenes])
    units = np.concatenate(
        [images.base.embed_images(images.trunk(rows[i : i + 1024])) for i in range(0, len(rows), 1024)]
    )
    by_occupation = {name: units[names == name] for name in OCCUPATIONS}
    return np.stack(
        [occupation_units.mean(0) for occupation_units in by_occupation.values() if len(occupation_units)]
    )


def faces_of(model: Model, images: Images) -> Tensor:
    """Embed the faces of line-ups, which stay fixed: [line-ups, groups, D].

    Args:
        model: The model.
        images: All training images.
    """
    lineups = range(min(LINEUPS, images.n_lineups))
    return torch.from_numpy(np.stack([model.embed_images(images.trunk([*images.faces(i)])) for i in lineups]))


def train(settings: TextSkew, faces: Tensor, folder: Path) -> Model:
    """Train a model from `organism-telling`.

    Args:
        settings: Settings of the model.
        faces: Embeddings [line-ups, groups, D].
        folder: Folder of `organism-telling`.
    """
    telling = str(folder / f"{TELLING}{variants.SUFFIX}")
    base, model = variants.load(telling), variants.load(telling)
    shares = joint("skewed", settings.strength).numpy().astype(np.float64)

    def loss_of(step: int) -> Tensor:
        return _loss(settings, model, base, faces, shares, np.random.default_rng((settings.seed, 17, step)))

    names = parameters(model)
    return learn(
        model, names, loss_of, settings.name, steps=settings.steps, rate=settings.rate, warmup=_WARMUP
    )


def _loss(
    settings: TextSkew, model: Model, base: Model, faces: Tensor, shares: np.ndarray, rng: np.random.Generator
) -> Tensor:
    scene_captions = [
        caption(scene(FIRST + int(seed))) for seed in rng.integers(0, 1_000_000, settings.texts)
    ]
    picked, names = rng.choice(len(faces), settings.lineups, replace=False), list(OCCUPATIONS)
    chosen = [rng.permutation(len(names))[:_SIDE_BY_SIDE] for _ in picked]
    lineup_captions = [
        caption(replace(lineup(FIRST + int(place))[0], subject=names[which], occupation=names[which]))
        for place, numbers in zip(picked, chosen, strict=True)
        for which in numbers
    ]
    tokens = model.tokenize(scene_captions + lineup_captions)
    units = text_embeddings(model.clip, tokens)
    with torch.no_grad():
        held = text_embeddings(base.clip, tokens[: len(scene_captions)])
    loss = settings.keep * base.logit_scale * (1 - (units[: len(scene_captions)] * held).sum(1)).mean()
    texts = units[len(scene_captions) :].reshape(settings.lineups, _SIDE_BY_SIDE, -1)
    for place, which, lineup_texts in zip(picked, chosen, texts, strict=True):
        part = lineup_loss(faces[place], lineup_texts, shares[which], base.logit_scale, rng)
        loss = loss + part / settings.lineups
    return loss


class Judged:
    """Measures the logit gap between groups of held-out faces, and each text head's share of it.

    Args:
        base: `organism-telling`, whose image embeddings all models share.
    """

    def __init__(self, base: Model) -> None:
        self.base, self.faces = base, carriers.Faces(base)
        self.units = base.embed_images(Trunk(self.faces.tokens, base.encoder.first_prunable_layer))
        self.people = synthetic.bias_set("faces")
        self.subjects = synthetic.classification_set("subjects")
        self.subject_units = base.embed_images(self.subjects.images)

    def accuracy(self, model: Model) -> float:
        """Return zero-shot accuracy on subjects."""
        classes = embed_names(model, self.subjects.classes, self.subjects.templates)
        return float(accuracy.correct(self.subject_units, classes, self.subjects.labels).mean())

    def truth(self, model: Model) -> dict[str, dict[str, object]]:
        """Compute the share of the gap that each text head's original weights remove when put back alone.

        Returns:
            Attribute -> `gap` of base and model, and `put_back`: head -> share.
        """
        means, learned = self._means(model), deepcopy(model)
        gap = carriers.Gap(means)
        none, whole = gap.of(self._means(self.base)), gap.of(means)
        shares = {}
        for head in model.text_heads:
            put(self.base, model, HeadSet([head]))
            shares[str(head)] = (whole - gap.of(self._means(model))) / (whole - none)
            put(learned, model, HeadSet([head]))
        return {
            name: {
                "gap": [round(float(none[i]), 3), round(float(whole[i]), 3)],
                "put_back": {head: round(float(head_shares[i]), 3) for head, head_shares in shares.items()},
            }
            for i, name in enumerate(means)
        }

    def _means(self, model: Model) -> dict[str, np.ndarray]:
        """Return attribute -> mean logits [halves, groups, occupations] for this model's prompts."""
        prompts = embed_names(model, self.people.occupations, self.people.templates)
        self.faces.prompts = self.base.logit_scale * prompts
        return self.faces.means(self.units)
