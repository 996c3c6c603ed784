"""Rankings by cosine that are the same on every machine and for every batch size, and their lean.

A `Ranking` is the question behind every figure of bias. The lean of a prompt's ranking is the variance
between groups of the mean cosine of their images with the prompt, over the images that it ranks. A search and
a gradient need such a figure beside MaxSkew: it changes smoothly with the model, and every image counts, not
only those at the top.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from ccs.errors import InputError

Map = Callable[..., Iterable[Any]]
"""A function like `map`; a caller with threads passes its executor's."""

_IMAGES = 1024  # converted to float64 at a time: few enough for the processor's cache
_BLAS = threading.RLock()


@contextmanager
def threads() -> Iterator[Map]:
    """A `map` over threads, meanwhile without BLAS's own, which would busy-wait for one another.

    The limit is the process's, so callers take turns.
    """
    with _BLAS, threadpool_limits(1, user_api="blas"), ThreadPoolExecutor() as pool:
        yield pool.map


@dataclass(frozen=True, eq=False)
class Ranking:
    """The question who comes first when images of people are ranked for prompts.

    prompts: text embeddings [prompts, d], templates averaged. groups: [n] texts, one for each image. k: the
    cut-off of each ranking. pools: bool [prompts, n], the images that each prompt ranks; all of them by
    default. units: [n] numbers; images with the same number are resampled together, by default each alone.
    names: what each prompt is called. rows: int, the prompt that each of the names asked for stands for,
    where several are one text, by default its own. InputError: k below 1 or above the images of a pool, pools
    or units that do not fit.
    """

    prompts: NDArray[np.floating]
    groups: NDArray[Any]
    k: int
    pools: NDArray[np.bool_] | None = None
    units: NDArray[Any] | None = None
    names: tuple[str, ...] = ()
    rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))

    def __post_init__(self) -> None:
        prompts, groups = finite_rows(self.prompts, "prompts' embeddings"), np.asarray(self.groups, np.str_)
        if groups.ndim != 1:
            raise InputError(f"Each image has one group, so there is a list of them, not {groups.shape}.")
        pools, units = (None if one is None else np.asarray(one) for one in (self.pools, self.units))
        if pools is not None and pools.shape != (len(prompts), len(groups)):
            raise InputError(f"Pools of shape {pools.shape} do not fit {len(prompts)} x {len(groups)}.")
        if units is not None and units.shape != groups.shape:
            raise InputError(f"There are {units.size} units for {len(groups)} images.")
        fewest = len(groups) if pools is None else int(pools.sum(axis=1).min())
        k = check_k(self.k, fewest)
        checked = {"prompts": prompts, "groups": groups, "k": k, "pools": pools, "units": units}
        checked["rows"] = self.rows if len(self.rows) else np.arange(len(prompts))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """For each prompt the place of the first of the names that it stands for."""
        return np.unique(self.rows, return_index=True)[1]

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """Every group, in alphabetical order."""
        return tuple(np.unique(self.groups).tolist())

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Each image's group [n] as its place in `group_names`."""
        return np.unique(self.groups, return_inverse=True)[1].astype(np.uint8)

    def lean(self, images: ArrayLike) -> float:
        """The root of the prompts' mean lean for image embeddings [n, d], in units of cosines."""
        return float(np.sqrt(np.square(self._away(images)).mean()))

    def toward(self, images: ArrayLike) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with these unit embeddings, summed, are the prompts' mean lean.

        For other embeddings of the same images the sum is linear in them: differences between groups count as
        positive in the direction in which these embeddings lean, and as negative in the other.
        """
        away = self._away(images)
        return self._along(away / away.size)

    def apart(self, images: ArrayLike) -> NDArray[np.float32]:
        """Vectors [n, d] whose products with these unit embeddings, summed, are the prompts' mean gap.

        A gap is the mean cosine of the group that a prompt likes most, less that of the group that it likes
        least; for other embeddings these stay the two groups.
        """
        away = self._away(images)
        rows, ends = np.arange(len(away)), np.zeros_like(away)
        ends[rows, away.argmax(1)] += 1 / len(away)
        ends[rows, away.argmin(1)] -= 1 / len(away)
        return self._along(ends)

    def _along(self, weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """Vectors [n, d] that weigh each group's mean cosine [prompts, groups]."""
        of_images = np.einsum("pg,pgn->np", weights, self.group_shares)
        return np.asarray(of_images @ unit(self.prompts, "prompts"), np.float32)

    @cached_property
    def group_shares(self) -> NDArray[np.float64]:
        """Each image's weight in a mean over its group, as a prompt ranks it: [prompts, groups, n]."""
        ranked = np.ones((len(self.prompts), len(self.groups))) if self.pools is None else self.pools
        own = self.codes == np.arange(len(self.group_names))[:, None]
        shares = own * np.asarray(ranked, np.float64)[:, None]
        return np.asarray(shares / np.maximum(shares.sum(axis=2, keepdims=True), 1))

    def _away(self, images: ArrayLike) -> NDArray[np.float64]:
        """Each group's mean cosine less the mean over groups [prompts, groups]."""
        scores = cosines(self.prompts, images).astype(np.float64)
        means = np.einsum("pgn,pn->pg", self.group_shares, scores)
        return np.asarray(means - means.mean(axis=1, keepdims=True))


def check_k(k: int, n: int) -> int:
    """k as an int; InputError unless 1 <= k <= n."""
    try:
        k = operator.index(k)
    except TypeError:
        raise InputError(f"The cut-off k must be a whole number, not {k!r}.") from None
    if not 1 <= k <= n:
        raise InputError(
            f"The cut-off k is {k}, but it must be at least 1 and at most the {n} ranked images."
        )
    return k


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
    array = np.asarray(embeddings, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        finite_rows(array, name)  # says what is wrong
    length = np.linalg.norm(array, axis=1, keepdims=True)
    if not (np.isfinite(length) & (length > 0)).all():
        finite_rows(array, name)
    return np.asarray(array / length, dtype=np.float64)


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
    found, n = np.empty((len(scores), depth), dtype=np.intp), scores.shape[1]
    for row, own in enumerate(scores):
        near = np.flatnonzero(own >= np.partition(own, n - depth)[n - depth])  # ties at the end included
        found[row] = near[np.argsort(-own[near], kind="stable")[:depth]]
    return found


def positions(scores: NDArray[np.float32], relevant: NDArray[np.intp]) -> NDArray[np.int64]:
    """Position [queries], from 0, of item `relevant[q]` in query q's ranking; ties in index order."""
    own = np.take_along_axis(scores, relevant[:, None], axis=1)
    earlier = np.arange(scores.shape[1]) < relevant[:, None]
    before: NDArray[np.int64] = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    return before
