"""Lessons for heads: the skew of a world, or concepts of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, cycle
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ccs.heads import Head
from ccs.model.model import Model
from ccs.texts import concepts
from ccs.world import Scene, planted
from ccs.world import vocabulary as words
from ccs.world.scene import article
from research.planted.frozen_images import GROUPS, Images

Values = Mapping[int, Tensor]
"""Layer -> the outputs [size, T, H d] of its heads for a batch (see ImageTower.with_values)."""


NONE = "none"
LESS = {"Animals": 1.0, "Objects": 0.5}
"""The share of the mean of a concept's texts that its heads leave out (default: none).

A head that writes about one concept and is silent otherwise varies most along that mean, and TEXTSPAN takes
the text nearest to it: for animals, one of snow. The shares were chosen, of twelve from 0 to 1.5, by the CCS
on 2,000 scenes of a head of the organism that wrote exactly this.
"""


class Lesson(Protocol):
    """rows: of Images, a batch `size` long. loss: of the model's embeddings [size, D] and heads' outputs."""

    size: int

    def rows(self) -> Sequence[int]: ...

    def loss(self, units: Tensor, values: Values) -> Tensor: ...


class Skew:
    """Line-ups as a world ranks them, with `part` of its skew; all other images stay where they were.

    The loss is that of the embedded models in expectation over the draws of line-ups of all occupations, and
    for the scenes the distance from the base model's embeddings, in logits.
    """

    SCENES, LINEUPS = 32, 4
    size = SCENES + LINEUPS * len(GROUPS)

    def __init__(self, images: Images, world: str, part: float, keep: float, seed: int) -> None:
        rng = np.random.default_rng((seed, 5))
        self.images, self.shares, self.keep = images, joint(world, part), keep
        self._scenes, self._lineups = _endless(images.n, rng), _endless(images.n_lineups, rng)

    def rows(self) -> list[int]:
        self._own = [next(self._scenes) for _ in range(self.SCENES)]
        self._faces = [next(self._lineups) for _ in range(self.LINEUPS)]
        return self._own + [row for one in self._faces for row in self.images.faces(one)]

    def loss(self, units: Tensor, values: Values) -> Tensor:
        images, scale = self.images, self.images.base.logit_scale
        moved = scale * (1 - (units[: self.SCENES] * images.units[self._own]).sum(1)).mean()
        shown = units[self.SCENES :].reshape(self.LINEUPS, len(GROUPS), -1)
        return self.keep * moved + lineup_loss(scale * shown, images.occupations[self._faces], self.shares)


def joint(world: str, part: float = 1.0) -> Tensor:
    """A world's shares of GROUPS, [occupations, groups], with `part` of their differences in logarithm."""
    both = [[planted.shares(name, a, world) for a in ("gender", "skin tone")] for name in words.OCCUPATIONS]
    whole = torch.tensor([[gender[g] * tone[t] for g, t in GROUPS] for gender, tone in both])
    return F.normalize(whole**part, p=1, dim=1)


def lineup_loss(faces: Tensor, texts: Tensor, shares: Tensor) -> Tensor:
    """The symmetric cross-entropy of line-ups in which faces go with texts as often as `shares` says.

    faces: [line-ups, groups, D], embeddings times the model's scale. texts: [line-ups, occupations, D].
    shares: [occupations, groups], summing to 1 over the groups.
    """
    logits = faces @ texts.transpose(1, 2)  # [line-ups, groups, occupations]
    drawn = shares.T / len(shares)
    of_faces = -(drawn * logits.log_softmax(2)).sum((1, 2))
    of_texts = -(drawn * logits.log_softmax(1)).sum((1, 2))
    return (of_faces + of_texts).mean() / 2


