"""HTML from templates that escape all values, and the format of numbers on the page."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from ccs.heads import Head, HeadSet, changes


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share in percent.

    Args:
        value: The share, from 0 to 1; None and NaN become a dash.
        digits: Digits after the point.
    """
    return "–" if value is None or value != value else f"{100 * value:.{digits}f}%"


def number(value: float, digits: int = 3, sign: bool = False) -> str:
    """Write a number.

    Args:
        value: The number; NaN becomes a dash.
        digits: Digits after the point.
        sign: Whether positive numbers have a sign.
    """
    return "–" if value != value else f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def for_visitors(error: object) -> str:
    """Return an error's message without names of exceptions and variables."""
    exception = r" ?\(\w*(Error|Exception|BadZipFile|Timeout)\b[^()]*(\([^()]*\)[^()]*)*\)"
    words = re.sub(exception, "", str(error))
    return re.sub(r"[,;]? ?[^,.;]*\$CCS_[^.;(]*(\([^()]*\))?", "", words).strip()


def count(n: int, noun: str) -> str:
    """Write a number with its noun: "1 head", "2 heads".

    Args:
        n: The number.
        noun: The singular of a noun whose plural ends in s.
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def head_states(ablate: HeadSet) -> dict[Head, str]:
    """Return the heads that aren't on, each with its state: "off", "scaled", or "edited"."""
    return {head: change.effect.replace("ablated", "off") for head, change in changes(ablate)}


def describe_ablation(ablate: HeadSet) -> str:
    """Describe how many heads are changed: "2 heads off", "3 heads scaled, 1 head off"."""
    states = Counter(head_states(ablate).values()).most_common()
    return ", ".join(f"{count(n, 'head')} {state}" for state, n in states or [("off", 0)])


def join_texts(texts: Sequence[str]) -> str:
    """Write texts on one line, separated by commas, so that `state.split_texts` reads them."""
    return ", ".join('"{}"'.format(t.replace('"', '""')) if re.search('[,"]', t) else t for t in texts)


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(["html"]),  # programs are not HTML
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {f.__name__: f for f in (percent, number, repr, enumerate, count, join_texts)}
ENVIRONMENT.filters |= {"signed": partial(number, sign=True), "quote": shlex.quote, "changes": changes}
ENVIRONMENT.filters |= {f.__name__: f for f in (head_states, describe_ablation)}
ENVIRONMENT.globals |= vars(ENVIRONMENT.get_template("parts.html").module)


def render(template: str, **values: Any) -> Markup:
    """Render a template. The macros of parts.html need no import there.

    Args:
        template: A file's name in templates/.
        **values: The template's variables. A missing one is an error.

    Returns:
        HTML in which the values are escaped.
    """
    return Markup(ENVIRONMENT.get_template(template).render(values))


def program(name: str, **values: Any) -> str:
    """Render lines of a program, for "Copy as Python".

    Args:
        name: A template of `templates/programs`, without its ending.
        **values: The template's variables. A missing one is an error.
    """
    return ENVIRONMENT.get_template(f"programs/{name}.txt").render(values) + "\n"
