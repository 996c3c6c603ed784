"""Directions of the embedding that are taken away: those in which groups differ, in images or by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccs.locate.base import Evidence
from ccs.measures.stats import Floats
from ccs.mitigate.base import Affine, Fitted, Units, group_means, name_embeddings, span


def means(evidence: Evidence) -> Fitted:
    """Images lose the directions in which the groups' mean embeddings differ (Bolukbasi et al. 2016, arXiv
    1607.06520, did so with words).
    """
    found = group_means(evidence)
    return Fitted(images=Affine.without(found - found.mean(axis=0)))


def leace(evidence: Evidence) -> Fitted:
    """LEACE (Belrose et al. 2023, arXiv 2306.03819): of all affine maps after which no linear classifier
    tells the groups better than a constant, the one that moves embeddings least, in the mean square.

    Least over the seen people and things together: fitted on faces alone it moved everything else far, where
    faces hardly vary. The result is made unit again here, which the theorem does not cover.
    """
    people, things = evidence.units, evidence.model.embed_images(evidence.task.things)
    return Fitted(images=least_change(people, evidence.codes, np.concatenate([people, things])))


def least_change(x: Units, codes: NDArray[np.intp], every: Units) -> Affine:
    """LEACE's map for embeddings x [n, d] with their groups' codes [n]. every [m, d]: what should move least.

    Embeddings are whitened, lose the span of their covariance with the groups, and are put back. The
    covariance is shrunk (Ledoit and Wolf), since there are few beside the dimensions: no less is erased, but
    the change is least for that covariance.
    """
    from sklearn.covariance import ledoit_wolf

    people, shown = x.astype(np.float64), np.eye(codes.max() + 1)[codes]
    sizes, axes = np.linalg.eigh(ledoit_wolf(every.astype(np.float64))[0])
    whiten, color = (axes * sizes**power @ axes.T for power in (-0.5, 0.5))
    told = (people - people.mean(axis=0)).T @ (shown - shown.mean(axis=0)) / len(people)
    basis = span((whiten @ told).T)
    removed = color @ basis.T @ basis @ whiten
    return Affine(np.eye(len(removed)) - removed, removed @ every.mean(axis=0))


def names_from_texts(evidence: Evidence) -> Fitted:
    """Texts lose the directions in which the groups' texts differ (Chuang et al. 2023, arXiv 2302.00070),
    without that work's calibration, which needs pairs of prompts.
    """
    return Fitted(texts=_without_names(evidence))


def names_from_images(evidence: Evidence) -> Fitted:
    """Images lose the same directions."""
    return Fitted(images=_without_names(evidence))


def _without_names(evidence: Evidence) -> Affine:
    named = name_embeddings(evidence)
    return Affine.without(named - named.mean(axis=0))


@dataclass(frozen=True, eq=False)
class Balanced:
    """The map of `closed_form` for an orthonormal basis [k, d] of the attribute's directions."""

    basis: Floats

    def __call__(self, units: Units) -> Units:
        x = units.astype(np.float64)
        own = x @ self.basis.T @ self.basis
        rest = x - own
        a, b = (np.linalg.norm(part, axis=1, keepdims=True) for part in (own, rest))
        # The unit vector s rest/b + t own/a for which the shares t/a and (1 - cosine)/(1 - b) are equal:
        # with e = a + (1 - b)/a this is 1 - b s = e t, where s^2 + t^2 = 1.
        safe = np.maximum(a, 1e-9)
        e = a + (1 - b) / safe
        t = (e - b * np.sqrt(np.maximum(e**2 - a**2, 0))) / (e**2 + b**2)
        moved = np.sqrt(1 - t**2) * rest / np.maximum(b, 1e-9) + t * own / safe
        # As short as this is rounding, which has no direction.
        return np.asarray(np.where((a < 1e-6) | (b < 1e-6), x, moved), np.float32)


def closed_form(evidence: Evidence) -> Fitted:
    """The closed form of Lian et al. 2026 (arXiv 2603.12998), read from its abstract and its authors' code,
    without the paraphrases that a language model writes there. Images and texts alike keep so much of what
    lies along the groups' texts that its share and the utility lost (1 - cosine with the embedding as it
    was), as a share of what full erasure loses, are equal.
    """
    named = name_embeddings(evidence)
    both = Balanced(span(named - named.mean(axis=0)))
    return Fitted(images=both, texts=both)
