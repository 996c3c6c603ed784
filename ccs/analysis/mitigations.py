"""Six methods that lower a bias, each a function from `Evidence` to the changes that it fitted.

- *ablation*: zero the heads that the learned mask ranks first (`ccs.localize`).
- *scaling*: multiply each head by its learned gate; none is cut off.
- *edit*: erase the groups from the outputs of the heads that ablation would zero, with the control images'
  classes preserved (`ccs.model.editing`); *edit of all heads*: from all scored heads.
- *projection*: remove the directions in which groups' mean embeddings differ (with words: Bolukbasi et al.
  2016, arXiv 1607.06520).
- *LEACE*: of all affine maps after which no linear classifier can tell the groups apart better than a
  constant, the one that moves embeddings least (Belrose et al. 2023, arXiv 2306.03819).

    >>> away = Affine.without(np.array([[1.0, 0.0]]))
    >>> away(np.array([[0.6, 0.8]]))    # the rest, at unit length
    array([[0., 1.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccs.analysis.carriers import learned_mask
from ccs.analysis.evidence import Evidence, group_means, rank_heads
from ccs.analysis.localize import first_carriers
from ccs.analysis.task import Task
from ccs.errors import InputError
from ccs.heads import ERASE, Head, HeadChange, HeadSet, Intervention, changes, require_weights
from ccs.metrics.stats import Floats
from ccs.model.editing import Preserved, fit_edits
from ccs.model.export import WeightChange, changed_weights
from ccs.model.model import Model

Units = NDArray[np.float32]
Map = Callable[[Units], Units]
"""From unit embeddings [n, d] to unit embeddings [n, d]."""


@dataclass(frozen=True, eq=False)
class Affine:
    """An affine map of unit embeddings; results are scaled to unit length. matrix [d, d], shift [d] or 0."""

    matrix: Floats
    shift: Floats | float = 0.0

    def __call__(self, units: Units) -> Units:
        """Map unit embeddings [n, d] to unit embeddings."""
        moved = units @ self.matrix.T + self.shift
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return np.asarray(moved / np.maximum(lengths, 1e-12), np.float32)

    @property
    def linear(self) -> bool:
        """True if nothing is added, so that an embedding's length does not matter."""
        return not np.any(self.shift)

    @classmethod
    def without(cls, directions: Floats) -> Affine:
        """Return the orthogonal projection that removes the span of these directions [k, d]."""
        basis = span(directions)
        return cls(np.eye(basis.shape[1]) - basis.T @ basis)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Fitted changes of a model.

    Attributes:
        heads: Heads to ablate, or their changes.
        images: Map of the embeddings of all images. None leaves them unchanged.
        texts: Map of the embeddings of all texts. None leaves them unchanged.
    """

    heads: HeadSet = field(default_factory=HeadSet)
    images: Map | None = None
    texts: Map | None = None

    def on_images(self, units: Any) -> Units:
        """Return image embeddings [n, d] mapped."""
        return np.asarray(units, np.float32) if self.images is None else self.images(units)

    def on_texts(self, units: Any) -> Units:
        """Return text embeddings [n, d] mapped."""
        return np.asarray(units, np.float32) if self.texts is None else self.texts(units)

    def on_task(self, task: Task) -> Task:
        """Return a task with its prompts and class weights mapped."""
        prompts, weights = self.on_texts(task.prompts), self.on_texts(task.class_weights)
        return replace(task, prompts=prompts, class_weights=weights)


Mitigation = Callable[[Evidence], Fitted]


def ablation(evidence: Evidence) -> Fitted:
    """Ablate the first heads of the ranking that `ccs.localize` uses, as many as it would name."""
    return Fitted(HeadSet(masked_heads(evidence)))


def scaling(evidence: Evidence) -> Fitted:
    """Multiply each head by its gate of the learned mask."""
    return Fitted(Intervention({head: 1 - closed for head, closed in learned_mask(evidence).items()}))


def edit(evidence: Evidence) -> Fitted:
    """Erase the groups from the heads that `ablation` zeroes."""
    return Fitted(_erase(evidence, HeadSet(masked_heads(evidence))))


def edit_all(evidence: Evidence) -> Fitted:
    """Erase the groups from all scored heads."""
    return Fitted(_erase(evidence, evidence.model.heads))


def _erase(evidence: Evidence, heads: HeadSet) -> Intervention:
    task, attribute = evidence.task, evidence.attribute
    unfitted = Intervention(dict.fromkeys(heads, f"{ERASE}{attribute}"))
    preserve = Preserved(task.controls, task.labels)
    return fit_edits(evidence.model, unfitted, evidence.people, {attribute: task.groups}, preserve)[0]


def masked_heads(evidence: Evidence) -> tuple[Head, ...]:
    """Return the first heads of the learned mask's ranking, as many as `ccs.localize` would name."""
    return first_carriers(evidence, rank_heads(learned_mask(evidence), evidence.seed))


