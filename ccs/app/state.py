"""The screen as one frozen value, which the address holds, and checks of untrusted text."""

import csv
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import AfterValidator, Field, PlainValidator, ValidationError
from pydantic.dataclasses import dataclass

from ccs.app.html import join_texts
from ccs.errors import InputError
from ccs.heads import TEXT, Head, HeadSet, Intervention, changes

NO_HEADS = HeadSet()
OWN = "own:"  # begins the name of a visitor's own gallery
MAX_TEXTS = 200
MAX_TEXT_LENGTH = 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060\ufeff\ud800-\udfff]")


def parse_ablation(text: str) -> HeadSet:
    """Read heads that are ablated, scaled by a factor, or edited; those at a factor of 1 are left out.

    Raises:
        InputError: For any other kind of intervention.
    """
    heads = Intervention.parse(text)
    for head, change in changes(heads):
        replaced = change.replacement and (not change.attribute or head.encoder == TEXT)
        if replaced or len(change.attribute) > MAX_TEXT_LENGTH:
            raise InputError(f"{head}{str(change)[:40]} is no factor (=0.3) or edit (=erase:gender).")
    return heads.subset(h for h, change in changes(heads) if change.replacement or change.factor != 1)


def require_choice(value: str, allowed: Collection[str], name: str) -> None:
    """Raise InputError if a value isn't allowed.

    Args:
        value: Untrusted text.
        allowed: The values to choose from.
        name: A noun for the error message, such as "view".
    """
    if value not in allowed:
        choices = ", ".join(filter(None, allowed))
        raise InputError(f"There is no {name} {value[:20]!r}; choose from {choices}.")


def describe_problem(error: ValidationError) -> str:
    """Return the first problem of a validation as a sentence."""
    problem = error.errors()[0]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return str(cause)
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}; got {str(problem['input'])[:30]!r}."


def parse_template(text: str) -> str:
    """Return a template on one line; InputError unless it is empty or holds {} once."""
    clean = clean_line(text)
    if clean and clean.count("{}") != 1:
        raise InputError(f"The template {clean!r} must hold {{}} once, where the class goes.")
    return clean


def clean_line(text: str) -> str:
    """Return untrusted text on one line, without control and invisible characters; InputError if too long.

    Joiners stay: Persian words and compound emoji need them.
    """
    clean = re.sub(r"\s+", " ", _CONTROL.sub(" ", text)).strip()
    if len(clean) > MAX_TEXT_LENGTH:
        raise InputError(f"{clean[:30]!r}… has {len(clean)} characters, more than {MAX_TEXT_LENGTH}.")
    return clean


def split_texts(typed: str) -> tuple[str, ...]:
    """Split texts typed one per line, or on one line separated by commas: clean, distinct, in order.

    On one line, a text between quotation marks may hold commas.
    """
    if len(typed) > (longest := MAX_TEXTS * (MAX_TEXT_LENGTH + 2)):  # before csv, which has its own limits
        raise InputError(f"The texts have {len(typed):,} characters; at most {longest:,} are allowed.")
    rows = [row for row in typed.splitlines() if row.strip()]
    if len(rows) == 1:
        rows = next(csv.reader(rows, skipinitialspace=True))
    texts = tuple(dict.fromkeys(clean for row in rows if (clean := clean_line(row))))
    if len(texts) > MAX_TEXTS:
        raise InputError(f"There are {len(texts)} texts; at most {MAX_TEXTS} are allowed.")
    return texts


def _of_text(read: Callable[[str], Any]) -> PlainValidator:
    """Return a validator that reads texts and passes other values on."""
    return PlainValidator(lambda value: read(value) if isinstance(value, str) else value)


Line = Annotated[str, AfterValidator(clean_line)]
Number = Annotated[int, Field(ge=0, lt=10**7)]
Texts = Annotated[tuple[str, ...], _of_text(split_texts)]


@dataclass(frozen=True)
class State:
    """One screen without the images that a visitor uploads, which never leave the session.

    Attributes:
        tab: The view.
        model: The model's name.
        encoder: The encoder whose heads the grid shows, "L" of images or "T" of texts.
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

    tab: Literal["start", "heads", "classify", "bias", "paradox", "about"] = "heads"
    model: Line = ""
    encoder: Literal["L", "T"] = "L"
    ablate: Annotated[HeadSet, _of_text(parse_ablation)] = NO_HEADS
    head: Annotated[Head | None, _of_text(Head.parse)] = None
    text: Number = 0
    find: Line = ""
    example: Line = ""
    images: Line = ""
    classes: Texts = ()
    template: Annotated[str, AfterValidator(parse_template)] = ""
    occupations: Texts = ()
    gallery: Line = ""
    attribute: Line = ""
    k: Number = 0
    row: Number = 0
    quality: Line = ""
    analysis: Line = ""

    def query(self) -> str:
        """Return the address's query, without the fields that have their default."""
        fields = {name: value for name, value in vars(self).items() if value not in (None, _DEFAULT[name])}
        if self.gallery.startswith(OWN):
            fields["gallery"] = OWN  # the rest of the name gives access
        return urlencode({n: join_texts(v) if isinstance(v, tuple) else v for n, v in fields.items()})


_DEFAULT = vars(State())
