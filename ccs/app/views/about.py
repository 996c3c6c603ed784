"""The view About: how the results were made, who judged, which parts are simplified, and how to cite."""

import json
from typing import Any

import pandas as pd

from ccs.app.session import Screen
from ccs.app.views.base import Figure, View, run_lines


def show_about(screen: Screen) -> dict[str, Any]:
    """Return the manifest of a model's run."""
    records, source = screen.records, screen.app.collection.source
    entries = [(entry, json.dumps(value)) for entry, value in records.manifest.items()]
    rows = pd.DataFrame(entries, columns=["entry", "value"])
    return {"figure": Figure.of(screen, "manifest", rows, records.origin, source=source, records=records)}


def about_program(screen: Screen) -> str:
    """Return a program that prints the run's manifest."""
    return run_lines(screen) + "print(dict(run.manifest))\n"


VIEW = View("about", show_about, about_program)
