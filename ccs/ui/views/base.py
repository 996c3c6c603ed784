"""`View`, which a screen is written as, and `Figure`, which it is made of."""

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
from ccs.errors import InputError
from ccs.files import inert
from ccs.model.model import Model
from ccs.ui.html import program, render
from ccs.ui.session import App, Screen
from ccs.ui.state import State

Made = TypeVar("Made")
MADE_WITH: ContextVar[Mapping[str, Any]] = ContextVar("MADE_WITH", default=MappingProxyType({}))
"""Of the screen that is being rendered: what every row of a figure's CSV says besides, unless the figure says
what else it was made with.
"""
_ADDRESS = r"hf://datasets/[\w.-]+/[\w.-]+(@[\w./-]+)?"


@dataclass(frozen=True)
class Figure:
    """Data with a title and a unit: HTML where a template prints it, and CSV for its button.

    name: also of the template below figures/ that says what the figure is and draws it. of: the head that it
    is of, part of its name on the page. rows: one value per column each, all that the figure tells. shown:
    what the template needs besides. made: what it was made with, where that is not the screen's `MADE_WITH`:
    the heads that are off in it, its gallery, ...
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

    def csv(self) -> str:
        """The rows as CSV, each after what it was made with, unless a column says that."""
        every = {**MADE_WITH.get(), **self.made}
        made = {name: value for name, value in every.items() if name not in self.columns}
        rows = [[*made, *self.columns], *([*made.values(), *row] for row in self.rows)]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([map(inert, row) for row in rows])
        return out.getvalue()


@dataclass(frozen=True)
class Empty:
    """The place of a figure that cannot be shown yet."""

    title: str
    text: str

    def __html__(self) -> str:
        return render("empty.html", **vars(self))


def of_model(screen: Screen, complete: bool, make: Callable[[Model], Made | Empty]) -> Made | Empty:
    """Something made of a model, or what stands in its place: while the model is still being loaded and the
    screen need not be `complete`, and where the model cannot be had or nothing can be made of it.
    """
    if not complete and not screen.has_model:
        return Empty(f"{screen.state.model} is being loaded", "What it does to images follows in a moment.")
    try:
        return make(screen.model)
    except InputError as error:
        return Empty("Nothing to show", str(error))


class View(ABC):
    """One screen. `name` is what links and actions call it."""

    name: ClassVar[str]
    title: ClassVar[str]
    purpose: ClassVar[str]

    def models(self, state: State) -> tuple[str, ...]:
        """Names of the models that compute for this screen."""
        return (state.model,)

    def pending(self, screen: Screen) -> bool:
        """True if a part of the screen should be shown while `prepare` goes on."""
        return False

    def news(self, screen: Screen) -> Hashable:
        """What can be shown of the screen while `prepare` goes on; where it changes, the screen is sent."""
        return None

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        """The long work before the screen is complete: yields (share done, what is being done)."""
        yield from ()

    @abstractmethod
    def render(self, screen: Screen, complete: bool = True) -> Markup:
        """The screen as HTML. complete: False for what can be shown at once, without long work."""

    @abstractmethod
    def snippet(self, screen: Screen) -> str:
        """A program that prints what the screen shows; InputError where there is nothing to print."""


def run_lines(app: App, state: State) -> str:
    """Lines of a program that read the tables shown as `run`; InputError where there are none.

    Tables that were made here are named by the folder in which they are downloaded.
    """
    model, found = state.model, app.shown(state).results
    if found is None:
        raise InputError(f"There are no tables for {model}.")
    made = found is not app.collection.models.get(model)
    hub = None if made else re.search(_ADDRESS, app.collection.source)
    shipped = hub or found.folder.parent == results.PRECOMPUTED
    folder = "" if shipped else found.folder.name if made else str(found.folder)
    return program("run", model=model, address=hub and hub[0], folder=folder, made=made)
