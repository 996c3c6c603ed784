"""The view About this run: where every figure comes from, what is a stand-in, and how to cite it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ccs.errors import InputError
from ccs.model.model import embedded
from ccs.model.sources import find
from ccs.ui.html import render
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views.base import Figure, View
from ccs.ui.views.judges import run_program


class About(View):
    """The manifest of a model's run."""

    name = "about"
    title = "About"
    purpose = "How the figures came about: texts, images, seeds, versions, licenses."

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        records = app.shown(session.state)
        return render(
            "views/about.html",
            model=records.model,
            source=app.collection.source,
            architecture=find(records.model).architecture if records.model in embedded() else "",
            heads=app.heads(records.model),
            figures=self.figures(app, session) if records.manifest else [],
            stand_in_judges=[str(j["name"]) for j in records.manifest.get("judges", ()) if j.get("stand_in")],
            labeler=records.manifest.get("labeler", {}),
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        records = app.shown(session.state)
        manifest = records.manifest
        if not manifest:
            raise InputError(f"There are no tables for {records.model}.")
        return [
            Figure(
                "manifest",
                f"The run behind {records.model}",
                "as named",
                ["entry", "value"],
                flat(manifest),
                {
                    "source": app.collection.source,
                    "manifest": manifest,
                    "worst": max(_numbers(manifest.get("largest_error")), default=None),
                    "seconds": sum(_numbers(manifest.get("measured", {}).get("seconds"))),
                },
            )
        ]

    def snippet(self, app: App, session: Session) -> str:
        return run_program(app, session.state)


def _numbers(values: Any) -> list[float]:
    found = values.values() if isinstance(values, Mapping) else ()
    return [value for value in found if isinstance(value, int | float)]


def flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """A manifest as (entry, value) rows; lists of names on one line, records one row a field."""
    if isinstance(value, Mapping):
        entries = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        entries = [
            (str(inner.get("name", number) if isinstance(inner, Mapping) else number), inner)
            for number, inner in enumerate(value, 1)
        ]
    else:
        return [(name, _plain(value))]
    return [row for key, inner in entries for row in flat(inner, f"{name}.{key}" if name else key)]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_plain(one) for one in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(one)}" for key, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None or value == "" else str(value)
