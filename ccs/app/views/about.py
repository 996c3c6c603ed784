"""The view About: how the results were made, who judged, which parts are simplified, and how to cite."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pandas as pd
from markupsafe import Markup

from ccs.app.html import program, render
from ccs.app.services.records import ModelRecords
from ccs.app.session import App, Screen
from ccs.app.state import State
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, run_lines
from ccs.metrics import agreement
from ccs.model.loading.sources import find
from ccs.model.model import embedded

Verdicts = dict[str, list[bool | None]]
DRAWS = 400
TEXT = ["layer", "head", "rank"]  # the columns that name a text


class About(View):
    """The manifest of a model's run, and its judges."""

    name = "about"
    title = "About"
    purpose = "How the results were made: texts, images, judges, seeds, versions, and licenses."

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        records = screen.records
        return render(
            "about.html",
            model=records.model,
            source=screen.app.collection.source,
            architecture=find(records.model).architecture if records.model in embedded() else "",
            heads=screen.heads,
            figures=[*judges(records), _manifest(screen.app, records)] if records.manifest else [],
            stand_in_judges=[str(j["name"]) for j in records.manifest.get("judges", ()) if j.get("stand_in")],
            known=claims.known(screen.state.model),
            counts=claims.counts,
            labeler=records.manifest.get("labeler", {}),
        )

    def program(self, screen: Screen) -> str:
        return run_lines(screen.app, screen.state) + program("judges")


def _manifest(app: App, records: ModelRecords) -> Figure:
    rows = [[entry, json.dumps(value)] for entry, value in records.manifest.items()]
    shown = {"source": app.collection.source, "manifest": records.manifest}
    title, columns = f"The run behind {records.model}", ["entry", "value"]
    return Figure("manifest", title, "as named", columns, rows, shown, made=records.made)


def judges(records: ModelRecords) -> Iterator[Figure]:
    """Who decided whether a text fits a concept, and how far they agree; nothing where nobody was asked."""
    table = records.judgments()
    if not len(table):
        return
    panel = verdicts(table)
    about = {str(judge["name"]): judge for judge in records.manifest.get("judges", ())}
    rows = []
    for name, said in panel.items():
        scored = [verdict for verdict in said if verdict is not None]
        yes = sum(scored) / len(scored) if scored else float("nan")
        failed = table[(table["judge"] == name) & (table["cause"] != "")]["cause"]
        causes = ", ".join(f"{cause} {n}" for cause, n in Counter(map(str, failed)).most_common())
        entry = about.get(name, {})
        kind = "tag-based, no LLM" if entry.get("stand_in") else "LLM"
        kind += f", in place of {entry['instead_of']}" if "instead_of" in entry else ""
        rows.append([name, kind, len(said), yes, 1 - len(scored) / len(said), causes or "–"])
    columns = ["judge", "kind", "texts", "yes", "unscored", "causes"]
    unit = "share of texts, %"
    yield Figure("judges", "The judges of this run", unit, columns, rows, made=records.made)
    if pairs := agreement.judge_pairs(panel):
        rows = [[pair.left, pair.right, pair.n, pair.same, pair.cohen_kappa] for pair in pairs]
        alpha = agreement.krippendorff_alpha(list(panel.values()), draws=DRAWS)
        unit, columns = "share of texts; coefficient", ["left", "right", "texts", "same", "kappa"]
        shown = {"alpha": alpha}
        yield Figure("agreement", "How far they agree", unit, columns, rows, shown, made=records.made)


def verdicts(table: pd.DataFrame) -> Verdicts:
    """Judge -> its verdict of every text, in the same order; None where unscored or not asked."""
    wide = table.pivot(index=TEXT, columns="judge", values="verdict")
    return {str(judge): [None if pd.isna(v) else bool(v) for v in wide[judge]] for judge in wide}
