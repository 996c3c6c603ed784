"""The view Judges: who decided and how far they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pandas as pd
from markupsafe import Markup, escape

from ccs.errors import InputError
from ccs.measures import agreement
from ccs.ui.html import program
from ccs.ui.service.records import ModelRecords
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views.base import Empty, Figure, View, run_lines

Verdicts = dict[str, list[bool | None]]
DRAWS = 400
TEXT = ["layer", "head", "rank"]  # the columns that name a text


class Judges(View):
    """The panel of a run."""

    name = "judges"
    title = "Judges"
    purpose = "Who decided whether a text fits a concept, and how far they agree."

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        try:
            return Markup("").join(self.figures(app, session))
        except InputError as error:
            return escape(Empty("No judgments", str(error)))

    def figures(self, app: App, session: Session) -> list[Figure]:
        records = app.shown(session.state)
        table = records.judgments()
        if not len(table):
            raise InputError(f"There are no judgments of {records.model}.")
        said = verdicts(table)
        return [_panel(records, table, said), *_agreement(said)]

    def snippet(self, app: App, session: Session) -> str:
        return run_program(app, session.state)


def run_program(app: App, state: State) -> str:
    """A program that prints what each judge said, and where the tables come from."""
    return run_lines(app, state) + program("judges")


def verdicts(table: pd.DataFrame) -> Verdicts:
    """Judge -> its verdict of every text, in the same order; None where unscored or not asked."""
    wide = table.pivot(index=TEXT, columns="judge", values="verdict")
    return {str(judge): [None if pd.isna(v) else bool(v) for v in wide[judge]] for judge in wide}


def _panel(records: ModelRecords, table: pd.DataFrame, panel: Verdicts) -> Figure:
    about = {str(judge["name"]): judge for judge in records.manifest.get("judges", ())}
    rows = []
    for name, said in panel.items():
        scored = [verdict for verdict in said if verdict is not None]
        yes = sum(scored) / len(scored) if scored else float("nan")
        failed = table[(table["judge"] == name) & (table["cause"] != "")]["cause"]
        causes = ", ".join(f"{cause} {n}" for cause, n in Counter(map(str, failed)).most_common())
        stand_in = about.get(name, {}).get("stand_in")
        kind = "stand-in, no language model" if stand_in else "language model"
        rows.append([name, kind, len(said), yes, 1 - len(scored) / len(said), causes or "–"])
    columns = ["judge", "kind", "texts", "yes", "unscored", "causes"]
    return Figure("judges", "The judges of this run", "share of texts, %", columns, rows)


def _agreement(panel: Verdicts) -> Iterator[Figure]:
    pairs = agreement.judge_pairs(panel)
    if pairs:
        yield Figure(
            "agreement",
            "How far they agree",
            "share of texts; coefficient",
            ["left", "right", "texts", "same", "kappa"],
            [[p.left, p.right, p.n, p.same, p.cohen_kappa] for p in pairs],
            {"alpha": agreement.krippendorff_alpha(list(panel.values()), draws=DRAWS)},
        )
