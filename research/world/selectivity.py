"""Selectivity: the share of the variance of a head's contribution that a known factor of the images explains.

For one factor and one head, with contributions x_i (vectors) and groups of images of equal factor value:
eta^2 = sum over groups n_g |mean_g - mean|^2 / sum over images |x_i - mean|^2, the between-group share of the
variance (its trace). Chance alone gives (groups - 1) / (images - 1), so the value reported is
    1 - (1 - eta^2) (n - 1) / (n - groups),
whose mean is 0 for a factor assigned to the images at random, and which can be slightly negative (adjusted
R^2; in analysis of variance, epsilon^2). The noise floor is the 95th percentile over random permutations of
the same factor; p is the share of permutations that reach the value.

Images without the factor (empty string) are left out, so the share refers to the variance among images that
have it. Factors may overlap (a subject determines its kind), so shares of several factors do not add up to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import stats
from ccs.measures.stats import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Selectivity:
    """One factor's share of each head's variance. Arrays are float64 [heads], in the order of `heads`.

    `values` with 95% interval `low`, `high` (images resampled); `chance`: the noise floor; `p_values`: by
    permutation; `q_values`: adjusted for the false discovery rate over the heads. `n` images have the factor,
    which takes `groups` values.
    """

    factor: str
    heads: tuple[Head, ...]
    values: Floats
    low: Floats
    high: Floats
    chance: Floats
    p_values: Floats
    q_values: Floats
    n: int
    groups: int


def measure(
    contributions: ArrayLike,
    heads: Sequence[Head],
    factors: Mapping[str, ArrayLike],
    *,
    draws: int = 200,
    seed: int = 0,
) -> dict[str, Selectivity]:
    """Selectivity of each head for each factor.

    Args:
        contributions: [images, heads, d], or other vectors with the same distances.
        heads: their names, in that order.
        factors: name -> str array [images], "" where the factor does not apply.
        draws: number of permutations for the noise floor, and of resampled sets of images for the interval.

    A factor with fewer than two values, or with a different one for every image, is left out.
    InputError: shapes that do not fit, contributions that are not finite.
    """
    stats.check_draws(draws)
    data = np.asarray(contributions, dtype=np.float32)
    if data.ndim != 3 or data.shape[1] != len(heads) or len(data) < 3:
        raise InputError(
            f"Contributions must be [3 or more images, {len(heads)} heads, d], not {data.shape}."
        )
    if not np.isfinite(data).all():
        raise InputError("Contributions must be finite numbers.")
    sample = _Sample.of(data)
    found = {}
    for number, (name, given) in enumerate(factors.items()):
        values = np.asarray(given, dtype=np.str_)
        if values.shape != (len(data),):
            raise InputError(f"The factor {name!r} has {values.size} values for {len(data)} images.")
        rows = np.flatnonzero(values != "")
        groups, codes = np.unique(values[rows], return_inverse=True)
        if 2 <= len(groups) < len(rows):
            rng = np.random.default_rng([seed, number])
            found[name] = _measure(name, tuple(heads), sample.centered(rows), codes, draws, rng)
    return found


@dataclass(frozen=True)
class _Sample:
    """Contributions [n, columns] of some images, in coordinates of each head's own subspace.

    Distances are preserved. `owner` [columns]: the head of each column.
    """

    columns: NDArray[np.float32]
    owner: NDArray[np.intp]
    n_heads: int

    @classmethod
    def of(cls, data: NDArray[np.float32]) -> _Sample:
        """The coordinates of contributions [n, heads, d]."""
        parts = []
        for head in range(data.shape[1]):
            own = data[:, head] - data[:, head].mean(axis=0, dtype=np.float64).astype(np.float32)
            spread, directions = np.linalg.eigh(own.T.astype(np.float64) @ own)
            kept = directions[:, spread > 1e-10 * max(spread[-1], np.finfo(float).tiny)]
            parts.append((own @ kept).astype(np.float32))
        owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
        return cls(np.concatenate(parts, axis=1), owner, len(parts))

    def centered(self, rows: NDArray[np.intp]) -> _Sample:
        """These images, with a mean of 0."""
        columns = self.columns[rows]
        return _Sample(columns - columns.mean(axis=0), self.owner, self.n_heads)

    def by_head(self, squares: NDArray[np.floating]) -> Floats:
        """Sums over each head's columns: [..., columns] to [..., heads]."""
        edges = np.searchsorted(self.owner, np.arange(self.n_heads))
        empty = np.bincount(self.owner, minlength=self.n_heads) == 0
        padded = np.concatenate([squares, np.zeros((*squares.shape[:-1], 1), squares.dtype)], axis=-1)
        sums: Floats = np.add.reduceat(padded.astype(np.float64), edges, axis=-1)
        return np.where(empty, 0.0, sums)


def _shares(sample: _Sample, codes: NDArray[np.intp], groups: int, weights: NDArray[np.float32]) -> Floats:
    """Adjusted shares [draws, heads]. codes, weights: [draws, n], each image's group and count."""
    n = sample.columns.shape[0]
    squares = sample.columns**2
    found = []
    for row, weight in zip(codes, weights, strict=True):
        member = np.zeros((groups, n), dtype=np.float32)
        member[row, np.arange(n)] = weight
        size = member.sum(axis=1, dtype=np.float64)
        sums = (member @ sample.columns).astype(np.float64)
        # Centered on the draw's own mean: sum |x|^2 - |sum x|^2 / n, and the same for the groups' sums.
        off_center = sums.sum(axis=0) ** 2 / n
        between = (sums**2 / np.maximum(size, 1)[:, None]).sum(axis=0) - off_center
        total = sample.by_head(weight @ squares - off_center)
        eta = np.divide(sample.by_head(between), total, out=np.zeros_like(total), where=total > 0)
        present = int((size > 0).sum())
        found.append(np.where(total > 0, 1 - (1 - eta) * (n - 1) / (n - present), 0.0))
    return np.stack(found)


def _measure(
    name: str,
    heads: tuple[Head, ...],
    sample: _Sample,
    codes: NDArray[np.intp],
    draws: int,
    rng: np.random.Generator,
) -> Selectivity:
    n, groups = len(codes), int(codes.max()) + 1
    once = np.ones((draws, n), dtype=np.float32)
    values = _shares(sample, codes[None], groups, once[:1])[0]
    permuted = _shares(sample, rng.permuted(np.tile(codes, (draws, 1)), axis=1), groups, once)
    picked = rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float32)
    drawn = _shares(sample, np.broadcast_to(codes, (draws, n)), groups, picked)
    low, high = stats.intervals(values, drawn, center=True)
    p_values = (1 + (permuted >= values - 1e-12).sum(axis=0)) / (1 + draws)
    return Selectivity(
        factor=name,
        heads=heads,
        values=values,
        low=low,
        high=high,
        chance=np.quantile(permuted, 0.95, axis=0),
        p_values=p_values,
        q_values=stats.benjamini_hochberg(p_values),
        n=n,
        groups=groups,
    )
