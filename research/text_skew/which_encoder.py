"""The encoder in which a group score gap sits, that of the images or of the prompts, and its text heads.

A gap is a product: prompts point along what differs between groups of people. Ablating whatever tells
groups apart ends it, and so does whatever tells prompts apart, whoever is to blame. So a third thing is
needed: pictures of the same occupations, of all groups alike. If they, in place of the prompts, prefer
the same groups, the image encoder puts what belongs to occupations into groups. If they do not, the gap is
in the prompts. The question is that of Freeze and Reveal (arXiv 2508.07432), which trains an encoder at a
time instead.

Text heads are then found by putting each, where a text is read, at its mean over the prompts: what it still
says there is the same for all occupations, and later layers see nothing unusual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ccs.analysis.evidence import group_means
from ccs.analysis.inputs import embed_occupations, in_prompts
from ccs.data import BiasSet
from ccs.errors import InputError
from ccs.heads import MEAN, Head, HeadChange, HeadSet, Intervention
from ccs.metrics import stats
from ccs.metrics.stats import Estimate, Floats
from ccs.model.model import Model

DRAWS = 500
"""Resamples of the occupations, for the interval."""


@dataclass(frozen=True, kw_only=True)
class GapShares:
    """The shares of a group score gap in the image encoder and in the text encoder.

    Attributes:
        images: the share, 0 to 1, that pictures in the place of prompts show too; intervals over occupations.
        carried: the share of the rankings' gap that goes with each text head at its mean, the largest first;
            below 0 if the gap grows.
        occupations: number of occupations.
    """

    images: Estimate
    carried: dict[Head, float]
    occupations: int

    @property
    def prompts(self) -> Estimate:
        """The share in the prompts."""
        return Estimate(1 - self.images.value, 1 - self.images.high, 1 - self.images.low)

    @property
    def conclusive(self) -> bool:
        """True if the interval excludes one half."""
        return not self.images.low <= 0.5 <= self.images.high


def which_encoder(
    model: Model,
    people: BiasSet,
    pictures: BiasSet,
    attribute: str,
    seed: int = 0,
    embedded: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
) -> GapShares:
    """Split the group score gap of people's rankings for occupations between the image and the text encoder.

    Args:
        model: from `ccs.load`.
        people: to be ranked for their occupations.
        pictures: a gallery that says which occupation each image shows, such as world/counterfactuals; groups
            are weighed alike.
        attribute: a column of groups of both.
        seed: of resampling.
        embedded: the unit embeddings of both, if they are known.

    Raises:
        InputError: With fewer than three common occupations, or if an occupation's pictures lack a group.
    """
    known = () if pictures.pools is None else pictures.occupations
    shared = tuple(name for name in people.occupations if name in known)
    if len(shared) < 3:
        raise InputError(
            f"{pictures.name} must show at least three of the occupations asked for, and say which each "
            f"picture shows; they share {len(shared) or 'none'}."
        )
    if attribute not in pictures.groups:
        raise InputError(f"{pictures.name} does not say the {attribute} of the people whom it shows.")
    people = replace(people, occupations=shared)
    faces, scenes = embedded or (model.embed_images(people.images), model.embed_images(pictures.images))
    means = group_means(faces, people.groups[attribute])
    apart = means - means.mean(axis=0)
    ours = _preferences(embed_occupations(model, people), apart)
    theirs = _preferences(_shown(scenes, pictures, attribute, shared), apart)
    common, squares, n = (ours * theirs).sum(1), (ours**2).sum(1), len(ours)
    weights = np.random.default_rng([seed, 9]).multinomial(n, np.full(n, 1 / n), DRAWS)
    drawn = np.concatenate([np.ones((1, n)), weights])
    shares = np.clip((drawn @ common) / np.maximum(drawn @ squares, 1e-12), 0, 1)
    carried = _carried(model, people, apart)
    return GapShares(
        images=stats.interval(float(shares[0]), shares[1:]),
        carried=dict(sorted(carried.items(), key=lambda item: -item[1])),
        occupations=len(shared),
    )


def _preferences(queries: NDArray[np.floating], apart: Floats) -> Floats:
    """Return how far queries [occupations, d], centered and scaled, prefer groups [occupations, groups]."""
    centered = np.asarray(queries, np.float64) - queries.mean(0, dtype=np.float64)
    return np.asarray(centered @ apart.T / max(float(np.linalg.norm(centered)), 1e-12))


def _shown(
    units: NDArray[np.float32], pictures: BiasSet, attribute: str, occupations: Sequence[str]
) -> Floats:
    """Return the mean embedding of an occupation's pictures [occupations, d], groups weighed alike."""
    groups, means = pictures.groups[attribute], []
    for name, group in product(occupations, np.unique(groups)):
        members = units[(pictures.pools == name) & (groups == group)]
        if not len(members):
            raise InputError(f"{pictures.name} shows no {group} as {name!r}; every group is needed.")
        means.append(members.mean(0, dtype=np.float64))
    return np.asarray(np.reshape(means, (len(occupations), -1, units.shape[1])).mean(axis=1))


def _carried(model: Model, people: BiasSet, apart: Floats) -> dict[Head, float]:
    """Return the share of the rankings' gap that goes with each text head at its mean."""
    names, templates = in_prompts(people), people.templates
    texts = [template.replace("{}", name) for name in names for template in templates]
    at_mean = dict.fromkeys(model.text_heads, HeadChange(replacement=MEAN))
    means = model.texts.at_means(Intervention(at_mean), texts)
    plans = [HeadSet(), *(means.subset([head]) for head in means)]
    units = model.texts.embed(texts, plans).reshape(len(plans), len(names), len(templates), -1).mean(axis=2)
    units /= np.linalg.norm(units, axis=-1, keepdims=True)
    whole, *left = np.linalg.norm(units @ apart.T, axis=(1, 2)).tolist()
    return {head: 1 - gap / max(whole, 1e-12) for head, gap in zip(means, left, strict=True)}
