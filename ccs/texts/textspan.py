"""TEXTSPAN: the few texts whose directions explain most of the variance of a head's contribution.

The method is from Gandelsman, Efros, and Steinhardt, "Interpreting CLIP's Image Representation via
Text-Based Decomposition" (ICLR 2024), computed from second moments instead of the images x D matrix. As in
the authors' released code:

1. Texts are projected onto the span of the head's contributions: the leading `rank` right singular vectors of
   the matrix of contributions, which is NOT centered for this step.
2. For the greedy choice the contributions ARE centered. The text t (projected, not rescaled to unit length)
   with the largest variance of x . t is chosen, and its direction is removed from contributions and texts.

Removing the direction from the texts alone gives the same choice, and the variance of x . t is t' C t, so the
covariance C is all that is needed. The released code keeps 80 singular vectors for every model; those above
the head's true rank are numerical noise, and later picks differ between machines. Here the default rank is
the number of directions that a head's values can reach, which is the head dimension unless the encoder pools
its tokens with several heads, and never more than the numerical rank: the number of singular values above
RELATIVE.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head
from ccs.model.head_statistics import Moments

RELATIVE = 1e-6
"""The share of the largest singular value below which a direction is noise of float32 contributions."""

# Embeddings of texts that the model encodes identically differ by 1e-7 if they come from different batches.
_TIE = 1e-6  # scores with a smaller relative difference are equal: they differ only by rounding
_EXHAUSTED = 1e-10  # share of the first score below which only rounding is left

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Span:
    """A chosen text.

    Attributes:
        text: The text.
        share: The share of the head's variance along the direction that this text adds. The shares of a
            head's texts add up to what they explain together, at most 1.
        index: The text's index in the pool.

    Examples:
        >>> Span("a red cat", 0.2345, 7)
        Span('a red cat', 23.4%)
    """

    text: str
    share: float
    index: int

    def __repr__(self) -> str:
        return f"Span({self.text!r}, {self.share:.1%})"


def textspan(
    moments: Moments,
    texts: Sequence[str],
    text_embeddings: np.ndarray,
    k: int = 5,
    *,
    rank: int | None = None,
) -> dict[Head, tuple[Span, ...]]:
    """Choose k texts for every head, in order of choice, by the method described in this module.

    Texts with equal scores are chosen in the order of the pool. If k exceeds the number of directions in
    which the head varies, the remaining texts follow in that order with share 0. Source: Gandelsman et al.
    2024, arxiv.org/abs/2310.05916.

    Args:
        moments: Head statistics of at least two images.
        texts: The pool. Texts that repeat an earlier one except for case and surrounding space are left out,
            with a warning.
        text_embeddings: Unit vectors [texts, D], as `embed_texts` returns them.
        k: Texts per head.
        rank: The number of directions kept in step 1 (default: `moments.head_dim`); directions whose singular
            value is below RELATIVE of the largest are never kept.

    Returns:
        Each head's texts.

    Raises:
        InputError: The pool is smaller than k, the embeddings don't fit or aren't finite, or there are fewer
            than two images.

    Examples:
        >>> from ccs import collect_moments, load, open_images
        >>> model, pool = load("organism"), ["a red cat", "a blue car", "a judge"]
        >>> moments = collect_moments(model, [list(open_images("world", 20).images)])
        >>> spans = textspan(moments, pool, model.embed_texts(pool), k=2)
        >>> len(spans), len(spans[Head(7, 1)])    # heads, and texts of each
        (24, 2)
    """
    _check(moments, texts, text_embeddings, k, rank)
    distinct = _distinct(texts)
    if k > len(distinct):
        raise InputError(f"{k} texts per head can't be chosen from a pool of {len(distinct)} different ones.")
    embeddings = np.asarray(text_embeddings, np.float64)[distinct]
    rank = moments.head_dim if rank is None else rank
    spans = {}
    for row, head in enumerate(moments.heads):
        directions, variances, total = _subspace(moments, row, rank)
        chosen = _greedy(embeddings @ directions, variances, k)
        spans[head] = tuple(
            Span(texts[distinct[i]], float(variance / total) if total else 0.0, distinct[i])
            for i, variance in chosen
        )
    return spans


def explained(moments: Moments, text_embeddings: np.ndarray) -> dict[Head, tuple[np.ndarray, np.ndarray]]:
    """Score all texts for every head.

    Args:
        moments: As in `textspan`.
        text_embeddings: As in `textspan`.

    Returns:
        Each head's scores [texts], TEXTSPAN's criterion for its first text, and shares [texts] of the head's
        variance along the text.

    Raises:
        InputError: As in `textspan`.
    """
    texts = np.asarray(text_embeddings, np.float64)
    _check(moments, [""] * len(texts), texts, 1, None)
    by_head = {}
    for row, head in enumerate(moments.heads):
        directions, variances, total = _subspace(moments, row, moments.head_dim)
        squares = (texts @ directions) ** 2
        scores, lengths = squares @ variances, squares.sum(axis=1)
        along = np.divide(scores, lengths, out=np.zeros(len(texts)), where=lengths > 0)
        by_head[head] = scores, along / total if total else np.zeros(len(texts))
    return by_head


def _subspace(moments: Moments, row: int, rank: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the span of a head's contributions: directions [D, rank], the variance along each, the total.

    The directions are orthonormal and the contributions uncorrelated in them; the total is the head's whole
    variance.
    """
    q, r = np.linalg.qr(moments.basis[row].astype(np.float64).T)  # contributions are q @ (r @ coordinates)
    strength, vectors = np.linalg.eigh(r @ moments.second(row) @ r.T)
    strongest = max(float(strength[-1]), 0.0)
    leading = vectors[:, -rank:][:, strength[-rank:] > RELATIVE**2 * strongest]
    covariance = r @ moments.covariance(row) @ r.T
    variances, rotation = np.linalg.eigh(leading.T @ covariance @ leading)
    variances[variances <= RELATIVE**2 * strongest] = 0  # only the mean has a component in these directions
    total = float(np.trace(covariance))
    return q @ leading @ rotation, variances, total if total > RELATIVE**2 * strongest else 0.0


