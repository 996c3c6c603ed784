"""A report as a list of blocks, written as Markdown and as one HTML file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any

import jinja2
import pandas as pd
import plotly.offline
from markdown_it import MarkdownIt
from markupsafe import Markup, escape


@dataclass(frozen=True)
class Chart:
    """A Plotly figure. `key` names its static file; `text` says in words what it shows."""

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


def table(frame: pd.DataFrame, caption: str = "") -> str:
    """The frame as a Markdown table of its cells' texts.

    Columns are right-aligned, except the first and those that mostly hold words.
    """
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    marks = [":---" if _is_words(index, rows) else "---:" for index in range(frame.shape[1])]
    lines = [[_cell(name) for name in frame.columns], marks, *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"*{caption}*\n\n{text}" if caption else text


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _is_words(column: int, rows: Sequence[Sequence[str]]) -> bool:
    words = sum(row[column].lstrip("*`✓✗ ")[:1].isalpha() for row in rows)
    return column == 0 or 2 * words > len(rows)


def listing(items: Sequence[str]) -> str:
    """The items as a Markdown list."""
    return "\n".join(f"- {item}" for item in items)


def slug(name: str) -> str:
    """The name as part of a file's name."""
    return "".join(letter if letter.isalnum() else "-" for letter in name).lower()


def as_markdown(blocks: Sequence[Block], images: frozenset[str] = frozenset()) -> str:
    """The blocks as Markdown; a chart is an image where `images` holds its key, otherwise its words."""
    return "\n\n".join(_markdown(block, images) for block in blocks) + "\n"


def _markdown(block: Block, images: frozenset[str]) -> str:
    if isinstance(block, str):
        return block
    image = f"![{block.text}]({block.key}.svg)\n\n" if block.key in images else ""
    return f"{image}*{block.text}*"


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
    template = files("batch.report").joinpath("page.html").read_text(encoding="utf-8")
    return (
        jinja2.Environment(autoescape=True)
        .from_string(template)
        .render(
            title=title,
            contents=contents,
            heading=Markup(body[0]),
            body=Markup("\n".join(body[1:])),
            library=Markup(plotly.offline.get_plotlyjs()) if charts else "",
        )
    )


def _figure(chart: Chart) -> str:
    drawn = chart.figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=chart.key, config={"displayModeBar": False}
    )
    text = escape(chart.text)
    return f'<figure aria-label="{text}">{drawn}<figcaption>{text}</figcaption></figure>'
