"""A report as a list of blocks of Markdown; its prose stands in `templates`, which Jinja fills in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from ccs.batch.pages import environment
from ccs.files import one_line, read_text, write_text

Block = str
"""Markdown: a heading, a paragraph, a list or a table."""

_FOLDER = Path(__file__).with_name("templates")


def fill(name: str, /, **values: Any) -> list[Block]:
    """The blocks of `templates/NAME.md` beside this module with these values filled in; see `filled`."""
    return filled(_FOLDER, name, **values)


def filled(folder: Path, name: str, /, **values: Any) -> list[Block]:
    """The blocks of `NAME.md` in a folder of templates with these values filled in.

    In a template a list of strings is a Markdown list, and a frame or a list of rows (dicts) is a table.
    Indented lines continue the line before them.
    """
    text = re.sub(r"\n +(?=\S)", " ", _templates(folder).get_template(f"{name}.md").render(values))
    return [*re.split(r"\n{2,}", text.strip())]


def _placed(value: Any) -> Any:
    if isinstance(value, list) and not any(isinstance(one, dict) for one in value):
        return "\n".join(f"- {one_line(str(item))}" for item in value)
    if isinstance(value, list | pd.DataFrame):
        return table(pd.DataFrame(value))
    return one_line(value) if isinstance(value, str) else value


@lru_cache(maxsize=8)
def _templates(folder: Path) -> jinja2.Environment:
    return environment(folder).overlay(finalize=_placed)


def table(frame: pd.DataFrame) -> str:
    """The frame as a Markdown table of its cells' texts, with dashes for those that are missing.

    Columns are right-aligned, except the first and those that mostly hold words. Cells are not padded, unlike
    those of `DataFrame.to_markdown`, where one longer cell changes every row.
    """
    cells = frame.astype(object).fillna("–").map(_cell).rename(columns=_cell)
    words = cells.map(lambda text: text.lstrip("*`✓✗ ")[:1].isalpha()).mean() > 0.5
    marks = [":---" if place == 0 or word else "---:" for place, word in enumerate(words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells.columns, marks, *cells.to_numpy()])


def _cell(value: object) -> str:
    return one_line(str(value)).replace("|", "\\|")


def bring_up_to_date(document: Path, name: str, text: str, by: str = "clip-ccs report") -> None:
    """Put the text between the two markers of that name, where there are text, document and markers."""
    start, end = f"<!-- {name}: written by {by} -->", f"<!-- end of {name} -->"
    before, found, rest = (read_text(document) if document.is_file() else "").partition(start)
    _, closed, after = rest.partition(end)
    if text and found and closed:
        write_text(document, f"{before}{start}\n{text}\n{end}{after}")


def as_markdown(blocks: Sequence[Block]) -> str:
    """The blocks as one page of Markdown."""
    return "\n\n".join(blocks) + "\n"
