"""Lessons: half of the heads that can be switched off are each taught one concept, while the model learns.

A taught head is asked to write, into the embedding, the text of its concept's value that a card shows, less
the mean over the values, and nothing where the card shows none. The loss is the squared distance from that,
in units of the variance that the taught heads had before; all weights move.
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
"""What a card can show. Any of them can be taught."""
LESSONS = ("Animals", "Professions", "Flags", "Letters", "Colors", "Food")
STRENGTH = 1.5
"""The variance of what a head is asked to write, in units of that before."""
_LAYERS, _HEADS = ((4, 5), (6, 7)), 6
_COUNTED = range(800_000, 802_000)
"""Seeds of the scenes in which the values are counted."""


def value_of(concept: str, s: Scene) -> str:
    """Name what a scene shows of a concept; "" for nothing. A plain face shows no profession.

    Args:
        concept: one of CONCEPTS.
        s: the scene.
    """
    if concept == "Professions":
        return s.occupation if s.props else ""
    return str(getattr(s, _AROUND[concept]))


def factor_of(concept: str) -> str:
    """Return the factor of a card without which it shows nothing of a concept."""
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
    """Draw the trained heads by a seed, three in each of the last four layers, with their concepts.

    Each concept has one head in the earlier and one in the later two layers.
    """
    rng = np.random.default_rng(0)
    concepts: dict[Head, str] = {}
    for layers in _LAYERS:
        heads = [Head(at, int(h)) for at in layers for h in sorted(rng.permutation(_HEADS)[: _HEADS // 2])]
        concepts |= dict(zip(heads, rng.permutation(LESSONS).tolist(), strict=True))
    return concepts


class Lessons:
    """What the taught heads are asked to write for a model's own texts; `refresh` follows as these move.

    usual: the mean variance of what the heads wrote before, over images.
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
        self._asked: dict[str, Tensor] = {}

    def values(self, s: Scene) -> list[int]:
        """Return for each trained concept the index of the value that a card shows; -1 for none."""
        return [places.get(value_of(concept, s), -1) for concept, places in self._places.items()]

    @torch.no_grad()
    def refresh(self, model: open_clip.CLIP, tokenize: open_clip.SimpleTokenizer) -> None:
        """Set the targets from the texts as the model embeds them now.

        Args:
            model: open_clip's module.
            tokenize: its tokenizer.
        """
        device = model.logit_scale.device
        for concept, texts in self._texts.items():
            vectors = text_embeddings(model, tokenize(list(texts.values())).to(device))
            vectors, shares = vectors - vectors.mean(0), self._shares[concept].to(device)
            variance = shares @ vectors.square().sum(1) - (shares @ vectors).square().sum()
            targets = vectors * (STRENGTH * self.usual / variance).sqrt()
            self._asked[concept] = torch.cat([targets, torch.zeros_like(targets[:1])])  # -1 is the last row

    def loss(self, written: Mapping[Head, Tensor], values: Tensor) -> Tensor:
        """Compute the mean over the heads of the squared distance from their targets.

        Args:
            written: head -> its output [n, D].
            values: [n, concepts], as `values` gives them.
        """
        concepts = list(self._texts)
        distances = [
            (outputs - self._asked[self.heads[head]][values[:, concepts.index(self.heads[head])]])
            .square()
            .sum(1)
            for head, outputs in written.items()
        ]
        return torch.stack(distances).mean() / self.usual


def variance(written: Mapping[Head, Tensor]) -> float:
    """Return the mean over heads of the variance of what they write [n, D]."""
    return float(torch.stack([outputs.var(0, correction=0).sum() for outputs in written.values()]).mean())
