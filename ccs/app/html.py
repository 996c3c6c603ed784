"""HTML from templates that escape all values, and the format of numbers on the page."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ccs.heads import Head, HeadSet, changes

TEMPLATES = Path(__file__).parent / "templates"
PAPER = "https://arxiv.org/abs/2503.11103"
TEXTSPAN = "https://github.com/yossigandelsman/clip_text_span"


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share of 1 in percent.

    Args:
        value: The share; a dash is written for None and NaN.
        digits: Digits after the point.
    """
    return "–" if value is None or value != value else f"{100 * value:.{digits}f}%"


def points(value: float) -> str:
    """Write a difference of shares in percentage points."""
    return f"{signed(100 * value, 1)} points"


def signed(value: float, digits: int = 3) -> str:
    """Write a number with its sign.

    Args:
        value: The number.
        digits: Digits after the point.
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def number(value: float, digits: int = 3) -> str:
    """Write a number.

    Args:
        value: The number; a dash is written for NaN.
        digits: Digits after the point.
    """
    return "–" if value != value else f"{value:.{digits}f}".replace("-", "−")


def interval(value: float, low: float, high: float, digits: int = 2, sign: bool = False) -> Markup:
    """Write a value and its 95% interval.

    Args:
        value: The value.
        low: The interval's lower end; no interval is written for NaN.
        high: The interval's upper end.
        digits: Digits after the point.
        sign: True for a change, written with signs.
    """
    write = signed if sign else number
    if low != low or high != high:
        return Markup(write(value, digits))
    words = '{} <span class="ci">({} to {})</span>'
    return Markup(words).format(write(value, digits), write(low, digits), write(high, digits))


def for_visitors(error: object) -> str:
    """Return an error's sentence without names of exceptions and variables of this program."""
    exception = r" ?\(\w*(Error|Exception|BadZipFile|Timeout)\b[^()]*(\([^()]*\)[^()]*)*\)"
    words = re.sub(exception, "", str(error))
    return re.sub(r"[,;]? ?[^,.;]*\$CCS_[^.;(]*(\([^()]*\))?", "", words).strip()


def count(n: int, noun: str) -> str:
    """Write a number of things: "1 head", "2 heads".

    Args:
        n: The number.
        noun: The singular of a noun whose plural ends in s.
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def describe_ablation(heads: HeadSet) -> str:
    """Describe how many heads are changed: "2 heads off", "1 head off, 3 scaled, 1 edited"."""
    states = Counter(head_state(heads, head) for head in heads)
    parts = [f"{n} {state}" for state in ("off", "scaled", "edited") if (n := states[state])]
    number, _, state = (parts or ["0 off"])[0].partition(" ")
    return ", ".join([f"{count(int(number), 'head')} {state}", *parts[1:]])


def head_state(ablate: HeadSet, head: Head) -> str:
    """Return the state of a head: "on", "off", "scaled", or "edited".

    Args:
        ablate: The heads that are ablated, scaled, or edited.
        head: The head.
    """
    if head not in ablate:
        return "on"
    return dict(changes(ablate))[head].effect.replace("ablated", "off")


def join_texts(texts: Sequence[str], between: str = "\n") -> str:
    """Write texts so that `state.split_texts` reads them.

    Args:
        texts: The texts.
        between: What separates them if none holds a comma or a quotation mark; else each has its line, and a
            single one is quoted.
    """
    if any("," in text or '"' in text for text in texts):
        if len(texts) > 1:
            return "\n".join(texts)
        return '"' + texts[0].replace('"', '""') + '"'
    return between.join(texts)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda name: not (name or "").endswith(".txt"),  # programs
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {f.__name__: f for f in (percent, points, signed, number, interval)}
    environment.filters |= {f.__name__: f for f in (repr, enumerate, count, join_texts, describe_ablation)}
    environment.filters["quote"] = shlex.quote
    environment.globals |= {"paper": PAPER, "textspan": TEXTSPAN, "head_state": head_state}
    parts = environment.get_template("parts.html").module
    environment.globals |= {name: part for name, part in vars(parts).items() if not name.startswith("_")}
    return environment


_ENVIRONMENT = _environment()


def render(template: str, **values: Any) -> Markup:
    """Render a template. The macros of parts.html need no import there.

    Args:
        template: A file's name in `TEMPLATES`.
        **values: The template's variables. A missing one is an error.

    Returns:
        HTML in which the values are escaped.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def program(name: str, **values: Any) -> str:
    """Render lines of a program, for "Copy as Python".

    Args:
        name: A template of `templates/programs`, without its ending.
        **values: The template's variables. A missing one is an error.
    """
    return _ENVIRONMENT.get_template(f"programs/{name}.txt").render(values) + "\n"
