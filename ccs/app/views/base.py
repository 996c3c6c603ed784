"""`View`, a tab, and `Figure`, a part of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pandas as pd
from markupsafe import Markup

from ccs import results
from ccs.app.html import program, render
from ccs.app.jobs import NotReady
from ccs.app.session import Screen
from ccs.errors import InputError
from ccs.files import inert

Made = TypeVar("Made")
Values = Mapping[str, Any]
_HUB_ADDRESS = r"hf://datasets/[\w.-]+/[\w.-]+(@[\w./-]+)?"


@dataclass(frozen=True)
class Figure:
    """A table with a template that explains and draws it, and CSV for its button.

    Attributes:
        name: Name of the template in figures/, which has the heading.
        rows: Everything that the figure shows.
        settings: Settings behind the rows.
        values: Further values for the template: `head`, the head that the figure is about, and others.
    """

    name: str
    rows: pd.DataFrame
    settings: Values
    values: Values

    @classmethod
    def of(cls, screen: Screen, name: str, rows: pd.DataFrame, settings: Values, **values: Any) -> Figure:
        """Return a figure of a screen.

        Args:
            screen: The screen, with settings.
            name: Name of the template.
            rows: Everything that the figure shows.
            settings: Settings that differ from the screen's, or that it doesn't have.
            **values: Further values for the template.
        """
        return cls(name, rows, {**screen.settings, **settings}, values)

    def __html__(self) -> str:
        return render(f"figures/{self.name}.html", figure=self, **self.values)

    @property
    def shown_name(self) -> str:
        """Its name on the page, with the head that it is about."""
        return f"{self.name}-{head}" if (head := self.values.get("head")) else self.name

    def csv(self) -> str:
        """Return the rows as CSV, each with the settings that no column holds."""
        settings = {name: inert(value) for name, value in self.settings.items() if name not in self.rows}
        texts = self.rows.select_dtypes(exclude="number")
        return self.rows.assign(**texts.map(inert), **settings).to_csv(index=False)


def empty(title: str, text: str) -> Markup:
    """Return what stands in the place of a figure that can't be shown.

    Args:
        title: The name of the missing figure.
        text: The reason, and what to do about it.
    """
    return render("empty.html", title=title, text=text)


def figures_in(value: object) -> Iterator[Figure]:
    """Yield the figures among the values of a view's template."""
    if isinstance(value, Figure):
        yield value
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from figures_in(part)


def if_ready(make: Callable[[], Made], title: str = "Nothing to show") -> Made | Markup:
    """Return what a function makes, or the reason why it can't be made (yet).

    Args:
        make: The function. It may raise NotReady and InputError.
        title: What is missing if it raises InputError.
    """
    try:
        return make()
    except NotReady as step:
        return empty(str(step), "The results follow in a moment.")
    except InputError as error:
        return empty(title, str(error))


class View(NamedTuple):
    """One tab.

    Attributes:
        name: The view's name in links.
        values: Returns what its template shows of a screen. It publishes its progress with `Screen.tell`,
            which raises NotReady if only the parts that need no long work are wanted.
        program: Returns a program that prints the screen's numbers; InputError if there are none.
    """

    name: str
    values: Callable[[Screen], dict[str, Any]]
    program: Callable[[Screen], str]


def run_lines(screen: Screen) -> str:
    """Return lines of a program that read the screen's tables as `run`; InputError if there are none.

    Tables that were computed here are named by the folder in which they are downloaded.
    """
    collection, model, tables = screen.app.collection, screen.state.model, screen.records
    if not tables.manifest:
        raise InputError(f"There are no tables for {model}.")
    here = tables.folder.name if screen.state.analysis else ""
    hub, folder = re.search(_HUB_ADDRESS, collection.source), tables.folder.parent
    source = hub[0] if hub else "" if folder == results.PRECOMPUTED else str(folder)
    return program("run", model=model, source=source, computed_here=here)
