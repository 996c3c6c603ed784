"""What commands and the report print: pages, whose prose stands in `templates`, and figures in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from ccs.files import one_line
from ccs.heads import effect_word
from ccs.metrics import stats
from ccs.metrics.stats import Effect, Estimate

TEMPLATES = Path(__file__).with_name("templates")


@lru_cache(maxsize=8)
def environment(folder: Path) -> jinja2.Environment:
    """The templates of a folder, in which a value that is not given is an error."""
    loader, strict = jinja2.FileSystemLoader(folder), jinja2.StrictUndefined
    templates = jinja2.Environment(loader=loader, undefined=strict, trim_blocks=True, lstrip_blocks=True)
    templates.globals |= {f.__name__: f for f in (in_brackets, signed, whole, columns, count, effect_word)}
    templates.globals["quoted"] = repr
    return templates


def printed(name: str, /, **values: Any) -> str:
    """The page `templates/NAME.txt` with these values."""
    return environment(TEMPLATES).get_template(f"{name}.txt").render(values)


def columns(rows: list[dict[str, str]]) -> str:
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


def interval(figure: Effect | Estimate, scale: float = 1.0, digits: int = 3) -> str:
    """ "-3.2 to -1.0", or a dash."""
    if not np.isfinite([figure.low, figure.high]).all():
        return "–"
    return f"{stats.signed(figure.low * scale, digits)} to {stats.signed(figure.high * scale, digits)}"


def p_text(value: float) -> str:
    """A p-value to three digits, "< 0.001", or a dash."""
    if not np.isfinite(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def at_ceiling(rankings: float) -> str:
    """The mark after a mean MaxSkew with so many rankings at their ceiling: " ⌈14", or nothing."""
    return f" ⌈{int(rankings)}" if rankings > 0 else ""


def in_brackets(figure: Estimate, digits: int = 3, sign: str = "") -> str:
    """ "0.512 [0.430, 0.590]"; sign: "+" for a difference."""
    value, low, high = (f"{number:{sign}.{digits}f}" for number in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]" if np.isfinite([figure.low, figure.high]).all() else value


def change(effect: Effect, scale: float = 1.0, digits: int = 3) -> str:
    """ "-3.2 (-4.0 to -1.0, p 0.012)"."""
    parts = [interval(effect, scale, digits)] if np.isfinite([effect.low, effect.high]).all() else []
    if np.isfinite(effect.p_value):
        parts.append(f"p {p_text(effect.p_value)}")
    return signed(effect.value, digits, scale) + (f" ({', '.join(parts)})" if parts else "")


# The report and pages of docs, in Markdown ------------------------------------------------------------------

Block = str
"""Markdown: a heading, a paragraph, a list or a table."""


def fill(name: str, /, **values: Any) -> list[Block]:
    """The blocks of `templates/NAME.md` with these values filled in; see `filled`."""
    return filled(TEMPLATES, name, **values)


def filled(folder: Path, name: str, /, **values: Any) -> list[Block]:
    """The blocks of `NAME.md` in a folder of templates, filled in. There a list of strings is a Markdown
    list, a frame or a list of dicts is a table, and indented lines continue the line before them.
    """
    text = re.sub(r"\n +(?=\S)", " ", _templates(folder).get_template(f"{name}.md").render(values))
    return [*re.split(r"\n{2,}", text.strip())]


def _placed(value: Any) -> Any:
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return "\n".join(f"- {one_line(str(item))}" for item in value)
    if isinstance(value, list | pd.DataFrame):
        return table(pd.DataFrame(value))
    return one_line(value) if isinstance(value, str) else value


@lru_cache(maxsize=8)
def _templates(folder: Path) -> jinja2.Environment:
    return environment(folder).overlay(finalize=_placed)


def table(frame: pd.DataFrame) -> str:
    """The frame as a Markdown table, with dashes for missing cells; columns of words and the first are
    left-aligned. Cells are not padded, as `DataFrame.to_markdown` does, where one longer cell changes every
    row.
    """
    cells = frame.astype(object).fillna("–").map(_cell).rename(columns=_cell)
    words = cells.map(lambda text: text.lstrip("*`✓✗ ")[:1].isalpha()).mean() > 0.5
    marks = [":---" if place == 0 or word else "---:" for place, word in enumerate(words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells.columns, marks, *cells.to_numpy()])


def _cell(value: object) -> str:
    return one_line(str(value)).replace("|", "\\|")


def as_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(blocks) + "\n"
