"""Ways to lower a bias: those of `ccs.mitigate`, and their rivals."""

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
    """Ablate the heads of high CCS, as in "Pruning the Paradox" (arXiv 2503.11103)."""
    texts = max(len(spans) for spans in evidence.reading.spans.values())
    return Fitted(level_heads(evidence.reading.scores, texts)["high"])


def random(evidence: Evidence) -> Fitted:
    """Ablate as many heads as in `ablation`, drawn at random."""
    heads, rng = list(evidence.model.heads), np.random.default_rng([evidence.seed, 11])
    drawn = rng.permutation(len(heads))[: len(masked_heads(evidence))]
    return Fitted(HeadSet(heads[place] for place in drawn))


def at_mean(evidence: Evidence) -> Fitted:
    """Let the heads of `ablation` write their mean over the people, which depends on no person.

    Zero also removes a head's usual output, and can overstate its effect (arXiv 2604.14433).
    """
    return _held(evidence)


def at_prototype(evidence: Evidence) -> Fitted:
    """Let the same heads write the mean over groups of the groups' means.

    From "Debiasing CLIP with neural interventions" (ECIR 2026), which we know from its summary.
    """
    _, codes, counts = np.unique(evidence.task.groups, return_inverse=True, return_counts=True)
    return _held(evidence, 1 / counts[codes] / len(counts))


def _held(evidence: Evidence, weights: np.ndarray | None = None) -> Fitted:
    heads = Intervention(dict.fromkeys(masked_heads(evidence), HeadChange(replacement=MEAN)))
    return Fitted(evidence.model.at_means(heads, evidence.people, weights))


def names_from_texts(evidence: Evidence) -> Fitted:
    """Remove from texts the directions in which the groups' texts differ.

    Chuang et al. 2023 (arXiv 2302.00070), without that work's calibration, which needs pairs of prompts.
    """
    return Fitted(texts=_without_names(evidence))


def names_from_images(evidence: Evidence) -> Fitted:
    """Project the same directions out of images."""
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
        # As short as this is rounding, which has no direction.
        return np.asarray(np.where((a < 1e-6) | (b < 1e-6), x, moved), np.float32)


def closed_form(evidence: Evidence) -> Fitted:
    """Balance what is removed along the groups' texts against the utility lost.

    The closed form of Lian et al. 2026 (arXiv 2603.12998), read from its abstract and its authors' code,
    without the paraphrases that an LLM writes there. Images and texts keep so much of what lies along the
    groups' texts that its share and the utility lost (1 - cosine with the embedding before), as a share of
    what full erasure loses, are equal.
    """
    name_vectors = name_embeddings(evidence)
    balanced = Balanced(span(name_vectors - name_vectors.mean(axis=0)))
    return Fitted(images=balanced, texts=balanced)


# Single dimensions, and a residual --------------------------------------------------------------------------

DROPPED = 0.2
"""The share of dimensions that CLIP-clip drops; its authors try several."""
IMPUTED = 0.1
"""The share of dimensions that SFID replaces: about its 50 of 512, from memory."""
UNSURE = 0.7
"""Images whose most likely group the forest gives less than this are unsure; SFID's value from memory."""
TREES = 100


def clip_clip(evidence: Evidence) -> Fitted:
    """Drop the dimensions that tell most of groups: CLIP-clip (Wang et al. 2021, arXiv 2109.05433)."""
    from sklearn.feature_selection import mutual_info_classif

    information = mutual_info_classif(evidence.units, evidence.codes, random_state=evidence.seed)
    scales = np.ones(len(information))
    scales[np.argsort(-information)[: round(DROPPED * len(information))]] = 0
    dropped = Affine(np.diag(scales))
    return Fitted(images=dropped, texts=dropped)


def sfid(evidence: Evidence) -> Fitted:
    """Set the dimensions by which a random forest tells groups to their mean over unsure images.

    SFID (Jung et al. 2024, arXiv 2410.07593), on images alone: its text side needs texts with groups.
    """
    from sklearn.ensemble import RandomForestClassifier

    units, codes = evidence.units, evidence.codes
    half = np.random.default_rng([evidence.seed, 12]).permutation(len(units)) % 2 == 0
    forest = RandomForestClassifier(TREES, random_state=evidence.seed).fit(units[half], codes[half])
    sure = forest.predict_proba(units[~half]).max(axis=1)
    unsure = units[~half][sure < max(UNSURE, np.quantile(sure, 0.1))]  # the least sure, where all are sure
    replaced = np.argsort(-forest.feature_importances_)[: round(IMPUTED * units.shape[1])]
    scales, shift = np.ones(units.shape[1]), np.zeros(units.shape[1])
    scales[replaced] = 0
    shift[replaced] = unsure.mean(axis=0)[replaced]
    return Fitted(images=Affine(np.diag(scales), shift))


STEPS, RATE = 300, 0.01
KEEP = 20.0
"""What it costs to move embeddings: the weight of the mean squared length of the residual."""


def dear(evidence: Evidence) -> Fitted:
    """Train a small linear residual of image embeddings that hides the group from a classifier.

    DeAR (Seth et al. 2023, arXiv 2303.10431). The classifier, linear and fitted beforehand, stays as it is;
    its probabilities become equal. Steps, rate, and the weight of the residual's length are ours; that work's
    classifier is deeper and learned the groups of FairFace.
    """
    from sklearn.linear_model import LogisticRegression

    units, codes = evidence.units.astype(np.float64), evidence.codes
    tells = LogisticRegression(C=1e3, max_iter=2000).fit(units, codes)
    two = len(tells.coef_) == 1  # of two groups scikit-learn keeps the second's logit only
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
_CONSTANT = "it adds a constant to embeddings of unit length, and the last projection comes before that"
_BY_TOKEN = "a mean differs from token to token, and a bias does not"
UNSAVED = {
    **dict.fromkeys(("LEACE", "SFID", "DeAR's residual"), _CONSTANT),
    "closed form": "how much it takes away differs from embedding to embedding",
    **dict.fromkeys(("heads at their mean", "heads at prototypes"), _BY_TOKEN),
}
"""Those that no model's weights can hold, and why."""
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
"""Those that begin with one ranking of heads, which is made once, and which each of them pays for."""