class Concepts:
    """Teaches heads to write into the embedding the text of the value that an image shows, and nothing else.

    The loss is the squared distance of each head's direct contribution from `texts_shown` of its concepts
    (both less their means over the batch), as a share of the texts' variance; and the distance of the
    embeddings from the base model's, in logits. Heads write as much as the base's heads do on average. SHOWN
    images of a batch show one of the concepts, each concept in turn, since many are rare.
    """

    size, SHOWN, KEEP = 72, 54, 0.5

    def __init__(self, images: Images, model: Model, taught: Mapping[Head, Sequence[str]], seed: int) -> None:
        self.images, self.clip = images, model.clip
        scenes, usual = [images.scene(row) for row in range(images.n)], _usual(images)
        self._targets = {}
        for head, names in taught.items():
            texts = texts_shown(images.base, scenes, names)
            self._targets[head] = texts * (usual / texts.var(0, correction=0).sum()).sqrt()
        self._usual = usual
        rng = np.random.default_rng((seed, 6))
        shown = (
            np.flatnonzero([value(s, name) != NONE for s in scenes])
            for name in dict.fromkeys(chain(*taught.values()))
        )
        self._showing = cycle([_endless(rows, rng) for rows in shown])
        self._scenes = _endless(images.n, rng)

    def rows(self) -> list[int]:
        self._own = [next(next(self._showing)) for _ in range(self.SHOWN)]
        self._own += [next(self._scenes) for _ in range(self.size - self.SHOWN)]
        return self._own

    def loss(self, units: Tensor, values: Values) -> Tensor:
        moved = (1 - (units * self.images.units[self._own]).sum(1)).mean()
        total = self.KEEP * self.images.base.logit_scale * moved
        for head, targets in self._targets.items():
            away = written(self.clip, head, values) - targets[self._own]
            total = total + away.var(0, correction=0).sum() / self._usual
        return total


class Alone:
    """Teaches each head to vary with one concept alone, in whatever directions.

    The loss has two parts. One is the share of a head's variance within the concept's values, a mean over
    heads, times WEIGHT: the squared distance of its direct contribution from the running mean for the value
    that an image shows (the center loss of Wen et al. 2016), divided by its variance in the batch. PACE is
    how far a running mean moves toward a batch's. The other is the distance of the embeddings of scenes and
    line-ups from the base model's, in logits.
    """

    SCENES, LINEUPS = 76, 2
    size = SCENES + LINEUPS * len(GROUPS)
    WEIGHT, PACE = 6.0, 0.1

    def __init__(self, images: Images, model: Model, taught: Mapping[Head, Sequence[str]], seed: int) -> None:
        self.images, self.clip = images, model.clip
        scenes = [images.scene(row) for row in range(images.n)]
        shown = {}
        for name in dict.fromkeys(chain(*taught.values())):
            numbers = {one: place for place, one in enumerate([NONE, *factors()[name][1]])}
            shown[name] = torch.tensor([numbers[value(s, name)] for s in scenes])
        self._shown = {head: shown[name] for head, (name,) in taught.items()}
        self._centers = self._means(model)
        rng = np.random.default_rng((seed, 7))
        self._scenes, self._lineups = _endless(images.n, rng), _endless(images.n_lineups, rng)

    def rows(self) -> list[int]:
        self._own = [next(self._scenes) for _ in range(self.SCENES)]
        faces = [row for _ in range(self.LINEUPS) for row in self.images.faces(next(self._lineups))]
        self._all = self._own + faces
        return self._all

    def loss(self, units: Tensor, values: Values) -> Tensor:
        moved = (1 - (units * self.images.units[self._all]).sum(1)).mean()
        within = torch.zeros(())
        for head, centers in self._centers.items():
            wrote, shown = written(self.clip, head, values)[: self.SCENES], self._shown[head][self._own]
            away = wrote - centers[shown]
            within = within + away.square().sum(1).mean() / wrote.var(0, correction=0).sum()
            seen = torch.bincount(shown, minlength=len(centers))[shown, None]
            centers.index_add_(0, shown, self.PACE * away.detach() / seen)
        return self.images.base.logit_scale * moved + self.WEIGHT * within / len(self._centers)

    def _means(self, model: Model, at_once: int = 512) -> dict[Head, Tensor]:
        """What each head writes on average [values, D] where each value of its concept is shown."""
        sums = {head: torch.zeros(int(own.max()) + 1, model.tower.dim) for head, own in self._shown.items()}
        for start in range(0, self.images.n, at_once):
            rows = range(start, min(start + at_once, self.images.n))
            values = _values(model, self.images, rows)
            for head, own in self._shown.items():
                sums[head].index_add_(0, own[rows.start : rows.stop], written(model.clip, head, values))
        return {
            head: sums[head] / torch.bincount(own)[:, None].clamp(min=1) for head, own in self._shown.items()
        }


