"""The view About: how the results were made, who judged, which parts are simplified, and how to cite."""

from __future__ import annotations

import json

import pandas as pd
from markupsafe import Markup

from ccs.app.html import render
from ccs.app.session import Screen
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, run_lines


def render_about(screen: Screen) -> Markup:
    """Return the view: the manifest of a model's run, and what is known of the model."""
    records, source = screen.records, screen.app.collection.source
    entries = [(entry, json.dumps(value)) for entry, value in records.manifest.items()]
    rows = pd.DataFrame(entries, columns=["entry", "value"])
    values = {"source": source, "records": records}
    figure = Figure("manifest", rows, {**screen.settings, **records.origin}, values=values)
    return render(
        "about.html", records=records, source=source, figure=figure, known=claims.known(screen.state.model)
    )


def about_program(screen: Screen) -> str:
    """Return a program that prints the run's manifest."""
    return run_lines(screen) + "print(dict(run.manifest))\n"


VIEW = View(
    "about",
    "How the results were made: texts, images, judges, seeds, versions, and licenses.",
    render_about,
    about_program,
)
