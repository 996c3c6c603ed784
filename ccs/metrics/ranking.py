"""Rankings by cosine, reproducible on every machine and for every batch size, and their group score gap.

A `Ranking` is the question behind every bias metric. The group score gap (`Ranking.score_gap`) of a prompt
is the standard deviation, between groups, of the mean cosine of their images with the prompt. A search and a
gradient need it next to MaxSkew: it changes smoothly with the model, has no ceiling, and every image counts,
not only those at the top.
"""

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
    """Yield a `map` over threads, with BLAS limited to one: its own threads would wait for one another.

    The limit applies to the whole process, so callers take turns.
    """
    with _BLAS, threadpool_limits(1, user_api="blas"), ThreadPoolExecutor() as pool:
        yield pool.map


@dataclass(frozen=True)
class GapTest:
    """A group score gap, its mean over shuffled groups, and the p-value of "groups don't differ"."""

    gap: float
    chance: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Ranking:
    """A ranking question: which group comes first when images of people are ranked for prompts?

    Args:
        prompts: Text embeddings [prompts, d], averaged over templates.
        groups: Group of each image [n].
        k: Length of each ranking's top list.
        pools: Images that each prompt ranks, bool [prompts, n]. By default all.
        units: Unit number of each image [n]. Images with the same number are resampled together. By default
            each image is its own unit.
        names: Requested names, such as occupations.
        rows: Index of each name's prompt, since the model may encode several names identically. By default
            each name has its own prompt.

    Raises:
        InputError: If `k` is below 1 or above the number of images of a pool, or pools or units don't fit the
            images.
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
        pools, units = (None if array is None else np.asarray(array) for array in (self.pools, self.units))
        if pools is not None and pools.shape != (len(prompts), len(groups)):
            raise InputError(f"Pools of shape {pools.shape} do not fit {len(prompts)} x {len(groups)}.")
        if units is not None and units.shape != groups.shape:
            raise InputError(f"There are {units.size} units for {len(groups)} images.")
        k = check_k(self.k, len(groups) if pools is None else int(pools.sum(axis=1).min()))
        rows = self.rows if len(self.rows) else np.arange(len(prompts))
        self.__dict__.update(prompts=prompts, groups=groups, k=k, pools=pools, units=units, rows=rows)

    @cached_property
    def first_positions(self) -> NDArray[np.intp]:
        """For each prompt the position of its first name."""
        return np.unique(self.rows, return_index=True)[1]

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """The prompts' names; of names that the model encodes identically, the first."""
        return tuple(self.names[place] for place in self.first_positions)

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Groups of two or more names that the model encodes identically, the largest first."""
        return _grouped(self.names, self.rows)

    @cached_property
    def distinct(self) -> NDArray[np.intp]:
        """Positions of the prompts that the model tells apart; the others equal an earlier one."""
        return np.unique(first_alike(self.prompts))

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """All groups, in alphabetical order."""
        return tuple(np.unique(self.groups).tolist())

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Each image's group [n] as its place in `group_names`."""
        return np.unique(self.groups, return_inverse=True)[1].astype(np.uint8)

    def score_gap(self, images: ArrayLike) -> float:
        """Return the group score gap for image embeddings [n, d], in units of cosines.

        It is the root of the mean over prompts of the variance between groups of their mean cosine.
        """
        return float(np.sqrt(np.square(self.group_scores(images)).mean()))

    def group_scores(self, images: ArrayLike) -> NDArray[np.float64]:
        """Return each group's mean cosine minus the mean over groups [prompts, groups]."""
        return _apart(self._cosines(images), self._shares(self.codes))

    def toward(self, images: ArrayLike) -> NDArray[np.float32]:
        """Return vectors [n, d] whose products with these unit embeddings sum to the squared group score gap.

        For other embeddings of the same images the sum is linear in them: differences between groups count as
        positive in the direction in which these embeddings differ, and as negative in the other.
        """
        scores = self.group_scores(images)
        return self.along(scores / scores.size)

    def along(self, weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return vectors [n, d] that weigh each group's mean cosine [prompts, groups]."""
        of_images = np.einsum("pg,pgn->np", weights, self._shares(self.codes))
        return np.asarray(of_images @ unit(self.prompts, "prompts"), np.float32)

    def gap_test(self, images: ArrayLike, *, draws: int = 999, seed: int = 0) -> GapTest:
        """Test whether groups differ at all: a permutation test of the group score gap.

        Args:
            images: Image embeddings [n, d].
            draws: Number of times that the groups are shuffled over the images.
            seed: Random seed for the shuffles.

        Returns:
            The gap with its chance level and p-value.
        """
        scores, rng = self._cosines(images), np.random.default_rng([seed, 6])
        gap, drawn = self.score_gap(images), np.empty(draws)
        for draw in range(draws):  # a pool's groups are shuffled with all others
            shuffled = self._shares(self.codes[rng.permutation(len(self.codes))])
            drawn[draw] = np.sqrt(np.square(_apart(scores, shuffled)).mean())
        p_value = (1 + int((drawn >= gap * (1 - 1e-12)).sum())) / (1 + draws)
        return GapTest(gap, float(drawn.mean()), p_value)

    def _cosines(self, images: ArrayLike) -> NDArray[np.float64]:
        return cosines(self.prompts, images).astype(np.float64)

    def _shares(self, codes: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return each image's weight in a mean over its group, as a prompt ranks it: [prompts, groups, n]."""
        ranked = np.ones((len(self.prompts), len(codes))) if self.pools is None else self.pools
        member = codes == np.arange(len(self.group_names))[:, None]
        shares = member * np.asarray(ranked, np.float64)[:, None]
        return np.asarray(shares / np.maximum(shares.sum(axis=2, keepdims=True), 1))


def _apart(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each group's mean score minus the mean over groups [prompts, groups]."""
    means = np.einsum("pgn,pn->pg", shares, scores)
    return np.asarray(means - means.mean(axis=1, keepdims=True))


def check_k(k: int, n: int) -> int:
    """Return k as an int.

    Args:
        k: Length of the top list.
        n: Number of ranked images.

    Raises:
        InputError: If `k` isn't a whole number from 1 to `n`.
    """
    if not hasattr(k, "__index__"):
        raise InputError(f"The cut-off k must be a whole number, not {k!r}.")
    if not 1 <= k <= n:
        raise InputError(f"The cut-off k is {k}; it must be at least 1 and at most the {n} ranked images.")
    return operator.index(k)


def finite_rows(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return embeddings as float64.

    Args:
        embeddings: Embeddings [n, d].
        name: Name of the embeddings in an error message.

    Raises:
        InputError: If the shape isn't [n, d], the array is empty, or a row is zero or not finite.
    """
    array = np.asarray(embeddings, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"The {name} must be an array [n, d] that isn't empty, not of shape {array.shape}.")
    bad = ~(np.isfinite(array).all(axis=1) & array.any(axis=1))
    if bad.any():
        raise InputError(f"The {name} must be finite and not all zero, but {int(bad.sum())} rows are not.")
    return array


def unit(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return embeddings as float64 of unit length.

    Args:
        embeddings: Embeddings [n, d].
        name: Name of the embeddings in an error message.

    Raises:
        InputError: As in `finite_rows`.
    """
    array = finite_rows(embeddings, name)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True), dtype=np.float64)


def first_alike(texts: ArrayLike) -> NDArray[np.intp]:
    """Return for each embedding [n, d] the index [n] of the first equal one (to a cosine of 1e-6).

    The model can't tell such prompts apart, so they have the same ranking.
    """
    rows = unit(texts, "text embeddings")
    return np.asarray((rows @ rows.T > 1 - 1e-6).argmax(axis=1))


def alike(names: Sequence[str], texts: ArrayLike) -> tuple[tuple[str, ...], ...]:
    """Group names whose texts the model encodes identically.

    Args:
        names: Name of each text.
        texts: Text embeddings [n, d].

    Returns:
        Groups of two or more names, the largest first.
    """
    return _grouped(names, first_alike(texts))


def _grouped(names: Sequence[str], texts: NDArray[np.intp]) -> tuple[tuple[str, ...], ...]:
    groups: dict[int, list[str]] = {}
    for name, text in zip(names, texts.tolist(), strict=True):
        groups.setdefault(text, []).append(name)
    return tuple(sorted((tuple(group) for group in groups.values() if len(group) > 1), key=len, reverse=True))


def products(queries: NDArray[np.float64], items: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return dot products summed in float64 and then rounded to float32.

    A float32 sum depends on the size of the matrix and on the position of a vector in it. Identical images
    would differ in the last bit, and the order of ties would depend on the machine.

    Args:
        queries: Query vectors, float64 [queries, d].
        items: Item vectors, float64 [items, d].

    Returns:
        Products [queries, items].
    """
    if queries.shape[1] != items.shape[1]:
        raise InputError(
            f"Embeddings of {queries.shape[1]} and {items.shape[1]} dimensions come from different models."
        )
    return np.asarray(queries @ items.T, dtype=np.float32)


def cosines(texts: ArrayLike, images: ArrayLike, *, map: Map = map) -> NDArray[np.float32]:
    """Return cosines of texts and images, summed as in `products`.

    The result is `products` of `unit` rows, but scores are divided instead of images, because there are far
    fewer of them.

    Args:
        texts: Text embeddings [texts, d] of any length.
        images: Image embeddings [images, d] of any length.
        map: Function like `map` that spreads the images over threads (`threads`).

    Returns:
        Cosines, float32 [texts, images].

    Raises:
        InputError: As in `finite_rows`.
    """
    left, right = unit(texts, "text embeddings"), np.asarray(images)
    if right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise InputError(f"Image embeddings {right.shape} do not fit texts of {left.shape[1]} dimensions.")

    def scores(start: int) -> NDArray[np.float32]:
        block = np.asarray(right[start : start + _IMAGES], dtype=np.float64)
        length = np.sqrt(np.einsum("nd,nd->n", block, block))
        if not (np.isfinite(length) & (length > 0)).all():
            finite_rows(right, "image embeddings")  # raises the error
        return np.asarray((left @ block.T) / length, np.float32)

    return np.concatenate(list(map(scores, range(0, len(right), _IMAGES))), axis=1)


def top(
    scores: NDArray[np.float32], depth: int, tie_seeds: Sequence[Sequence[int]] | None = None
) -> NDArray[np.intp]:
    """Return indices of the best scores of each query, highest first.

    Args:
        scores: Scores, float32 [queries, n].
        depth: Number of indices to return for each query.
        tie_seeds: Random seed of each query, for the order of equal scores. By default equal scores are in
            index order, which would favor a group if people are sorted by group.

    Returns:
        Indices [queries, depth].
    """
    ranked, n = np.empty((len(scores), depth), dtype=np.intp), scores.shape[1]
    for query, row in enumerate(scores):
        near = np.flatnonzero(row >= np.partition(row, n - depth)[n - depth])  # ties at the end included
        order = np.argsort(-row[near], kind="stable")
        if tie_seeds is not None and (np.diff(row[near[order]]) == 0).any():
            keys = np.random.default_rng(tie_seeds[query]).permutation(n)  # the same for every depth
            order = np.lexsort((keys[near], -row[near]))
        ranked[query] = near[order[:depth]]
    return ranked
