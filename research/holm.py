"""Holm's adjustment of p-values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ccs.metrics.stats import Floats


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values [tests] for the family-wise error (Holm 1979); NaN stays NaN."""
    adjusted = np.array(p_values, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(adjusted))
    order = known[np.argsort(adjusted[known], kind="stable")]
    stepped = adjusted[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted
