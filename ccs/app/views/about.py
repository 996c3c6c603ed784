"""The view About: how the results were made, who judged, which parts are simplified, and how to cite."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pandas as pd
from markupsafe import Markup

from ccs.app.html import program, render
from ccs.app.services.records import ModelRecords
from ccs.app.session import Screen
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, run_lines
from ccs.metrics import agreement
from ccs.model.loading.sources import find
from ccs.model.model import embedded

DRAWS = 400
TEXT_KEY = ["layer", "head", "rank"]  # the columns that name a text


def render_about(screen: Screen, complete: bool = True) -> Markup:
    """Return the view: the manifest of a model's run, its judges, and what is known of the model."""
    records = screen.records
    return render(
        "about.html",
        records=records,
        source=screen.app.collection.source,
        architecture=find(records.model).architecture if records.model in embedded() else "",
        heads=screen.heads,
        figures=[*judge_figures(records), _manifest(screen)] if records.manifest else [],
        known=claims.known(screen.state.model),
        counts=claims.counts,
    )


def _manifest(screen: Screen) -> Figure:
    records = screen.records
    rows = [[entry, json.dumps(value)] for entry, value in records.manifest.items()]
    values = {"source": screen.app.collection.source, "records": records}
    return Figure("manifest", ["entry", "value"], rows, values, settings=records.origin)


def judge_figures(records: ModelRecords) -> Iterator[Figure]:
    """Yield figures of the judges' verdicts and of their agreement; none without verdicts."""
    table = records.judgments()
    if not len(table):
        return
    verdicts = table.pivot(index=TEXT_KEY, columns="judge", values="verdict").astype(object)
    entries = {str(judge["name"]): judge for judge in records.manifest.get("judges", ())}
    rows = []
    for judge, column in verdicts.items():
        scored, entry = column.dropna(), entries.get(str(judge), {})
        kind = "tag-based, no LLM" if entry.get("stand_in") else "LLM"
        kind += f", in place of {entry['instead_of']}" if "instead_of" in entry else ""
        causes = Counter(table[(table["judge"] == judge) & (table["cause"] != "")]["cause"]).most_common()
        listed = ", ".join(f"{cause} {n}" for cause, n in causes) or "–"
        yes = float(scored.astype(float).mean())
        rows.append([judge, kind, len(column), yes, 1 - len(scored) / len(column), listed])
    columns = ["judge", "kind", "texts", "yes", "unscored", "causes"]
    yield Figure("judges", columns, rows, settings=records.origin)
    panel = {
        str(judge): [None if pd.isna(verdict) else bool(verdict) for verdict in column]
        for judge, column in verdicts.items()
    }
    if pairs := agreement.judge_pairs(panel):
        rows = [[pair.left, pair.right, pair.n, pair.same, pair.cohen_kappa] for pair in pairs]
        alpha = agreement.krippendorff_alpha(list(panel.values()), draws=DRAWS)
        columns = ["left", "right", "texts", "same", "kappa"]
        yield Figure("agreement", columns, rows, {"alpha": alpha}, settings=records.origin)


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
