"""HTML from templates that escape whatever they are given, and how numbers are written on the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ccs.heads import Head, HeadSet, changes

TEMPLATES = Path(__file__).parent / "page" / "templates"
PAPER = "https://arxiv.org/abs/2503.11103"
TEXTSPAN = "https://github.com/yossigandelsman/clip_text_span"


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 1 in percent; a dash where it is unknown."""
    return "–" if value is None or value != value else f"{100 * value:.{digits}f}%"


def points(value: float) -> str:
    """A difference of shares, in percentage points."""
    return f"{signed(100 * value, 1)} points"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def number(value: float, digits: int = 3) -> str:
    """A number; a dash where it is unknown."""
    return "–" if value != value else f"{value:.{digits}f}".replace("-", "−")


def interval(value: float, low: float, high: float, digits: int = 2) -> Markup:
    """A value and its 95% interval, in words that a screen reader can say."""
    if low != low or high != high:
        return Markup(number(value, digits))
    words = '{} <span class="ci">({} to {})</span>'
    return Markup(words).format(number(value, digits), number(low, digits), number(high, digits))


def count(n: int, noun: str) -> str:
    """A number of things: "1 head", "2 heads"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def switched(off: HeadSet) -> str:
    """What is done to heads: "2 heads off", "1 head off, 3 scaled"."""
    scaled = sum(not change.off for _, change in changes(off))
    if scaled == len(off):
        return f"{count(scaled, 'head')} scaled" if scaled else "0 heads off"
    return f"{count(len(off) - scaled, 'head')} off" + (f", {scaled} scaled" if scaled else "")


def factor(off: HeadSet, head: Head) -> float:
    """What a head's output is multiplied by."""
    return dict(changes(off))[head].factor if head in off else 1.0


def written(found: Sequence[str], between: str = "\n") -> str:
    """Texts as `state.texts` reads them: between `between` where none holds a comma or a quotation mark, else
    one per line; a single text that holds one is quoted.
    """
    if any("," in text or '"' in text for text in found):
        if len(found) > 1:
            return "\n".join(found)
        return '"' + found[0].replace('"', '""') + '"'
    return between.join(found)


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda name: not (name or "").endswith(".txt"),  # of programs
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {f.__name__: f for f in (percent, points, signed, number, interval)}
    found.filters |= {f.__name__: f for f in (repr, count, written, switched)}
    found.globals |= {"paper": PAPER, "textspan": TEXTSPAN, "factor": factor}
    parts = found.get_template("parts.html").module
    found.globals |= {name: part for name, part in vars(parts).items() if not name.startswith("_")}
    return found


_ENVIRONMENT = _environment()


def render(template: str, **values: Any) -> Markup:
    """A template of `page/templates` with these values; the macros of parts.html need no import there."""
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def program(name: str, **values: Any) -> str:
    """Lines of a program, for "Copy as Python": a template of `page/templates/programs`."""
    return _ENVIRONMENT.get_template(f"programs/{name}.txt").render(values) + "\n"
