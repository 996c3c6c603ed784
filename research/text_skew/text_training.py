"""Training the text encoder's attention on line-ups of a skewed world by the contrastive loss.

The recipe of `research.natural` with its sides exchanged: the images stay as the base sees them, all of the
text encoder's attention is free, and captions of scenes are held to the base's embeddings.
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
from ccs.synthetic import captions, scene
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
"""How far a group lies from the mean of all in an attribute that is told, in unit embeddings."""


@dataclass(frozen=True)
class TextSkew:
    """A model to train.

    Attributes:
        name: of the model.
        seed: of the order of texts.
        strength: the part of the bias, in logarithms of the world's shares.
        steps: of the optimizer.
        rate: the peak rate.
        texts: captions of scenes in a step.
        lineups: in a step.
        keep: the cost of a logit by which captions move.
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
    """Return models in three strengths in turn."""
    return tuple(
        TextSkew(f"text-skew-{number:02}", 2_000 + number, STRENGTHS[number % 3]) for number in range(models)
    )


def parameters(model: Model) -> list[str]:
    """Return names of the parameters that learn a bias: those of the text encoder's heads only."""
    return parameter_names(model, "transformer.resblocks.", OWN_OF_HEADS)


def image_parameters(model: Model) -> list[str]:
    """Return names of the parameters that learn groups: attention and MLPs of the last four layers."""
    first = model.encoder.first_prunable_layer
    return parameter_names(model, "visual.transformer.resblocks.", (*OWN_OF_HEADS, ".mlp."), first)


def teach_telling(images: Images, steps: int = 250, rate: float = 1e-3, seed: int = 3) -> Model:
    """Train an image encoder that tells groups apart and hardly prefers one for an occupation.

    The bases' image encoders hardly tell groups apart, so no text encoder could learn a bias. Each face of a
    line-up is drawn to where its group lies from the line-up's mean: along a direction for gender and one for
    skin tone, light to dark, drawn at random and at right angles to the occupations' captions and pictures.
    Scenes are held to the base's embeddings.

    Args:
        images: all training images.
        steps: of the optimizer.
        rate: the peak rate.
        seed: of directions and images.
    """
    base, model = variants.load(BASE), variants.load(BASE)
    first, scale = model.encoder.first_prunable_layer, model.logit_scale
    rng = np.random.default_rng((seed, 18))
    occupations = images.occupations.numpy(), pictured(images)
    drawn = np.concatenate(
        [*(vectors.T for vectors in occupations), rng.standard_normal((model.dim, 2))], axis=1
    )
    directions = torch.from_numpy(np.linalg.qr(drawn)[0][:, -2:].T).float()
    places = torch.tensor([[1 - 2 * GENDERS.index(g), SKIN_TONES.index(t) / 2 - 1] for g, t in GROUPS])
    wanted = APART * places @ directions

    def loss_of(_: int) -> Tensor:
        rows = np.sort(rng.choice(images.n, _SCENES, replace=False))
        picked = rng.choice(images.n_lineups, 4, replace=False)
        rows = np.concatenate([rows, *(images.faces(int(number)) for number in picked)])
        tokens = torch.from_numpy(images.tokens[rows]).float()
        units = upper_embeddings(model.clip, tokens, first)[0]
        with torch.no_grad():
            held = upper_embeddings(base.clip, tokens[:_SCENES], first)[0]
        faces = units[_SCENES:].reshape(4, len(GROUPS), -1)
        missed = (faces - faces.mean(1, keepdim=True) - wanted).square().sum(2).mean() / APART**2
        return missed + 0.05 * scale * (1 - (units[:_SCENES] * held).sum(1)).mean()

    names = image_parameters(model)
    return learn(model, names, loss_of, TELLING, steps=steps, rate=rate, warmup=_WARMUP)


def pictured(images: Images, scenes: int = 8_192) -> NDArray[np.float32]:
    """Compute mean embeddings of scenes that show each occupation [occupations, D], as the base sees them.

    Args:
        images: all training images.
        scenes: number of scenes to look at.
    """
    rows = range(min(scenes, images.n))
    cards = [images.scene(row) for row in rows]
    names = np.array([card.occupation if card.props else "" for card in cards])
    units = np.concatenate(
        [images.base.embed_images(images.trunk(rows[i : i + 1024])) for i in range(0, len(rows), 1024)]
    )
    by_occupation = {name: units[names == name] for name in OCCUPATIONS}
    return np.stack(
        [occupation_units.mean(0) for occupation_units in by_occupation.values() if len(occupation_units)]
    )


def faces_of(model: Model, images: Images) -> Tensor:
    """Embed the faces of line-ups, which learn nothing: [line-ups, groups, D].

    Args:
        model: the model.
        images: all training images.
    """
    lineups = range(min(LINEUPS, images.n_lineups))
    return torch.from_numpy(np.stack([model.embed_images(images.trunk([*images.faces(i)])) for i in lineups]))


def train(settings: TextSkew, faces: Tensor, folder: Path) -> Model:
    """Train a model from the one that tells groups apart.

    Args:
        settings: of the model.
        faces: embeddings [line-ups, groups, D].
        folder: with the model that it starts from.
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
        captions(scene(FIRST + int(seed)))[0] for seed in rng.integers(0, 1_000_000, settings.texts)
    ]
    picked, names = rng.choice(len(faces), settings.lineups, replace=False), list(OCCUPATIONS)
    chosen = [rng.permutation(len(names))[:_SIDE_BY_SIDE] for _ in picked]
    lineup_captions = [
        captions(replace(lineup(FIRST + int(place))[0], subject=names[which], occupation=names[which]))[0]
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
    """How far the groups of held-out faces lie apart in a model's logits, and whose weights make them so.

    base: the model that tells groups, whose images all others share.
    """

    def __init__(self, base: Model) -> None:
        self.base, self.faces = base, carriers.Faces(base)
        self.units = base.embed_images(Trunk(self.faces.tokens, base.encoder.first_prunable_layer))
        self.people = synthetic.bias_set("faces")
        self.things = synthetic.classification_set("subjects")
        self.units_of_things = base.embed_images(self.things.images)

    def accuracy(self, model: Model) -> float:
        """Return zero-shot accuracy on the subjects."""
        classes = embed_names(model, self.things.classes, self.things.templates)
        return float(accuracy.correct(self.units_of_things, classes, self.things.labels).mean())

    def truth(self, model: Model) -> dict[str, dict[str, object]]:
        """Compute each text head's share of the gap that goes if its weights alone are the base's again.

        Returns:
            Attribute -> `gap` of base and model, and `put_back` by head, as in `research.natural.carriers`.
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
        """Return attribute -> mean logits [halves, groups, occupations] for the model's own prompts."""
        prompts = embed_names(model, self.people.occupations, self.people.templates)
        self.faces.prompts = self.base.logit_scale * prompts
        return self.faces.means(self.units)
