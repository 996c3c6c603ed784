"""Methods that lower a bias: those of `ccs.mitigate`, and others for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from ccs.analysis import mitigations
from ccs.analysis.ablation_sets import level_heads
from ccs.analysis.evidence import Evidence
from ccs.analysis.mitigations import (
    NOTHING,
    Affine,
    Fitted,
    Mitigation,
    Units,
    masked_heads,
    name_embeddings,
    nothing,
    span,
)
from ccs.heads import MEAN, HeadChange, HeadSet, Intervention
from ccs.metrics.stats import Floats


def consistent(evidence: Evidence) -> Fitted:
    """Ablate the high-CCS heads, as in "Pruning the Paradox" (arXiv 2503.11103)."""
    texts = max(len(spans) for spans in evidence.reading.spans.values())
    return Fitted(level_heads(evidence.reading.scores, texts)["high"])


def random(evidence: Evidence) -> Fitted:
    """Ablate as many random heads as `ablation`."""
    heads, rng = list(evidence.model.heads), np.random.default_rng([evidence.seed, 11])
    drawn = rng.permutation(len(heads))[: len(masked_heads(evidence))]
    return Fitted(HeadSet(heads[place] for place in drawn))


def at_mean(evidence: Evidence) -> Fitted:
    """Replace the output of the heads of `ablation` by its mean over the people.

    Zero also removes a head's usual output, and can overstate its effect (arXiv 2604.14433).
    """
    return _held(evidence)


def at_prototype(evidence: Evidence) -> Fitted:
    """Replace the output of the same heads by the mean of the group means.

    From "Debiasing CLIP with neural interventions" (ECIR 2026), of which we read only a summary.
    """
    _, codes, counts = np.unique(evidence.task.groups, return_inverse=True, return_counts=True)
    return _held(evidence, 1 / counts[codes] / len(counts))


def _held(evidence: Evidence, weights: np.ndarray | None = None) -> Fitted:
    heads = Intervention(dict.fromkeys(masked_heads(evidence), HeadChange(replacement=MEAN)))
    return Fitted(evidence.model.at_means(heads, evidence.people, weights))


def names_from_texts(evidence: Evidence) -> Fitted:
    """Project the directions in which the groups' texts differ out of text embeddings.

    Chuang et al. 2023 (arXiv 2302.00070), without its calibration, which needs pairs of prompts.
    """
    return Fitted(texts=_without_names(evidence))


def names_from_images(evidence: Evidence) -> Fitted:
    """Project the same directions out of image embeddings."""
    return Fitted(images=_without_names(evidence))


def _without_names(evidence: Evidence) -> Affine:
    name_vectors = name_embeddings(evidence)
    return Affine.without(name_vectors - name_vectors.mean(axis=0))


@dataclass(frozen=True, eq=False)
class Balanced:
    """The map of `closed_form` for an orthonormal basis [k, d] of the attribute's directions."""

    basis: Floats

    def __call__(self, units: Units) -> Units:
        """Map unit embeddings [n, d] to unit embeddings."""
        x = units.astype(np.float64)
        along = x @ self.basis.T @ self.basis
        remainder = x - along
        a, b = (np.linalg.norm(part, axis=1, keepdims=True) for part in (along, remainder))
        # The unit vector s rest/b + t own/a for which the shares t/a and (1 - cosine)/(1 - b) are equal:
        # with e = a + (1 - b)/a this is 1 - b s = e t, where s^2 + t^2 = 1.
        safe = np.maximum(a, 1e-9)
        e = a + (1 - b) / safe
        t = (e - b * np.sqrt(np.maximum(e**2 - a**2, 0))) / (e**2 + b**2)
        moved = np.sqrt(1 - t**2) * remainder / np.maximum(b, 1e-9) + t * along / safe
        # Vectors this short are rounding errors without a direction.
        return np.asarray(np.where((a < 1e-6) | (b < 1e-6), x, moved), np.float32)


def closed_form(evidence: Evidence) -> Fitted:
    """Balance the removal along the groups' texts against the utility lost.

    The closed form of Lian et al. 2026 (arXiv 2603.12998), from its abstract and its authors' code, without
    its paraphrases by an LLM. The kept share of the component along the groups' texts equals the utility lost
    (1 - cosine to the original embedding) as a share of the loss by full erasure.
    """
    name_vectors = name_embeddings(evidence)
    balanced = Balanced(span(name_vectors - name_vectors.mean(axis=0)))
    return Fitted(images=balanced, texts=balanced)


# Single dimensions, and a residual --------------------------------------------------------------------------

DROPPED = 0.2
"""Share of dimensions that CLIP-clip drops. Its authors try several values."""
IMPUTED = 0.1
"""Share of dimensions that SFID replaces, about 50 of 512. We couldn't check it in the source."""
UNSURE = 0.7
"""Images are ambiguous if their most likely group has a lower probability. We couldn't check SFID's value."""
TREES = 100


