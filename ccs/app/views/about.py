"""The view About: how the results were made, who judged, which parts are simplified, and how to cite."""

from __future__ import annotations

import json
from collections.abc import Iterator

from markupsafe import Markup

from ccs.app.html import program, render
from ccs.app.services.records import ModelRecords
from ccs.app.session import Screen
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, run_lines


def render_about(screen: Screen, complete: bool = True) -> Markup:
    """Return the view: the manifest of a model's run, its judges, and what is known of the model.

    Args:
        screen: The screen.
        complete: Has no effect, since this view needs no long work.
    """
    records = screen.records
    return render(
        "about.html",
        records=records,
        source=screen.app.collection.source,
        figures=[*judge_figures(records), _manifest(screen)] if records.manifest else [],
        known=claims.known(screen.state.model),
    )


def _manifest(screen: Screen) -> Figure:
    records = screen.records
    rows = [[entry, json.dumps(value)] for entry, value in records.manifest.items()]
    values = {"source": screen.app.collection.source, "records": records}
    return Figure("manifest", ["entry", "value"], rows, values, settings=records.origin)


def judge_figures(records: ModelRecords) -> Iterator[Figure]:
    """Yield a figure of the judges' verdicts; none without verdicts."""
    entries = {str(judge["name"]): judge for judge in records.manifest.get("judges", ())}
    rows = []
    for judge, table in records.judgments().groupby("judge") if len(records.judgments()) else ():
        verdicts, entry = table["verdict"].astype("boolean"), entries.get(str(judge), {})
        kind = "tag-based, no LLM" if entry.get("stand_in") else "LLM"
        kind += f", in place of {entry['instead_of']}" if "instead_of" in entry else ""
        rows.append([judge, kind, len(verdicts), float(verdicts.mean()), float(verdicts.isna().mean())])
    if rows:
        columns = ["judge", "kind", "texts", "yes", "unscored"]
        yield Figure("judges", columns, rows, settings=records.origin)


def about_program(screen: Screen) -> str:
    """Return a program that prints the judges' verdicts in total."""
    return run_lines(screen) + program("judges")


VIEW = View(
    "about",
    "About",
    "How the results were made: texts, images, judges, seeds, versions, and licenses.",
    render_about,
    about_program,
    needs_model=False,
)