def projection(evidence: Evidence) -> Fitted:
    """Remove from images the directions in which the groups' mean embeddings differ."""
    means = group_means(evidence.units, evidence.codes)
    return Fitted(images=Affine.without(means - means.mean(axis=0)))


def leace(evidence: Evidence) -> Fitted:
    """Apply LEACE to images.

    Of all such maps, it moves the people and control images together least. A map fitted on faces alone moved
    all other images far, in directions in which faces hardly vary. Results are scaled to unit length, which
    the theorem does not cover.
    """
    people, controls = evidence.units, evidence.model.embed_images(evidence.task.controls)
    return Fitted(images=least_change(people, evidence.codes, np.concatenate([people, controls])))


def least_change(people: Units, codes: NDArray[np.intp], images: Units) -> Affine:
    """Return LEACE's map.

    It whitens embeddings, removes the span of their covariance with the groups, and colors them again. The
    covariance is shrunk (Ledoit and Wolf), since there are few images for the number of dimensions. The
    erasure is still complete, but the change is least for the shrunk covariance.

    Args:
        people: Embeddings of the people [n, d].
        codes: Group of each person [n], as a number from 0.
        images: Embeddings of images that should move least [m, d].
    """
    from sklearn.covariance import ledoit_wolf

    x, members = people.astype(np.float64), np.eye(codes.max() + 1)[codes]
    sizes, axes = np.linalg.eigh(ledoit_wolf(images.astype(np.float64))[0])
    whiten, color = (axes * sizes**power @ axes.T for power in (-0.5, 0.5))
    covariance = (x - x.mean(axis=0)).T @ (members - members.mean(axis=0)) / len(x)
    basis = span((whiten @ covariance).T)
    removed = color @ basis.T @ basis @ whiten
    return Affine(np.eye(len(removed)) - removed, removed @ images.mean(axis=0))


NOTHING = "nothing"


def nothing(evidence: Evidence) -> Fitted:
    """Leave the model as it is."""
    return Fitted()


METHODS: Mapping[str, Mitigation] = {
    "ablation": ablation,
    "scaling": scaling,
    "edit": edit,
    "edit of all heads": edit_all,
    "projection": projection,
    "LEACE": leace,
}


def span(directions: Floats) -> Floats:
    """Return an orthonormal basis [k, d] of the span of these directions [n, d], without rounding noise."""
    _, sizes, basis = np.linalg.svd(np.asarray(directions, np.float64), full_matrices=False)
    return np.asarray(basis[sizes > 1e-6 * max(float(sizes.max(initial=0)), 1e-12)])


def name_embeddings(evidence: Evidence) -> Floats:
    """Return each group's mean text embedding [groups, d], unit rows in the order of the groups' codes."""
    means = [evidence.model.embed_texts(list(texts)).mean(axis=0) for texts in evidence.names.values()]
    return np.stack([mean / np.linalg.norm(mean) for mean in means]).astype(np.float64)


# In weights -------------------------------------------------------------------------------------------------


def round_factors(fitted: Fitted) -> Fitted:
    """Round factors to two digits, and drop those of 1, so that heads are short enough to type or link."""
    heads = fitted.heads
    if not isinstance(heads, Intervention):
        return fitted
    short = {head: HeadChange(round(c.factor, 2), c.replacement) for head, c in changes(heads)}
    acting = {head: change for head, change in short.items() if change != HeadChange(1.0)}
    return replace(fitted, heads=Intervention(acting, heads.means))


def why_not_in_weights(model: Model, fitted: Fitted) -> str:
    """Return why the model's weights cannot hold a mitigation, or "" if they can.

    Args:
        model: Model without the changes.
        fitted: Fitted changes of the model.
    """
    try:
        changed_weights(model, as_change(fitted))
    except InputError as error:
        return str(error)
    return ""


def as_change(fitted: Fitted, sentences: Sequence[str] = ()) -> WeightChange:
    """Return fitted changes as a change of weights, for export.

    Args:
        fitted: Fitted changes of the model.
        sentences: Sentences for the folder's model card.

    Raises:
        InputError: If a map is not linear.
    """
    require_weights(fitted.heads)
    images, texts = (_matrix(part) for part in (fitted.images, fitted.texts))
    return WeightChange(fitted.heads or HeadSet(), images, texts, sentences)


def _matrix(map: Map | None) -> np.ndarray | None:
    if map is None:
        return None
    if not isinstance(map, Affine) or not map.linear:
        fault = "adds a constant to" if isinstance(map, Affine) else "depends on the direction of"
        raise InputError(f"It {fault} embeddings of unit length, and the last projection comes before that.")
    return map.matrix
