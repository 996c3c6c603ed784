"""Training targets ("lessons") of organism-first: half of the upper heads encode one concept each.

The target of a head's output, in embedding space, is the text embedding of the concept's value that a scene
shows, minus the mean over values; it is zero if the scene doesn't show the concept. The loss is the squared
distance from the target, in units of the heads' variance before this phase. All weights are trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import open_clip
import torch
from torch import Tensor

from ccs.heads import Head
from ccs.synthetic import Scene, scene
from ccs.synthetic import vocabulary as words
from ccs.synthetic.scene import AROUND
from ccs.synthetic.vocabulary import article
from research.world.forward_pass import text_embeddings

_AROUND = {
    "Animals": "animal", "Vehicles": "vehicle", "Colors": "frame", "Weather": "weather", "Flags": "flag",
    "Letters": "letter", "Food": "food",
}  # fmt: skip
CONCEPTS = ("Professions", *_AROUND)
"""The concepts that scenes can show. Each can be a training target."""
LESSONS = ("Animals", "Professions", "Flags", "Letters", "Colors", "Food")
STRENGTH = 1.5
"""The variance of a head's target, in units of the heads' variance before training to it."""
_LAYERS, _HEADS = ((4, 5), (6, 7)), 6
_COUNTED = range(800_000, 802_000)
"""Seeds of the scenes in which the frequency of each value is counted."""


def value_of(concept: str, s: Scene) -> str:
    """Return the value of a concept that a scene shows, or "" if none. A plain face shows no profession.

    Args:
        concept: One of CONCEPTS.
        s: The scene.
    """
    if concept == "Professions":
        return s.occupation if s.props else ""
    return str(getattr(s, _AROUND[concept]))


def factor_of(concept: str) -> str:
    """Return the factor of a scene that shows a concept."""
    return _AROUND.get(concept, "kind")


def concept_texts(concept: str) -> dict[str, str]:
    """Return each value of a concept with a text for it, from the pool `world`."""
    if concept == "Professions":
        return {value: article(value) for value in words.OCCUPATIONS}
    values = AROUND[_AROUND[concept]]
    if concept == "Colors":
        return {value: article(f"{value} frame") for value in values}
    text = {"Weather": "{}", "Flags": "the flag of {}", "Letters": "the letter {}"}.get(concept)
    return {value: text.format(value) if text else article(value) for value in values}


def taught() -> dict[Head, str]:
    """Draw the trained heads with a fixed seed, three in each of the last four layers, and their concepts.

    Each concept has one head in layers 4 and 5, and one in layers 6 and 7.
    """
    rng = np.random.default_rng(0)
    concepts: dict[Head, str] = {}
    for layers in _LAYERS:
        heads = [Head(at, int(h)) for at in layers for h in sorted(rng.permutation(_HEADS)[: _HEADS // 2])]
        concepts |= dict(zip(heads, rng.permutation(LESSONS).tolist(), strict=True))
    return concepts


class Lessons:
    """Targets of the trained heads, from the model's text embeddings; `refresh` updates them during training.

    Args:
        usual: Mean variance of the heads' outputs over images, before training to the targets.
        heads: Head -> concept; by default those of `taught`.
    """

    def __init__(self, usual: float, heads: Mapping[Head, str] | None = None) -> None:
        self.heads, self.usual = dict(taught() if heads is None else heads), usual
        self._texts = {concept: concept_texts(concept) for concept in sorted(set(self.heads.values()))}
        self._places = {
            concept: {value: i for i, value in enumerate(texts)} for concept, texts in self._texts.items()
        }
        values = np.array([self.values(scene(seed)) for seed in _COUNTED])
        self._shares = {
            concept: torch.tensor(
                [(concept_values == i).mean() for i in range(len(self._texts[concept]))]
            ).float()
            for concept, concept_values in zip(self._texts, values.T, strict=True)
        }
        self._targets: dict[str, Tensor] = {}

    def values(self, s: Scene) -> list[int]:
        """Return, for each trained concept, the index of the value that a scene shows; -1 if none."""
        return [places.get(value_of(concept, s), -1) for concept, places in self._places.items()]

    @torch.no_grad()
    def refresh(self, model: open_clip.CLIP, tokenize: open_clip.SimpleTokenizer) -> None:
        """Compute the targets from the model's current text embeddings.

        Args:
            model: The open_clip module.
            tokenize: Its tokenizer.
        """
        device = model.logit_scale.device
        for concept, texts in self._texts.items():
            vectors = text_embeddings(model, tokenize(list(texts.values())).to(device))
            vectors, shares = vectors - vectors.mean(0), self._shares[concept].to(device)
            variance = shares @ vectors.square().sum(1) - (shares @ vectors).square().sum()
            targets = vectors * (STRENGTH * self.usual / variance).sqrt()
            # Index -1, for scenes without the concept, selects the last row.
            self._targets[concept] = torch.cat([targets, torch.zeros_like(targets[:1])])

    def loss(self, written: Mapping[Head, Tensor], values: Tensor) -> Tensor:
        """Compute the mean squared distance of heads from their targets, in units of `usual`.

        Args:
            written: Head -> output [n, D].
            values: Indices from `values` [n, concepts].
        """
        concepts = list(self._texts)
        distances = [
            (outputs - self._targets[self.heads[head]][values[:, concepts.index(self.heads[head])]])
            .square()
            .sum(1)
            for head, outputs in written.items()
        ]
        return torch.stack(distances).mean() / self.usual


def variance(written: Mapping[Head, Tensor]) -> float:
    """Return the mean variance of heads' outputs [n, D]."""
    return float(torch.stack([outputs.var(0, correction=0).sum() for outputs in written.values()]).mean())
