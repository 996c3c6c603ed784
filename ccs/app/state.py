"""The screen as one frozen value, which the address holds, and checks of untrusted text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from ccs.app.html import join_texts
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, Head, HeadSet, Intervention, changes

NO_HEADS = HeadSet()
OWN = "own:"  # begins the name of a visitor's own gallery
MAX_TEXTS = 200
MAX_TEXT_LENGTH = 200
MAX_HEADS = 1024
MAX_QUERY = 12_000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class State:
    """One screen without the images that a visitor uploads, which never leave the session.

    Attributes:
        tab: The view.
        model: The model's name.
        encoder: The encoder whose heads the grid shows, `IMAGE` or `TEXT`.
        ablate: The heads of both encoders that are turned off, scaled, or edited (`parse_ablation`).
        head: The head in the panel of the view Heads.
        text: The number of the head's text that images are ranked by.
        find: The text whose heads are searched for.
        example: The example images, such as `occupations:3`.
        images: OWN if the visitor's images are shown, which no link holds.
        classes: The classes of the view Classify, "" for the example's own.
        template: The template of the view Classify, with `{}` where the class goes.
        occupations, gallery, attribute: The choices of the view Bias.
        k: The cut-off of the view Bias, 0 for the gallery's own.
        row: The number of the occupation whose images are shown.
        quality: The accuracy dataset of the view Paradox, "" for the mean of all.
        analysis: The key of tables computed here (`services.analyses`), shown instead of the model's own.
    """

    tab: str = "heads"
    model: str = ""
    encoder: str = IMAGE
    ablate: HeadSet = NO_HEADS
    head: Head | None = None
    text: int = 0
    find: str = ""
    example: str = ""
    images: str = ""
    classes: tuple[str, ...] = ()
    template: str = ""
    occupations: tuple[str, ...] = ()
    gallery: str = ""
    attribute: str = ""
    k: int = 0
    row: int = 0
    quality: str = ""
    analysis: str = ""

    def query(self) -> str:
        """Return the address's query, without the fields that have their default."""
        written = {}
        for name, default in vars(_DEFAULT).items():
            value = getattr(self, name)
            if value is None or value == default:
                continue
            if name == "gallery" and value.startswith(OWN):
                value = OWN  # the images are the visitor's alone
            written[name] = join_texts(value) if name in _LISTS else str(value)
        return urlencode(written)


_DEFAULT = State()
_LISTS = ("classes", "occupations")


def from_query(query: Mapping[str, str]) -> tuple[State, list[str]]:
    """Read the state that an address names, without checking that there is such a view, model, or head.

    Returns:
        The state, and a sentence for each part of the address that could not be used.
    """
    state, problems = State(), list[str]()
    for name, text in query.items():
        if name not in vars(_DEFAULT):
            continue
        try:
            state = replace(state, **{name: _read(name, str(text))})
        except InputError as error:
            problems.append(f"The link's part {name!r} was left out: {error}")
    return state, problems


def _read(name: str, text: str) -> Any:
    if len(text) > MAX_QUERY:
        raise InputError(f"it is longer than {MAX_QUERY} characters.")
    if name == "ablate":
        return parse_ablation(text)
    if name == "head":
        return Head.parse(text)
    if name in _LISTS:
        return split_texts(text)
    if name in ("k", "text", "row"):
        return parse_int(text, name)
    return clean_line(text)


def parse_ablation(text: str) -> HeadSet:
    """Read heads that are ablated, scaled by a factor, or edited; those at a factor of 1 are left out.

    Raises:
        InputError: For any other kind of intervention, and for more than `MAX_HEADS` heads.
    """
    heads = Intervention.parse(text)
    if len(heads) > MAX_HEADS:
        raise InputError(f"it names {len(heads)} heads and at most {MAX_HEADS} are allowed.")
    for head, change in changes(heads):
        replaced = change.replacement and (not change.attribute or head.encoder == TEXT)
        if replaced or len(change.attribute) > MAX_TEXT_LENGTH:
            raise InputError(
                f"The app takes factors, such as {head}=0.3, and edits of image heads, such as "
                f"L7.H1=erase:gender, not {str(change)[:40]!r} of {head}."
            )
    return heads.subset(h for h, change in changes(heads) if change.replacement or change.factor != 1)


def parse_int(value: object, name: str) -> int:
    """Read a whole number from 0 of at most seven digits.

    Args:
        value: Untrusted text, or a number.
        name: What the number is, for the error, such as "number of images".

    Raises:
        InputError: For anything else.
    """
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or len(text) > 7:
        raise InputError(f"The {name} must be a whole number of at most seven digits, not {text[:20]!r}.")
    return int(text)


def require_choice(value: str, allowed: Iterable[str], name: str) -> str:
    """Return the value if it is allowed.

    Args:
        value: Untrusted text.
        allowed: The values to choose from.
        name: What is chosen, for the error, such as "view".

    Raises:
        InputError: If the value isn't allowed.
    """
    choices = list(allowed)
    if value not in choices:
        raise InputError(
            f"There is no {name} {value[:20]!r}; choose from {', '.join(filter(None, choices))}."
        )
    return value


def parse_template(text: str) -> str:
    """Return a template on one line; InputError unless it is empty or holds {} once."""
    clean = clean_line(text)
    if clean and clean.count("{}") != 1:
        raise InputError(f"The template {clean!r} must hold {{}} once, where the class goes.")
    return clean


def clean_line(text: str) -> str:
    """Return untrusted text on one line, without control and invisible characters; InputError if too long."""
    clean = re.sub(r"\s+", " ", _CONTROL.sub(" ", text)).strip()
    if len(clean) > MAX_TEXT_LENGTH:
        raise InputError(
            f"The text that begins {clean[:30]!r} has {len(clean)} characters; at most {MAX_TEXT_LENGTH} are "
            "allowed."
        )
    return clean


def split_texts(typed: str) -> tuple[str, ...]:
    """Split texts typed one per line, or on one line separated by commas: clean, distinct, in order.

    On one line, a text between quotation marks may hold commas.
    """
    if len(typed) > (longest := MAX_TEXTS * (MAX_TEXT_LENGTH + 2)):  # before csv, which has limits of its own
        raise InputError(f"The texts have {len(typed):,} characters; at most {longest:,} are allowed.")
    rows = [row for row in typed.splitlines() if row.strip()]
    if len(rows) == 1:
        rows = next(csv.reader(rows, skipinitialspace=True))
    texts = tuple(dict.fromkeys(clean for row in rows if (clean := clean_line(row))))
    if len(texts) > MAX_TEXTS:
        raise InputError(f"There are {len(texts)} texts; at most {MAX_TEXTS} are allowed.")
    return texts
