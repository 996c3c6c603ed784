"""What a measurement asks, the same for every plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.measures import faults, resampling
from ccs.measures.bias.result import MetricName
from ccs.measures.skew import Empty, Floats, Target, target_shares


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Groups, cut-off, choices of the formulas, and what is drawn again for intervals."""

    names: tuple[str, ...]
    codes: NDArray[np.uint8]
    k: int
    target: Target
    empty: Empty
    fault: faults.Fault | None
    metrics: tuple[MetricName, ...]
    images: resampling.Draws
    occupations: Floats  # [draws, occupations], weights that sum to 1
    seed: int

    @property
    def pool(self) -> NDArray[np.int64]:
        return np.bincount(self.codes, minlength=len(self.names))

    def shares(self, pool: ArrayLike) -> Floats:
        """Target shares [..., groups] for the pool's counts, faults included."""
        counts = np.asarray(pool, dtype=np.float64)
        if self.fault == "order":
            counts = counts[..., faults.first_appearance(self.codes)]
        if self.fault == "aliased":
            counts = np.ones_like(counts)
        return target_shares(counts, self.target)


def drawn_occupations(n: int, draws: int, seed: int, resample: bool) -> Floats:
    """How much each occupation counts [draws, n] when occupations are drawn again (or not: evenly)."""
    even = np.full((draws, n), 1 / n)
    if not resample:
        return even
    drawn: Floats = np.random.default_rng([seed, 1]).multinomial(n, even[0], size=draws) / n
    return drawn
