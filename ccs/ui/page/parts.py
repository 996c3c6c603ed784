"""Pieces of HTML that the views share. Everything that is not a literal here goes through `esc`."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from typing import Any

Row = Sequence[Any]
NAMELESS = '<i class="sr">more</i>'


def esc(value: object) -> str:
    """Text for HTML, in an element or in a quoted attribute."""
    return html.escape(str(value), quote=True)


def csv_text(header: Row, rows: Iterable[Row]) -> str:
    """Rows as CSV. A text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[_inert(value) for value in row] for row in rows])
    return out.getvalue()


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def figure(
    title: str, body: str, *, what: str, unit: str = "", name: str = "", table: str = "", css: str = ""
) -> str:
    """A figure: its title, its unit, a "what is this", its body, and buttons that save it.

    `what` is HTML. `table` is what the CSV button saves; without it there is none.
    """
    name = name or title.lower().replace(" ", "-")
    save = (
        f'<button type="button" class="quiet" data-save="csv" aria-label="Save {esc(title)} as CSV">'
        "CSV</button>"
    )
    tools = (
        f'<div class="tools">{save if table else ""}'
        f'<button type="button" class="quiet" data-save="png" aria-label="Save {esc(title)} as PNG">'
        "PNG</button></div>"
    )
    units = f'<span class="unit">{esc(unit)}</span>' if unit else ""
    return (
        f'<section class="fig {css}" data-name="{esc(name)}" data-csv="{esc(table)}" '
        f'aria-label="{esc(title)}">'
        f"<header><h3>{esc(title)}</h3>{units}{tools}</header>"
        f'<details class="what"><summary>What is this?</summary><div>{what}</div></details>'
        f'<div class="body">{body}</div></section>'
    )


def empty(title: str, text: str, action: str = "") -> str:
    """What stands where there is nothing to show yet, and what to do about it. `action` is HTML."""
    return f'<div class="empty"><strong>{esc(title)}</strong><p>{esc(text)}</p>{action}</div>'


def waiting(model: str) -> str:
    """What stands where the answer of a model that is being loaded will stand."""
    return empty(f"{model} is being loaded", "What it does to pictures follows in a moment.")


def scroll(table: str) -> str:
    """A table that can be moved sideways where it is wider than the page, by keyboard too."""
    return f'<div class="scroll" tabindex="0">{table}</div>'


def button(label: str, do: str, *, css: str = "", disabled: bool = False, **data: object) -> str:
    """A button whose click is an action; `data` comes with it."""
    extra = "".join(f' data-{key.replace("_", "-")}="{esc(value)}"' for key, value in data.items())
    off = ' disabled=""' if disabled else ""
    return f'<button type="button" class="{css}" data-do="{esc(do)}"{extra}{off}>{esc(label)}</button>'


def options(choices: Iterable[tuple[str, str]], chosen: str) -> str:
    """`<option>`s of (value, label)."""
    return "".join(
        f'<option value="{esc(value)}"{" selected" if value == chosen else ""}>{esc(label)}</option>'
        for value, label in choices
    )


def select(
    label: str, do: str, choices: Iterable[tuple[str, str]], chosen: str, *, hidden: bool = False
) -> str:
    """A labelled list of choices whose change is an action."""
    words = f"<span{' class=sr' if hidden else ''}>{esc(label)}</span>"
    return (
        f'<label class="field">{words}<select data-do="{esc(do)}">{options(choices, chosen)}</select></label>'
    )


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


def points(value: float, digits: int = 1) -> str:
    """A difference of shares, in percentage points."""
    return f"{100 * value:+.{digits}f} points".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def interval(value: float, low: float, high: float, digits: int = 2) -> str:
    """A value and its 95% interval, in words that a screen reader can say."""
    if low != low or high != high:
        return number(value, digits)
    return (
        f'{number(value, digits)} <span class="ci">({number(low, digits)} to {number(high, digits)})</span>'
    )


def bar(share: float, css: str, label: str) -> str:
    """A horizontal bar from 0 to 1; the number beside it says the same."""
    width = min(max(share, 0.0), 1.0)
    return f'<span class="bar {css}"><span style="width:{100 * width:.2f}%"></span><b>{esc(label)}</b></span>'


def head_row(*names: str) -> str:
    """A table's `<thead>`; a name that begins with `#` heads a column of numbers."""
    cells = "".join(
        f'<th scope="col"{" class=num" if name.startswith("#") else ""}>'
        f"{esc(name.removeprefix('#')) or NAMELESS}</th>"
        for name in names
    )
    return f"<thead><tr>{cells}</tr></thead>"


def status(turn: int, state: str, share: float = 0.0, doing: str = "", query: str = "") -> str:
    """What the page's script reads: the turn, whether it is over, and the link to this screen."""
    busy = ""
    if doing:
        busy = (
            f'<div class="busy" role="status"><span>{esc(doing)} …</span><progress max="1" '
            f'value="{share:.2f}"></progress>'
            '<button type="button" data-cancel="1">Cancel</button></div>'
        )
    return (
        f'<div class="status" data-turn="{turn}" data-state="{state}" data-query="{esc(query)}">{busy}</div>'
    )