def _greedy(texts: np.ndarray, variances: np.ndarray, k: int) -> list[tuple[int, float]]:
    """Choose k texts [texts, rank], in uncorrelated coordinates; return rows and explained variances."""
    chosen: list[tuple[int, float]] = []
    left = np.ones(len(texts), dtype=bool)
    first = 0.0
    for _ in range(k):
        scores = np.where(left, texts**2 @ variances, -1.0)
        best = float(scores.max())
        first = first or best
        if best <= _EXHAUSTED * first:
            pick, explained = int(np.argmax(left)), 0.0
        else:
            pick = int(np.argmax(scores >= best * (1 - _TIE)))
            direction = texts[pick] / np.linalg.norm(texts[pick])
            explained = float(direction**2 @ variances)
            texts = texts - np.outer(texts @ direction, direction)
        left[pick] = False
        chosen.append((pick, explained))
    return chosen


def _distinct(texts: Sequence[str]) -> list[int]:
    first_index: dict[str, int] = {}
    for index, text in enumerate(texts):
        first_index.setdefault(text.strip().casefold(), index)
    if dropped := len(texts) - len(first_index):
        log.warning("%d of %d texts repeat another one and are left out.", dropped, len(texts))
    return list(first_index.values())


def _check(moments: Moments, texts: Sequence[str], embeddings: np.ndarray, k: int, rank: int | None) -> None:
    moments.require(2)
    if k < 1:
        raise InputError(f"At least one text per head is chosen, not {k}.")
    if rank is not None and rank < 1:
        raise InputError(f"The rank is at least 1, not {rank}.")
    expected = (len(texts), moments.basis[0].shape[1]) if len(moments.heads) else np.shape(embeddings)
    if np.shape(embeddings) != expected:
        raise InputError(f"The texts' embeddings must be {list(expected)}, not {list(np.shape(embeddings))}.")
    if not np.isfinite(embeddings).all():
        raise InputError("The texts' embeddings are not all finite numbers.")
