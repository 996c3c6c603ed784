"""`View`, a tab, and `Figure`, a part of one."""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from markupsafe import Markup

from ccs import results
from ccs.app.html import program, render
from ccs.app.session import App, Screen
from ccs.app.state import State
from ccs.errors import InputError
from ccs.files import inert
from ccs.model.model import Model

Made = TypeVar("Made")
MADE_WITH: ContextVar[Mapping[str, Any]] = ContextVar("MADE_WITH", default=MappingProxyType({}))
"""What the screen that is being rendered was made with: columns of every figure's CSV."""
_ADDRESS = r"hf://datasets/[\w.-]+/[\w.-]+(@[\w./-]+)?"


@dataclass(frozen=True)
class Figure:
    """Data with a title and a unit: HTML in a template, and CSV for its button.

    Attributes:
        name: also of the template below figures/ that explains and draws the figure.
        title, unit: its heading.
        columns, rows: a value per column; everything that the figure shows.
        shown: what the template needs besides.
        of: the head that it is about, part of its name on the page.
        made: what it was made with, if that isn't the screen's `MADE_WITH`: ablated heads, gallery, ...
    """

    name: str
    title: str
    unit: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    shown: Mapping[str, Any] = field(default_factory=dict)
    of: str = ""
    made: Mapping[str, Any] = field(default_factory=dict)

    def __html__(self) -> str:
        return render(f"figures/{self.name}.html", figure=self, **self.shown)

    def settings(self) -> dict[str, Any]:
        """Return what the figure was made with."""
        return {**MADE_WITH.get(), **self.made}

    def source(self) -> str:
        """Return what a saved or printed figure says of its making."""
        return " · ".join(f"{name}: {value}" for name, value in self.settings().items() if str(value))

    def csv(self) -> str:
        """Return the rows as CSV, each after the settings that no column holds."""
        made = {name: value for name, value in self.settings().items() if name not in self.columns}
        rows = [[*made, *self.columns], *([*made.values(), *row] for row in self.rows)]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([map(inert, row) for row in rows])
        return out.getvalue()


@dataclass(frozen=True)
class Empty:
    """The place of a figure that can't be shown yet."""

    title: str
    text: str

    def __html__(self) -> str:
        return render("empty.html", **vars(self))


def of_model(screen: Screen, complete: bool, make: Callable[[Model], Made | Empty]) -> Made | Empty:
    """Make something of the screen's model, or of its place if it isn't available.

    Args:
        screen: the screen.
        complete: False to wait for nothing.
        make: a function of the model; InputError if nothing can be made.
    """
    if not complete and not screen.has_model:
        return Empty(f"Loading {screen.state.model}", "The results follow in a moment.")
    try:
        return make(screen.model)
    except InputError as error:
        return Empty("Nothing to show", str(error))


class View(ABC):
    """One tab. `name` is its name in links."""

    name: ClassVar[str]
    title: ClassVar[str]
    purpose: ClassVar[str]

    def models(self, state: State) -> tuple[str, ...]:
        """Return the names of the models that compute for this screen."""
        return (state.model,)

    def pending(self, screen: Screen) -> bool:
        """Return True if a part of the screen should be shown while `prepare` works."""
        return False

    def news(self, screen: Screen) -> Hashable:
        """Return a value that changes if more of the screen can be shown while `prepare` works."""
        return None

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        """Do the long work of the screen: yields (share done, a phrase for what is being done)."""
        yield from ()

    @abstractmethod
    def render(self, screen: Screen, complete: bool = True) -> Markup:
        """Return the screen as HTML; with `complete` False, what can be shown without long work."""

    @abstractmethod
    def program(self, screen: Screen) -> str:
        """Return a program that prints what the screen shows; InputError if there is nothing to print."""


def run_lines(app: App, state: State) -> str:
    """Return lines of a program that read the tables shown as `run`; InputError if there are none.

    Tables that were computed here are named by the folder in which they are downloaded.
    """
    model, tables = state.model, app.shown_records(state).results
    if tables is None:
        raise InputError(f"There are no tables for {model}.")
    made = tables is not app.collection.models.get(model)
    hub = None if made else re.search(_ADDRESS, app.collection.source)
    bundled = hub or tables.folder.parent == results.PRECOMPUTED
    folder = "" if bundled else tables.folder.name if made else str(tables.folder)
    return program("run", model=model, address=hub and hub[0], folder=folder, made=made)
