"""What commands and the report print: pages, whose prose stands in `templates`, and figures in them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate

TEMPLATES = Path(__file__).with_name("templates")


@lru_cache(maxsize=8)
def environment(folder: Path) -> jinja2.Environment:
    """The templates of a folder, in which a value that is not given is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {f.__name__: f for f in (in_brackets, interval, p_text, signed, change, whole, table)}
    found.globals |= {"quoted": repr, "count": count}
    return found


def filled(name: str, /, **values: Any) -> str:
    """The page `templates/NAME.txt` with these values."""
    return environment(TEMPLATES).get_template(f"{name}.txt").render(values)


def table(rows: list[dict[str, str]]) -> str:
    """Rows of cells in columns, for a terminal."""
    return pd.DataFrame(rows).to_string(index=False)


def whole(number: int) -> str:
    """A whole number with commas: "10,954"."""
    return f"{number:,}"


def count(number: int, thing: str) -> str:
    """ "1 head", "2 heads"."""
    return f"{number} {thing}{'s' * (number != 1)}"


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


def in_brackets(found: Estimate, digits: int = 3, sign: str = "") -> str:
    """ "0.512 [0.430, 0.590]"; sign: "+" for a difference."""
    value, low, high = (f"{number:{sign}.{digits}f}" for number in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]" if np.isfinite([found.low, found.high]).all() else value


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
