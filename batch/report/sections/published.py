"""The published part of the report: every table and figure of the study beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan

import pandas as pd

from batch.report.document import Block, table
from batch.report.sections.agreement import agreement_blocks, plain
from ccs.measures.stats import UNKNOWN, Estimate
from ccs.paper import figures as paper
from ccs.replication.comparison import TABLES, Compared, claims, compare
from ccs.results import Results

Models = Mapping[str, Results]


def compared(key: str, models: Models) -> list[Compared]:
    """Every number of one table or figure, beside its model's results."""
    return [compare(claim, models.get(claim.model)) for claim in claims(key)]


def summary(models: Models) -> pd.DataFrame:
    """By table and figure, and in all: how many printed numbers there are, were measured, and agree."""
    rows = []
    for key in TABLES:
        found, printed = compared(key, models), paper.table(key)
        measured = [one for one in found if one.measured is not None]
        agree = sum(bool(one.agrees) for one in measured)
        row = {"": printed.number, "what": printed.title, "printed": len(found)}
        rows.append(row | {"measured": len(measured), "agree": agree})
    frame = pd.DataFrame(rows)
    totals = frame[["printed", "measured", "agree"]].sum().to_dict()
    frame.loc[len(frame)] = {"": "**All**", "what": "", **totals}
    return frame


def tables_and_figures(models: Models, agreement: pd.DataFrame | None) -> Iterator[Block]:
    """Sections for all tables, appendix B and figures; `agreement` is what table 4 is held against."""
    yield "## Tables of the study, published beside measured"
    for key in TABLES:
        if not key.startswith("figure"):
            yield from _section(key, compared(key, models))
        if key == "table3":
            yield from agreement_blocks(agreement)
    yield "## Figures of the study, published beside measured"
    for key in TABLES:
        if key.startswith("figure"):
            yield from _section(key, compared(key, models))


def _section(key: str, found: Sequence[Compared]) -> Iterator[Block]:
    printed = paper.table(key)
    yield f"### {printed.number}. {printed.title}"
    unit = {"%": "Percent.", "sum": "Natural logarithm; lower is better."}.get(printed.unit, "")
    if note := f"{unit} {printed.note}".strip():
        yield note
    measured = {one.claim.model for one in found if one.measured is not None}
    beside = [one for one in found if one.claim.model in measured]
    if beside:
        yield table(_beside(beside))
    rows = {one.claim.row for one in beside}
    if rows != set(printed.rows):
        alone = [[row, *map(plain, values)] for row, values in printed.rows.items() if row not in rows]
        yield "*Published; nothing was measured.*"
        yield table(pd.DataFrame(alone, columns=["", *printed.columns]))


def _beside(found: Sequence[Compared]) -> pd.DataFrame:
    rows = []
    for one in found:
        claim, digits = one.claim, one.claim.digits
        value, around = _figures(one.measured, digits)
        row = {
            "": claim.row,
            "column": claim.column,
            "published": f"{claim.published:.{digits}f}",
            "measured": value,
            "95% interval": around,
            "difference": "–" if one.difference is None else f"{one.difference:+.{digits}f}",
            "agrees": {True: "✓", False: "✗", None: "–"}[one.agrees],
            "answered by": _answered_by(one),
        }
        if any(other.open_clip is not None for other in found):
            row["open_clip"] = plain(one.open_clip)
        if any(other.standard is not None for other in found):
            row["standard set"] = _figures(one.standard, digits)[0]
        if claim.measure == "bias":
            row["correct metric"] = " ".join(_figures(one.correct, digits))
            level = one.correct.chance if one.correct else UNKNOWN
            row["chance"] = "–" if isnan(level.value) else " ".join(_figures(level, 1))
        rows.append(row)
    return pd.DataFrame(rows)


def _figures(found: Estimate | None, digits: int) -> tuple[str, str]:
    """The value and its interval, or dashes."""
    if found is None or isnan(found.value):
        return "–", "–"
    around = "–" if isnan(found.low) else f"[{found.low:.{digits}f}, {found.high:.{digits}f}]"
    return f"{found.value:.{digits}f}", around


def _answered_by(one: Compared) -> str:
    measured = one.measured
    if measured is None:
        return "–"
    parts = (measured.plan, measured.dataset or one.claim.dataset, measured.mode)
    return ", ".join(filter(None, parts)) if measured.plan else "scores"


def holes(models: Models) -> list[Block]:
    """What was asked for and could not be computed."""
    found = [
        {"asked for, not computed": f"{name}: {entry.get('name')}", "why": str(entry.get("reason"))}
        for name, results in models.items()
        for entry in results.manifest["absent"]
    ]
    return ["## Holes", table(pd.DataFrame(found))] if found else []
