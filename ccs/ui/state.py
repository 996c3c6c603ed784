"""The screen as one frozen value, which the URL holds; checks of what comes from outside."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from ccs.errors import InputError
from ccs.heads import IMAGE, Head, HeadSet, Intervention, factors
from ccs.ui.html import written

NONE_OFF = HeadSet()
OWN = "own:"  # begins the name of a visitor's own gallery
NOTHING = "none"  # what a link says where no head is off
MAX_TEXTS = 200
MAX_TEXT_LENGTH = 200
MAX_HEADS = 1024
MAX_QUERY = 12_000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class State:
    """One screen, all of it but the images a visitor uploads; those never leave the session.

    tab: the view. tower: the one whose heads the grid shows, `IMAGE` or `TEXT`. off: the heads of both that
    are switched off, or turned down or up (`parse_off`). text: the number of the head's text that images are
    ranked by. example: the drawn images shown. classes, occupations:
    texts. template: with `{}` where the class goes. k: 0 for the gallery's own cut-off. row: the occupation
    whose images are shown. apart: the key of tables that were made here (`service.taking_apart`), shown
    instead of the model's own. second: the model that the view Heads compares it with, "" for none.
    """

    tab: str = "heads"
    model: str = ""
    tower: str = IMAGE
    off: HeadSet = NONE_OFF
    head: Head | None = None
    text: int = 0
    example: str = ""
    classes: tuple[str, ...] = ()
    template: str = ""
    occupations: tuple[str, ...] = ()
    gallery: str = ""
    attribute: str = ""
    k: int = 0
    row: int = 0
    apart: str = ""
    second: str = ""

    def query(self) -> str:
        """The URL's query, without the fields at their default; that no head is off is always said."""
        return urlencode(_written(self))


_DEFAULT = State()
_MANY = ("classes", "occupations")


def _written(state: State) -> dict[str, str]:
    out = {}
    for field in fields(State):
        value = getattr(state, field.name)
        if field.name == "off":  # a link without it opens a worked example
            out["off"] = str(value) or NOTHING
        elif field.name == "gallery" and value.startswith(OWN):
            out["gallery"] = OWN  # the images are the visitor's alone
        elif value == getattr(_DEFAULT, field.name) or value is None:
            continue
        elif field.name in _MANY:
            out[field.name] = written(value)
        else:
            out[field.name] = str(value)
    return out


def from_query(query: Mapping[str, str]) -> tuple[State, list[str]]:
    """The state that a URL asks for, and a sentence for each part of it that could not be used.

    Whether there is such a view, model or head is not known here.
    """
    state, problems = State(), list[str]()
    for name, text in query.items():
        if name not in _DEFAULT.__dataclass_fields__:
            continue
        try:
            state = replace(state, **{name: _read(name, str(text))})
        except InputError as error:
            problems.append(f"The link's part {name!r} was left out: {error}")
    return state, problems


def _read(name: str, text: str) -> Any:
    if len(text) > MAX_QUERY:
        raise InputError(f"it is longer than {MAX_QUERY} characters.")
    if name == "off":
        return parse_off("" if text == NOTHING else text)
    if name == "head":
        return Head.parse(text)
    if name in _MANY:
        return texts(text)
    if name in ("k", "text", "row"):
        return parse_int(text, name)
    return line(text)


def parse_off(text: str) -> HeadSet:
    """Heads that are off, or whose output is multiplied by a factor; those at 1 are left out.

    InputError for what else an intervention can be, and for too many heads.
    """
    off = Intervention.parse(text)
    if len(off) > MAX_HEADS:
        raise InputError(f"it names {len(off)} heads and at most {MAX_HEADS} are allowed.")
    return off.only(head for head, factor in factors(off, "The page").items() if factor != 1)


def parse_int(value: object, name: str) -> int:
    """A whole number from 0; InputError for anything else."""
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or len(text) > 7:
        raise InputError(f"The {name} must be a whole number of at most seven digits, not {text[:20]!r}.")
    return int(text)


def one_of(value: object, allowed: Sequence[str], name: str) -> str:
    """One of the words allowed; InputError for any other."""
    if value not in allowed:
        raise InputError(
            f"There is no {name} {str(value)[:20]!r}; there are {', '.join(filter(None, allowed))}."
        )
    return str(value)


def one_template(text: str) -> str:
    """A template on one line; InputError unless it is empty or holds {} once, where the class goes."""
    clean = line(text)
    if clean and clean.count("{}") != 1:
        raise InputError(f"The template {clean!r} must hold {{}} once, where the class goes.")
    return clean


def line(text: str) -> str:
    """One line of a visitor's text: control and invisible characters become spaces; InputError if long."""
    clean = re.sub(r"\s+", " ", _CONTROL.sub(" ", text)).strip()
    if len(clean) > MAX_TEXT_LENGTH:
        raise InputError(
            f"The text that begins {clean[:30]!r} has {len(clean)} characters; at most {MAX_TEXT_LENGTH} are "
            "allowed."
        )
    return clean


def texts(typed: str) -> tuple[str, ...]:
    """Texts typed one per line, or on one line separated by commas: clean, distinct, in the order typed.

    On one line, a text between quotation marks may hold commas.
    """
    if len(typed) > (most := MAX_TEXTS * (MAX_TEXT_LENGTH + 2)):  # before a reader with limits of its own
        raise InputError(f"The texts have {len(typed):,} characters; at most {most:,} are allowed.")
    rows = [row for row in typed.splitlines() if row.strip()]
    if len(rows) == 1:
        rows = next(csv.reader(rows, skipinitialspace=True))
    found = tuple(dict.fromkeys(clean for row in rows if (clean := line(row))))
    if len(found) > MAX_TEXTS:
        raise InputError(f"There are {len(found)} texts; at most {MAX_TEXTS} are allowed.")
    return found
