"""Figures, intervals and answers as the report prints them."""

from __future__ import annotations

import numpy as np

from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate


def signed(value: float, digits: int, scale: float = 1.0) -> str:
    """ "+0.12", or a dash for NaN; what rounds to zero has no minus."""
    return f"{round(value * scale, digits) + 0.0:+.{digits}f}" if np.isfinite(value) else "–"


def interval(found: Effect | Estimate, scale: float = 1.0, digits: int = 3) -> str:
    """ "-3.2 to -1.0", or a dash."""
    if not np.isfinite([found.low, found.high]).all():
        return "–"
    return f"{stats.signed(found.low * scale, digits)} to {stats.signed(found.high * scale, digits)}"


def p_text(value: float) -> str:
    """A p-value to three digits, "< 0.001", or a dash."""
    if not np.isfinite(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def at_ceiling(rankings: float) -> str:
    """The mark after a mean MaxSkew with so many rankings at their ceiling: " ⌈14", or nothing."""
    return f" ⌈{int(rankings)}" if rankings > 0 else ""


def in_brackets(found: Estimate, digits: int = 3) -> str:
    """ "0.512 [0.430, 0.590]"."""
    if not np.isfinite([found.low, found.high]).all():
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def change(
    found: Effect, scale: float = 1.0, digits: int = 3, adjusted: float | None = None, unit: str = ""
) -> str:
    """ "-3.2 points (-4.0 to -1.0, p 0.012)"; an adjusted p stands in for the effect's own, and says so."""
    parts = [interval(found, scale, digits)] if np.isfinite([found.low, found.high]).all() else []
    if adjusted is not None:
        parts.append(f"adjusted p {p_text(adjusted)}")
    elif np.isfinite(found.p_value):
        parts.append(f"p {p_text(found.p_value)}")
    return signed(found.value, digits, scale) + unit + (f" ({', '.join(parts)})" if parts else "")
