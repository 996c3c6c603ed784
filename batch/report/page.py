"""A report as a list of blocks, written as Markdown and as one HTML file that needs nothing from outside."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Heading:
    """`level` 1 is the title, 2 a section."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; `code` and **strong** are understood, nothing else."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of paragraphs."""

    items: Sequence[str]


@dataclass(frozen=True)
class Grid:
    """A table of texts. The first column is left-aligned, the others right; `text_columns` are left too."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text_columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Chart:
    """A Plotly figure. `key` names its static file; `text` says in words what it shows."""

    key: str
    figure: Any
    text: str


Block = Heading | Text | Items | Grid | Chart


@dataclass
class Document:
    """Blocks in order."""

    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        self.blocks += blocks

    @property
    def charts(self) -> list[Chart]:
        return [block for block in self.blocks if isinstance(block, Chart)]


# Markdown -----------------------------------------------------------------------------------------


def as_markdown(document: Document, images: frozenset[str]) -> str:
    """The document as Markdown; charts are pictures where `images` holds their key, else words."""
    return "\n\n".join(_markdown(block, images) for block in document.blocks) + "\n"


def _markdown(block: Block, images: frozenset[str]) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Items):
        return "\n".join(f"- {item}" for item in block.items)
    if isinstance(block, Chart):
        picture = f"![{block.text}]({block.key}.svg)\n\n" if block.key in images else ""
        return f"{picture}*{block.text}*"
    marks = [":---" if left else "---:" for left in _left(block)]
    lines = [" | ".join(block.columns), " | ".join(marks), *(" | ".join(row) for row in block.rows)]
    table = "\n".join(f"| {line} |" for line in lines)
    return f"*{block.caption}*\n\n{table}" if block.caption else table


def _left(grid: Grid) -> list[bool]:
    return [index == 0 or name in grid.text_columns for index, name in enumerate(grid.columns)]


# HTML ---------------------------------------------------------------------------------------------

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5b6573;--line:#d9dee5;--paper:#fff;--band:#f5f7f9;
--good:#1a7f4b;--bad:#b3371f;--link:#1f5fbf}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa4b2;--line:#343c48;--paper:#14181e;
--band:#1b2129;--good:#58c48c;--bad:#ef8a72;--link:#7fb0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:78rem;margin:0 auto;padding:2rem 1.25rem 6rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 1rem}
h2{font-size:1.35rem;margin:3rem 0 .75rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1.08rem;margin:2rem 0 .5rem}
p,li{max-width:46rem}li{margin:.35rem 0}
code{font-size:.9em;background:var(--band);padding:.1em .3em;border-radius:3px}
nav{columns:2 18rem;margin:1.5rem 0;font-size:.95rem}nav a{display:block;color:var(--link);
text-decoration:none;padding:.1rem 0}nav a:hover{text-decoration:underline}
.wide{overflow-x:auto;margin:.75rem 0 1.5rem}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
caption{caption-side:top;text-align:left;color:var(--soft);padding:0 0 .4rem;font-size:.9rem}
th,td{padding:.28rem .65rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{background:var(--band);font-weight:600}.l{text-align:left}td.w{white-space:normal;min-width:14rem}
tbody tr:hover{background:var(--band)}.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
figure{margin:1rem 0 2rem}figcaption{color:var(--soft);font-size:.9rem;max-width:46rem}
.chart{width:100%}
"""

# The library is packed: unpacked by the browser itself, once. Charts take their text color from the page.
_SCRIPT = """
(async()=>{
const packed=Uint8Array.from(atob(document.getElementById('plotly').textContent.trim()),c=>c.charCodeAt(0));
const code=await new Response(new Blob([packed]).stream().pipeThrough(new
DecompressionStream('gzip'))).text(); (0,eval)(code);
const dark=matchMedia('(prefers-color-scheme: dark)');
const draw=()=>{const style=getComputedStyle(document.documentElement);
const ink=style.getPropertyValue('--ink').trim(),line=style.getPropertyValue('--line').trim();
for(const box of document.querySelectorAll('.chart')){
const figure=JSON.parse(box.nextElementSibling.textContent),layout=figure.layout;
layout.font={...layout.font,color:ink};
for(const key of Object.keys(layout))if(/^[xy]axis/.test(key)){layout[key].gridcolor=line;
layout[key].zerolinecolor=line;layout[key].linecolor=line}
Plotly.react(box,figure.data,layout,{responsive:true,displaylogo:false})}};
draw();dark.addEventListener('change',draw);document.documentElement.dataset.charts='drawn';
})();
"""


def as_html(document: Document) -> str:
    """The document as one HTML page, charts and their library inside."""
    title = next(block.text for block in document.blocks if isinstance(block, Heading))
    links: list[str] = []
    parts: list[str] = []
    for number, block in enumerate(document.blocks):
        if isinstance(block, Heading):
            parts.append(f'<h{block.level} id="s{number}">{_inline(block.text)}</h{block.level}>')
            if block.level == 2:
                links.append(f'<a href="#s{number}">{_inline(block.text)}</a>')
            if block.level == 1:
                parts.append("<!--contents-->")
        else:
            parts.append(_html(block))
    body = "\n".join(parts).replace("<!--contents-->", f"<nav>{''.join(links)}</nav>")
    scripts = f'<script type="text/plain" id="plotly">{_packed()}</script><script>{_SCRIPT}</script>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main>{scripts if document.charts else ''}</body></html>\n"
    )


@cache
def _packed() -> str:
    code = files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, 9, mtime=0)).decode()


def _html(block: Block) -> str:
    if isinstance(block, Text):
        return f"<p>{_inline(block.text)}</p>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Chart):
        data = json.dumps(block.figure.to_plotly_json(), default=_listed).replace("</", "<\\/")
        height = block.figure.layout.height or 420
        return (
            f'<figure><div class="chart" style="height:{height}px" role="img" '
            f'aria-label="{html.escape(block.text)}"></div><script type="application/json">{data}</script>'
            f"<figcaption>{_inline(block.text)}</figcaption></figure>"
        )
    assert isinstance(block, Grid)
    left = _left(block)
    head = "".join(
        f'<th scope="col"{" class=l" if align else ""}>{_inline(name)}</th>'
        for name, align in zip(block.columns, left, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(cell, align) for cell, align in zip(row, left, strict=True)) + "</tr>"
        for row in block.rows
    )
    caption = f"<caption>{_inline(block.caption)}</caption>" if block.caption else ""
    return (
        f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(cell: str, left: bool) -> str:
    kind = "good" if cell.startswith("✓") else "bad" if cell.startswith("✗") else ""
    classes = " ".join(name for name in ("l" if left else "", "w" if len(cell) > 60 else "", kind) if name)
    return f'<td class="{classes}">{_inline(cell)}</td>' if classes else f"<td>{_inline(cell)}</td>"


def _listed(value: Any) -> Any:
    return value.tolist()


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)
