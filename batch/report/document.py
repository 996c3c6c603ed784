"""A report as a list of blocks, written as Markdown and as one HTML file that works offline.

Its prose stands in `templates`, Markdown that Jinja fills in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import plotly.offline
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from ccs.files import read_text, write_text


@dataclass(frozen=True)
class Chart:
    """A Plotly figure. `key` names it on the page; `text` says in words what it shows."""

    key: str
    figure: Any
    text: str


Block = str | Chart
"""Markdown (a heading, a paragraph, a list or a table), or a chart."""

# Texts of results come from outside: no HTML of theirs, no link and no image gets into the page.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
_PARSER.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
_PARSER.add_render_rule("table_close", lambda *_: "</table></div>\n")
_LONG = 60
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
        return "\n".join(f"- {item}" for item in value)
    return table(pd.DataFrame(value)) if isinstance(value, list | pd.DataFrame) else value


@lru_cache(maxsize=8)
def _templates(folder: Path) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_placed,
    )


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
    return " ".join(str(value).split()).replace("|", "\\|")


def bring_up_to_date(document: Path, name: str, text: str, command: str = "batch.report") -> None:
    """Put the text between the two markers of that name, where there are text, document and markers."""
    start, end = f"<!-- {name}: written by python -m {command} -->", f"<!-- end of {name} -->"
    before, found, rest = (read_text(document) if document.is_file() else "").partition(start)
    _, closed, after = rest.partition(end)
    if text and found and closed:
        write_text(document, f"{before}{start}\n{text}\n{end}{after}")


def as_markdown(blocks: Sequence[Block]) -> str:
    """The blocks as Markdown; of a chart its words."""
    return "\n\n".join(block if isinstance(block, str) else f"*{block.text}*" for block in blocks) + "\n"


def as_html(blocks: Sequence[Block]) -> str:
    """The blocks, the first of them the title, as one HTML page that holds its charts and their library."""
    title, contents, body = "", [], []
    for number, block in enumerate(blocks):
        if isinstance(block, Chart):
            body.append(_figure(block))
            continue
        tokens = _PARSER.parse(block)
        for token, inner in pairwise(tokens):
            if token.type == "heading_open":
                token.attrSet("id", f"s{number}")
                title = title or inner.content
                if token.tag == "h2":
                    contents.append((f"s{number}", inner.content))
            if token.type == "td_open":
                mark = {"✓": "good", "✗": "bad"}.get(inner.content[:1])
                classes = [name for name in (mark, "long" if len(inner.content) > _LONG else None) if name]
                if classes:
                    token.attrSet("class", " ".join(classes))
        body.append(_PARSER.renderer.render(tokens, _PARSER.options, {}))
    charts = any(isinstance(block, Chart) for block in blocks)
    page = _templates(_FOLDER).get_template("page.html")
    return page.render(
        title=title,
        contents=contents,
        heading=Markup(body[0]),
        body=Markup("\n".join(body[1:])),
        library=Markup(plotly.offline.get_plotlyjs()) if charts else "",
    )


def _figure(chart: Chart) -> str:
    drawn = chart.figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=chart.key, config={"displayModeBar": False}
    )
    text = escape(chart.text)
    return f'<figure aria-label="{text}">{drawn}<figcaption>{text}</figcaption></figure>'
