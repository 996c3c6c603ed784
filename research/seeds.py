"""Means over random seeds, such as repeated trainings."""

from __future__ import annotations

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike

from ccs.metrics.stats import LEVEL, Estimate, vector


def over_seeds(values: ArrayLike) -> Estimate:
    """Return the mean over random seeds with Student's t interval (NaN with one seed)."""
    array = vector(values, "values of the seeds")
    mean, count = float(array.mean()), len(array)
    error = array.std(ddof=1) / np.sqrt(count) if count > 1 else float("nan")
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, count - 1) * error)
    return Estimate(mean, mean - half, mean + half)
