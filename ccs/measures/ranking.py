"""Rankings by cosine that are the same on every machine and for every batch size, and their lean.

The lean of a prompt's ranking is the variance between groups of the mean cosine of their images with the
prompt, over the images that it ranks. A search and a gradient need such a figure beside MaxSkew: it changes
smoothly with the model, and every image counts, not only those at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError

Map = Callable[..., Iterable[Any]]
"""A function like `map`; a caller with threads passes its executor's."""

_IMAGES = 1024  # converted to float64 at a time: few enough for the processor's cache


def finite_rows(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """The embeddings [n, d] as float64; InputError for another shape, or rows that are zero or not finite."""
    array = np.asarray(embeddings, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(
            f"The {name} must be an array [n, d], n and d at least 1, not of shape {array.shape}."
        )
    bad = ~(np.isfinite(array).all(axis=1) & array.any(axis=1))
    if bad.any():
        raise InputError(f"The {name} must be finite and not all zero, but {int(bad.sum())} rows are not.")
    return array


def unit(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """The embeddings [n, d] as float64 of unit length; InputError as in `finite_rows`."""
    array = finite_rows(embeddings, name)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True), dtype=np.float64)


def subtracted(embeddings: ArrayLike, contributions: Iterable[ArrayLike]) -> NDArray[np.float32]:
    """Unit embeddings [n, d] less contributions [n, d], made unit again, for measuring direct effects.

    The contributions may be loaded lazily, one at a time.
    """
    whole = finite_rows(embeddings, "embeddings")
    for part in contributions:
        whole = whole - np.asarray(part)
    return unit(whole, "embeddings without these heads").astype(np.float32)


def first_alike(texts: ArrayLike) -> NDArray[np.intp]:
    """For each prompt's embedding [n, d], the index [n] of the first equal one (to a cosine of 1e-6).

    To the model equal prompts are one prompt, with one ranking.
    """
    rows = unit(texts, "text embeddings")
    first: NDArray[np.intp] = (rows @ rows.T > 1 - 1e-6).argmax(axis=1)
    return first


def alike(names: Sequence[str], texts: ArrayLike) -> list[tuple[str, ...]]:
    """Groups of names whose texts' embeddings [n, d] are the same, the largest first."""
    groups: dict[int, list[str]] = {}
    for name, first in zip(names, first_alike(texts).tolist(), strict=True):
        groups.setdefault(first, []).append(name)
    return sorted((tuple(group) for group in groups.values() if len(group) > 1), key=len, reverse=True)


def products(queries: NDArray[np.float64], items: NDArray[np.float64]) -> NDArray[np.float32]:
    """Dot products [queries, items], float32, of float64 [queries, d] and [items, d].

    They are summed in float64 and then rounded. A float32 sum depends on the vectors' place in the matrix and
    on its size, so that identical images would differ in their last bit and the order of ties would be
    random.
    """
    if queries.shape[1] != items.shape[1]:
        raise InputError(
            f"Embeddings of {queries.shape[1]} and {items.shape[1]} dimensions are not of the same model."
        )
    return np.asarray(queries @ items.T, dtype=np.float32)


def cosines(texts: ArrayLike, images: ArrayLike, *, map: Map = map) -> NDArray[np.float32]:
    """Cosines [texts, images], float32, summed as in `products`; rows need not be of unit length.

    The result is `products` of `unit` rows, but scores are divided instead of images, because there are far
    fewer of them. `map` may spread the images over threads. InputError as in `finite_rows`.
    """
    left, right = unit(texts, "text embeddings"), np.asarray(images)
    if right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise InputError(
            f"Image embeddings of shape {right.shape} do not go with texts of {left.shape[1]} dimensions."
        )

    def scores(start: int) -> NDArray[np.float32]:
        some = np.asarray(right[start : start + _IMAGES], dtype=np.float64)
        length = np.sqrt(np.einsum("nd,nd->n", some, some))
        if not (np.isfinite(length) & (length > 0)).all():
            finite_rows(right, "image embeddings")  # says what is wrong
        cosines: NDArray[np.float32] = ((left @ some.T) / length).astype(np.float32)
        return cosines

    return np.concatenate(list(map(scores, range(0, len(right), _IMAGES))), axis=1)


def top(scores: NDArray[np.float32], depth: int) -> NDArray[np.intp]:
    """Indices [queries, depth] of the best scores [queries, n], highest first, equal ones in index order."""
    # A distinct integer per score: the float's bits, mapped so that integers ascend as scores descend, then
    # the index. Adding 0 makes -0 and 0 equal.
    bits = (scores + np.float32(0)).view(np.int32).astype(np.int64)
    falling = np.where(bits < 0, bits + 2**31, -bits)
    keys = (falling << 32) + np.arange(scores.shape[1])
    if depth < scores.shape[1]:
        keys = np.partition(keys, depth - 1, axis=1)[:, :depth]
    keys.sort(axis=1)
    return (keys & 0xFFFFFFFF).astype(np.intp)


def positions(scores: NDArray[np.float32], relevant: NDArray[np.intp]) -> NDArray[np.int64]:
    """Position [queries], from 0, of item `relevant[q]` in query q's ranking; ties in index order."""
    own = np.take_along_axis(scores, relevant[:, None], axis=1)
    earlier = np.arange(scores.shape[1]) < relevant[:, None]
    before: NDArray[np.int64] = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    return before


def lean(
    images: ArrayLike, prompts: ArrayLike, groups: ArrayLike, pools: NDArray[np.bool_] | None = None
) -> float:
    """The root of the prompts' mean lean, in units of cosines.

    images [n, d], prompts [prompts, d], groups [n]; pools: bool [prompts, n], the images that each prompt
    ranks, all by default.
    """
    return float(np.sqrt(np.square(_lean(images, prompts, groups, pools)[0]).mean()))


def toward(
    images: ArrayLike, prompts: ArrayLike, groups: ArrayLike, pools: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    """Vectors [n, d] whose products with these unit embeddings, summed, are the prompts' mean lean.

    For other embeddings of the same images the sum is linear in them: differences between groups count as
    positive in the direction in which these embeddings lean, and as negative in the other.
    """
    away, shares = _lean(images, prompts, groups, pools)
    weights = np.einsum("pg,pgn->np", away / away.size, shares)
    return np.asarray(weights @ unit(prompts, "prompts"), np.float32)


def _lean(
    images: ArrayLike, prompts: ArrayLike, groups: ArrayLike, pools: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each group's mean cosine less the mean over groups [prompts, groups], and each image's weight in it.

    The weights are [prompts, groups, n].
    """
    scores = cosines(prompts, images).astype(np.float64)
    names, codes = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)
    ranked = np.ones(scores.shape) if pools is None else np.asarray(pools, np.float64)
    shares = (codes == np.arange(len(names))[:, None]) * ranked[:, None]
    shares /= np.maximum(shares.sum(axis=2, keepdims=True), 1)
    means = np.einsum("pgn,pn->pg", shares, scores)
    return means - means.mean(axis=1, keepdims=True), shares