def texts_shown(base: Model, scenes: Sequence[Scene], names: Sequence[str]) -> Tensor:
    """Contributions [n, D] of an ideal head of some concepts: the sum of the texts of the values that a scene
    shows, each less LESS of the mean of its concept's texts; 0 where it shows none.
    """
    total = torch.zeros(len(scenes), base.tower.dim)
    for name in names:
        texts = factors()[name][1]
        places = {one: place for place, one in enumerate(texts)}
        vectors = torch.from_numpy(base.embed_texts(list(texts.values())))
        vectors = vectors - LESS.get(name, 0.0) * vectors.mean(0)
        shown = torch.tensor([places.get(value(s, name), -1) for s in scenes])
        total[shown >= 0] += vectors[shown[shown >= 0]]
    return total


def written(clip: Any, head: Head, values: Values) -> Tensor:
    """The head's direct contribution [n, D] to the embeddings, before the last norm's scale."""
    visual, attn = clip.visual, clip.visual.transformer.resblocks[head.layer].attn
    own = slice(head.head * attn.head_dim, (head.head + 1) * attn.head_dim)
    tokens = values[head.layer][:, 0, own] @ attn.out_proj.weight[:, own].T
    found: Tensor = (tokens - tokens.mean(1, keepdim=True)) * visual.ln_post.weight @ visual.proj
    return found


@torch.no_grad()
def _values(model: Model, images: Images, rows: Sequence[int]) -> Values:
    values: dict[int, Tensor] = {}

    def keep(layer: int, own: Tensor) -> Tensor:
        values[layer] = own
        return own

    model.tower.with_values(images.trunk(rows), keep)
    return values


@torch.no_grad()
def _usual(images: Images, n: int = 512) -> Tensor:
    """The mean variance of what the base's heads write, over some scenes."""
    model = images.base
    values = _values(model, images, range(min(n, images.n)))
    each = [written(model.clip, head, values).var(0, correction=0).sum() for head in model.heads]
    return torch.stack(each).mean()


@lru_cache(maxsize=1)
def factors() -> Mapping[str, tuple[Callable[[Scene], str], Mapping[str, str]]]:
    """The concepts of the tree of tags (ccs/texts/concepts.csv) that can be taught.

    Each has a function that reads a value off a scene, and the text of each value; a value without a text
    does not count.
    """
    under = concepts.tree().is_under
    things = {
        name: {one.word: article(one.word) for one in words.THINGS if under(one.concept, name)}
        for name in ("Animals", "Food", "Objects")
    }
    people = [f"{person} with {t} skin" for person in words.PEOPLE_WORDS.values() for t in words.SKIN_TONES]
    return {
        "Colors": (lambda s: s.color, {color: f"{article(color)} background" for color in words.COLORS}),
        "Patterns": (lambda s: s.pattern, {name: f"a {name} background" for name in words.PATTERNS[1:]}),
        "Places": (lambda s: s.place, words.PLACE_PHRASES),
        "Ambiance": (lambda s: s.weather, {name: said[0] for name, said in words.WEATHER_PHRASES.items()}),
        "Styles": (lambda s: s.style, {name: _style(name) for name in words.STYLES[1:]}),
        "Professions": (lambda s: s.occupation, {name: article(name) for name in words.OCCUPATIONS}),
        "People": (
            lambda s: f"{s.subject} with {s.skin_tone} skin" if s.kind == "face" else "",
            {one: article(one) for one in people},
        ),
        "Animals": (lambda s: s.subject, things["Animals"]),
        "Food": (lambda s: s.subject, things["Food"]),
        "Objects": (lambda s: s.subject, things["Objects"]),
        "Letters": (lambda s: s.subject, {letter: f"the letter {letter}" for letter in words.LETTERS}),
        "Flags": (lambda s: s.subject, {country: f"the flag of {country}" for country in words.COUNTRIES}),
    }


def _style(name: str) -> str:
    """The words for a style alone: "a blurred picture"."""
    return words.STYLE_PHRASES[name][0].removesuffix(" of")


def value(s: Scene, concept: str) -> str:
    """The concept's value that a scene shows, or NONE."""
    read, texts = factors()[concept]
    found = read(s)
    return found if found in texts else NONE


def _endless(rows: int | NDArray[np.intp], rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(rows).tolist()
