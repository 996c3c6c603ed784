"""Effects of one head's absence: on the visitor's images now, and in the run's tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ccs.heads import ABLATIONS, Head, HeadSet
from ccs.model.model import Model
from ccs.results import queries
from ccs.ui.html import interval, signed
from ccs.ui.records import ModelRecords
from ccs.ui.session import Session
from ccs.ui.state import OUTPUTS, State
from ccs.ui.views import classify
from ccs.ui.views.base import Figure

COLUMNS = ("measure", "metric", "dataset", "factor", "value", "low", "high", "p_value", "q_value")


def one(state: State, head: Head) -> HeadSet:
    """This head alone switched off, with what takes its place on the screen."""
    return HeadSet([head], state.ablation or ABLATIONS[0])


def alone(session: Session, model: Model, head: Head) -> Figure:
    """The answers to the visitor's images without this head alone."""
    rows = classify.moves(session, model, one(session.state, head))
    return Figure(
        "alone",
        f"{head} alone switched off, on these images",
        "probability, %",
        ["image", "answer", "before", "after", "answer after", "similarity"],
        rows,
        {"outputs": OUTPUTS[session.state.ablation]},
        of=str(head),
    )


def over_sets(records: ModelRecords, head: Head) -> Figure | None:
    """The head's effects in the table of single heads; None where there are none."""
    if records.results is None:
        return None
    rows = queries.of_head(queries.head_effects(records.results, measure=None), head)
    return _effects(head, rows) if len(rows) else None


def _effects(head: Head, rows: pd.DataFrame) -> Figure:
    groups = rows.fillna({"factor": ""}).groupby(["metric", "dataset", "factor"], sort=True)
    measured = [
        (key, [_effect(part[part["measure"] == kind]) for kind in ("total effect", "direct effect")])
        for key, part in groups
    ]
    return Figure(
        "effects",
        f"{head} alone, over whole sets",
        "points for accuracy, natural log for MaxSkew",
        COLUMNS,
        _cells(rows),
        {"measured": measured},
        of=str(head),
    )


def _effect(rows: pd.DataFrame) -> tuple[str, float] | None:
    """An effect with its interval in words, and its q-value (NaN if none); None where it was not measured."""
    if not len(rows):
        return None
    row: Any = next(rows.itertuples())
    share = row.metric in ("top1", "top5") or "R@" in row.metric
    scale, digits = (100, 1) if share else (1, 3)
    value, low, high = (scale * nan(x) for x in (row.value, row.low, row.high))
    words = signed(value, digits) if low != low else interval(value, low, high, digits)
    return words, nan(row.q_value)


def _cells(rows: pd.DataFrame) -> list[tuple[object, ...]]:
    return list(rows[list(COLUMNS)].itertuples(index=False, name=None))


def nan(value: Any) -> float:
    """A cell as a number, NaN where it is empty."""
    return float("nan") if value is None or value is pd.NA else float(value)