def clip_clip(evidence: Evidence) -> Fitted:
    """Drop the dimensions with most information on groups: CLIP-clip (Wang et al. 2021, arXiv 2109.05433)."""
    from sklearn.feature_selection import mutual_info_classif

    information = mutual_info_classif(evidence.units, evidence.codes, random_state=evidence.seed)
    scales = np.ones(len(information))
    scales[np.argsort(-information)[: round(DROPPED * len(information))]] = 0
    dropped = Affine(np.diag(scales))
    return Fitted(images=dropped, texts=dropped)


def sfid(evidence: Evidence) -> Fitted:
    """Set a random forest's most important dimensions to their mean over ambiguous images.

    SFID (Jung et al. 2024, arXiv 2410.07593), only on images: its text side needs texts with groups.
    """
    from sklearn.ensemble import RandomForestClassifier

    units, codes = evidence.units, evidence.codes
    half = np.random.default_rng([evidence.seed, 12]).permutation(len(units)) % 2 == 0
    forest = RandomForestClassifier(TREES, random_state=evidence.seed).fit(units[half], codes[half])
    sure = forest.predict_proba(units[~half]).max(axis=1)
    # The most ambiguous tenth if all are sure.
    unsure = units[~half][sure < max(UNSURE, np.quantile(sure, 0.1))]
    replaced = np.argsort(-forest.feature_importances_)[: round(IMPUTED * units.shape[1])]
    scales, shift = np.ones(units.shape[1]), np.zeros(units.shape[1])
    scales[replaced] = 0
    shift[replaced] = unsure.mean(axis=0)[replaced]
    return Fitted(images=Affine(np.diag(scales), shift))


STEPS, RATE = 300, 0.01
KEEP = 20.0
"""Weight of the mean squared length of the residual."""


def dear(evidence: Evidence) -> Fitted:
    """Train a small linear residual of image embeddings that hides the group from a classifier.

    DeAR (Seth et al. 2023, arXiv 2303.10431). The classifier is linear, fitted first, and fixed; the residual
    makes its probabilities equal. Steps, rate, and the weight of the residual's length are ours. The source's
    classifier is deeper, and trained on FairFace.
    """
    from sklearn.linear_model import LogisticRegression

    units, codes = evidence.units.astype(np.float64), evidence.codes
    tells = LogisticRegression(C=1e3, max_iter=2000).fit(units, codes)
    two = len(tells.coef_) == 1  # for two groups, scikit-learn keeps only the second's logit
    weight, bias = (np.concatenate([0 * w, w]) if two else w for w in (tells.coef_, tells.intercept_))
    x, w, b = (torch.from_numpy(values) for values in (units, weight, bias))
    layer = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype, requires_grad=True)
    shift = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([layer, shift], RATE)
    for _ in range(STEPS):
        residual = x @ layer.T + shift
        logits = F.normalize(x + residual, dim=1) @ w.T + b
        even = -F.log_softmax(logits, dim=1).mean()
        loss = even + KEEP * residual.square().sum(dim=1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    added = layer.detach().numpy()
    return Fitted(images=Affine(np.eye(len(added)) + added, shift.detach().numpy()))


METHODS: Mapping[str, Mitigation] = {
    NOTHING: nothing,
    "ablation": mitigations.ablation,
    "heads of high CCS off": consistent,
    "as many at random off": random,
    "scaling": mitigations.scaling,
    "edit of localized heads": mitigations.edit,
    "edit of all heads": mitigations.edit_all,
    "heads at their mean": at_mean,
    "heads at prototypes": at_prototype,
    "projection": mitigations.projection,
    "LEACE": mitigations.leace,
    "groups' texts from texts": names_from_texts,
    "groups' texts from images": names_from_images,
    "closed form": closed_form,
    "CLIP-clip": clip_clip,
    "SFID": sfid,
    "DeAR's residual": dear,
}

UNLABELED = frozenset(
    {NOTHING, "heads of high CCS off", "groups' texts from texts", "groups' texts from images", "closed form"}
)
"""Methods that need no labels of groups."""
_CONSTANT = "it adds a constant to unit embeddings, after the last projection"
_BY_TOKEN = "a mean differs by token, but a bias vector doesn't"
UNSAVED = {
    **dict.fromkeys(("LEACE", "SFID", "DeAR's residual"), _CONSTANT),
    "closed form": "the amount that it removes differs by embedding",
    **dict.fromkeys(("heads at their mean", "heads at prototypes"), _BY_TOKEN),
}
"""Methods that can't be written into a model's weights, and why."""
SHARED = frozenset(
    {
        "ablation",
        "as many at random off",
        "scaling",
        "edit of localized heads",
        "heads at their mean",
        "heads at prototypes",
    }
)
"""Methods that use the same ranking of heads. It is computed once, and its cost is added to each."""
