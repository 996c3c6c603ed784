"""The printed output of commands and reports: templates, numbers with intervals, and Markdown tables."""

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from ccs import results
from ccs.analysis.result import Result
from ccs.errors import InputError
from ccs.files import one_line, write_text
from ccs.heads import effect_word
from ccs.metrics.stats import Effect, Estimate, signed
from ccs.results import Collection

TEMPLATES = Path(__file__).with_name("templates")


@lru_cache(maxsize=8)
def environment(folder: Path) -> jinja2.Environment:
    """Return the templates of a folder, which raise an error for a missing value."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html"], default=False),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["number"] = format_number
    formatters = (in_brackets, format_effect, format_parts, columns, count, effect_word)
    templates.globals |= {formatter.__name__: formatter for formatter in formatters}
    templates.globals["quoted"] = repr
    return templates


def printed(name: str, table: Result | None = None, /, **values: Any) -> str:
    """Render the text template `templates/NAME.txt`.

    Args:
        name: Name of the template.
        table: A result, whose values the template reads as `table` and `about`.
        **values: Values of its other fields. A missing one is an error.
    """
    values |= {"table": table, "about": table.about if table else {}}
    return environment(TEMPLATES).get_template(f"{name}.txt").render(values)


def show(text: str, result: Result, csv: Path | None = None) -> None:
    """Print a result, and write its rows to a CSV file.

    Args:
        text: The result in words.
        result: The result. Its skipped images and its reason for doubt go to standard error.
        csv: The file, or None.
    """
    for name in getattr(result, "skipped", result.about.get("skipped", ())):
        print(f"Skipped: {name}", file=sys.stderr)
    if doubt := getattr(result, "doubt", result.about.get("doubt")):
        print(f"Warning: {doubt}", file=sys.stderr)
    print(text)
    if csv:
        write_text(csv, result.flat().to_csv(index=False))


def open_results(place: Path | str | None) -> Collection:
    """Open results, and print to standard error where they are from and which models were skipped.

    Args:
        place: A folder, or hf://datasets/USER/NAME; None for the default folder.

    Raises:
        InputError: If there are none.
    """
    place = place or results.default_folder()
    print(f"Results: {place}", file=sys.stderr)
    collection = results.load(None if place == results.PRECOMPUTED else place, fallback=None)
    for notice in collection.notices:
        print(f"Skipped: {notice}", file=sys.stderr)
    if not collection.models:
        raise InputError(f"{place} holds no results; compute some with clip-ccs compute.")
    return collection


def columns(rows: list[dict[str, str]]) -> str:
    """Align rows of cells in columns, for a terminal."""
    return pd.DataFrame(rows).to_string(index=False)


def count(number: int, noun: str) -> str:
    """Format a number of objects: "1 head", "2 heads".

    Args:
        number: The number.
        noun: The singular of a noun whose plural ends in s.
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def format_number(value: float | None, digits: int = 2) -> str:
    """Format a number to a number of decimals.

    Args:
        value: The number; a dash is written for None and NaN.
        digits: Number of decimals.
    """
    return "–" if value is None or np.isnan(value) else f"{value:.{digits}f}"


def interval(estimate: Effect | Estimate, scale: float = 1.0, digits: int = 3) -> str:
    """Format an interval, "-3.2 to -1.0".

    Args:
        estimate: The value's interval; an unknown one is a dash.
        scale: Factor, such as 100 for percentage points.
        digits: Number of decimals.
    """
    if not np.isfinite([estimate.low, estimate.high]).all():
        return "–"
    return f"{signed(estimate.low * scale, digits)} to {signed(estimate.high * scale, digits)}"


def p_text(value: float) -> str:
    """Format a p-value to three digits or as "< 0.001"; NaN is a dash."""
    if not np.isfinite(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def in_brackets(estimate: Estimate, digits: int = 3, sign: str = "") -> str:
    """Format a value and its interval: "0.512 [0.430, 0.590]".

    Args:
        estimate: The value; only the value is shown if its interval isn't finite.
        digits: Number of decimals.
        sign: "+" for a difference.
    """
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f"{number:{sign}.{digits}f}" for number in ends)
    return f"{value} [{low}, {high}]" if np.isfinite(ends[1:]).all() else value


def format_effect(effect: Effect, scale: float = 1.0, digits: int = 3) -> str:
    """Format an effect: "-3.2 (-4.0 to -1.0, p 0.012)".

    Args:
        effect: The effect; missing parts are left out.
        scale: Factor, such as 100 for percentage points.
        digits: Number of decimals.
    """
    p_value = f"p {p_text(effect.p_value)}"
    parts = [part for part in (interval(effect, scale, digits), p_value) if not part.endswith("–")]
    return signed(effect.value * scale, digits) + (f" ({', '.join(parts)})" if parts else "")


def format_parts(parts: pd.DataFrame, name: str) -> str:
    """Format how changes of a model move the general and the occupation-specific preference, or "".

    Args:
        parts: Table from `ccs.analysis.preference.part_rows`.
        name: The column that says what was changed.
    """
    if parts.empty:
        return ""
    cells = parts[[name]].copy()
    for part in ("general", "specific"):
        ends = parts[[part, f"{part}_low", f"{part}_high"]].to_numpy()
        cells[f"{part} part"] = ["{:+.0%} [{:+.0%}, {:+.0%}]".format(*row) for row in ends]
    heading = (
        "Change of the general and the occupation-specific preference, as shares of the squared group scores:"
    )
    return f"{heading}\n{cells.assign(moves=parts['moves']).to_string(index=False)}"


# The report and pages of docs, in Markdown ------------------------------------------------------------------

Block = str
"""Markdown: a heading, a paragraph, a list, or a table."""


def filled(folder: Path, name: str, /, **values: Any) -> list[Block]:
    """Render the template `NAME.md` of a folder and return its blocks.

    A list of strings becomes a Markdown list; a frame or a list of dicts becomes a table. Indented lines
    continue the line before them.

    Args:
        folder: Folder of the template.
        name: Name of the template.
        **values: Values of its fields.
    """
    template = environment(folder).overlay(finalize=_placed).get_template(f"{name}.md")
    text = re.sub(r"\n +(?=\S)", " ", template.render(values))
    return re.split(r"\n{2,}", text.strip())


def _placed(value: Any) -> Any:
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return "\n".join(f"- {one_line(str(item))}" for item in value)
    if isinstance(value, list | pd.DataFrame):
        return markdown_table(pd.DataFrame(value))
    return one_line(value) if isinstance(value, str) else value


def markdown_table(frame: pd.DataFrame) -> str:
    """Format a frame as a Markdown table with dashes for missing cells.

    The first column and columns of words are left-aligned. Cells aren't padded, unlike those of
    `DataFrame.to_markdown`: one longer cell would change every row.
    """
    cells = frame.astype(object).fillna("–").map(_cell).rename(columns=_cell)
    words = cells.map(lambda text: text.lstrip("*`✓✗ ")[:1].isalpha()).mean() > 0.5
    marks = [":---" if place == 0 or word else "---:" for place, word in enumerate(words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells.columns, marks, *cells.to_numpy()])


def _cell(value: object) -> str:
    return one_line(str(value)).replace("|", "\\|")


def as_markdown(blocks: Sequence[Block]) -> str:
    """Join blocks of Markdown into a page."""
    return "\n\n".join(blocks) + "\n"
