"""Find the encoder that carries a group score gap, and the text heads that carry it.

A gap is a product of prompts and image differences between groups. It ends if either encoder stops separating
them, so ablation can't tell which encoder carries the bias. We use images of the same occupations, with all
groups weighted equally, in place of the prompts. If these images prefer the same groups, the image encoder
carries the bias; otherwise the prompts do. Freeze and Reveal (arXiv 2508.07432) asks the same question, and
trains one encoder at a time instead.

To rank text heads, we replace each head's output, at the token where the text is read, by its mean over the
prompts. What remains is the same for all occupations, and later layers get a typical input.
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
"""Number of bootstrap resamples of the occupations."""


@dataclass(frozen=True, kw_only=True)
class GapShares:
    """The shares of a group score gap in the image encoder and in the text encoder.

    Attributes:
        images: Share of the gap (0 to 1) that remains with images in place of prompts; interval over
            occupations.
        carried: Text head -> share of the gap removed if its output is its mean, largest first.
            Below 0 if the gap grows.
        occupations: Number of occupations.
    """

    images: Estimate
    carried: dict[Head, float]
    occupations: int

    @property
    def prompts(self) -> Estimate:
        """Share of the gap in the prompts."""
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
    """Split the group score gap of rankings for occupations between the image and the text encoder.

    Args:
        model: A model from `ccs.load`.
        people: Gallery to rank for its occupations.
        pictures: Gallery with the occupation that each image shows, such as world/counterfactuals.
            Groups have equal weights.
        attribute: A column of groups in both.
        seed: Random seed for resampling.
        embedded: Unit embeddings of both, if known.

    Raises:
        InputError: If fewer than three occupations are common, or an occupation has no images of a group.
    """
    known = () if pictures.pools is None else pictures.occupations
    shared = tuple(name for name in people.occupations if name in known)
    if len(shared) < 3:
        raise InputError(
            f"{pictures.name} needs images of at least three of the gallery's occupations, with their names; "
            f"got {len(shared)}."
        )
    if attribute not in pictures.groups:
        raise InputError(f"{pictures.name} has no column of groups {attribute!r}.")
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
    """Return preferences of centered, scaled queries [occupations, d] for groups: [occupations, groups]."""
    centered = np.asarray(queries, np.float64) - queries.mean(0, dtype=np.float64)
    return np.asarray(centered @ apart.T / max(float(np.linalg.norm(centered)), 1e-12))


def _shown(
    units: NDArray[np.float32], pictures: BiasSet, attribute: str, occupations: Sequence[str]
) -> Floats:
    """Return the mean embedding of each occupation's images [occupations, d], groups weighted equally."""
    groups, means = pictures.groups[attribute], []
    for name, group in product(occupations, np.unique(groups)):
        members = units[(pictures.pools == name) & (groups == group)]
        if not len(members):
            raise InputError(
                f"{pictures.name} has no image of group {group!r} for {name!r}; every group is needed."
            )
        means.append(members.mean(0, dtype=np.float64))
    return np.asarray(np.reshape(means, (len(occupations), -1, units.shape[1])).mean(axis=1))


def _carried(model: Model, people: BiasSet, apart: Floats) -> dict[Head, float]:
    """Return the share of the group score gap removed if each text head's output is its mean."""
    names, templates = in_prompts(people), people.templates
    texts = [template.replace("{}", name) for name in names for template in templates]
    at_mean = dict.fromkeys(model.text_heads, HeadChange(replacement=MEAN))
    means = model.texts.at_means(Intervention(at_mean), texts)
    interventions = [HeadSet(), *(means.subset([head]) for head in means)]
    units = (
        model.texts.embed(texts, interventions)
        .reshape(len(interventions), len(names), len(templates), -1)
        .mean(axis=2)
    )
    units /= np.linalg.norm(units, axis=-1, keepdims=True)
    whole, *remaining = np.linalg.norm(units @ apart.T, axis=(1, 2)).tolist()
    return {head: 1 - gap / max(whole, 1e-12) for head, gap in zip(means, remaining, strict=True)}
