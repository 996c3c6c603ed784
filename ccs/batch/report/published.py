"""The published part of the report: the study's tables, figures and sentences beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path

import pandas as pd
import pyarrow

from ccs import paper
from ccs.analysis.ablation_sets import PlanName
from ccs.batch.pages import Block, fill, in_brackets, p_text, table
from ccs.errors import InputError
from ccs.files import one_line
from ccs.metrics.stats import UNKNOWN, Estimate
from ccs.replication import TABLES, Compared, audit, claims, compare, overlaps
from ccs.replication.audit import Check
from ccs.results import Results, queries

Models = Mapping[str, Results]
AGREEMENT = Path("agreement.parquet")
METRICS = {
    "same": "same verdict",
    "cohen_kappa": "Cohen's kappa",
    "spearman_rho": "Spearman's rho",
    "kendall_tau": "Kendall's tau",
    "krippendorff_alpha": "Krippendorff's alpha",
}
COLUMNS = {"model", "people", "judges", "metric", "value", "low", "high", "n", "left_out", "published"}


def compared(key: str, models: Models) -> list[Compared]:
    """Every number of one table or figure, beside its model's results."""
    return [compare(claim, models.get(claim.model)) for claim in claims(key)]


def summary(models: Models) -> pd.DataFrame:
    """By table and figure, and in all: how many printed numbers there are, were measured, and agree."""
    rows = []
    for key in TABLES:
        cells, printed = compared(key, models), paper.table(key)
        measured = [cell for cell in cells if cell.measured is not None]
        agree = sum(bool(cell.agrees) for cell in measured)
        row = {"": printed.number, "what": printed.title, "printed": len(cells)}
        rows.append(row | {"measured": len(measured), "agree": agree})
    frame = pd.DataFrame(rows)
    totals = frame[["printed", "measured", "agree"]].sum().to_dict()
    frame.loc[len(frame)] = {"": "**All**", "what": "", **totals}
    return frame


def tables_and_figures(models: Models, agreement: pd.DataFrame | None) -> Iterator[Block]:
    """Sections for all tables, appendix B and figures; `agreement` is what table 4 is held against."""
    yield from heads_found_again(models)
    yield "## Tables of the study, published beside measured"
    for key in TABLES:
        if key == "figure2":
            yield "## Figures of the study, published beside measured"
        yield from _section(key, models)
        if key == "table3":
            yield from agreement_blocks(agreement)


def _section(key: str, models: Models) -> Iterator[Block]:
    printed, cells = paper.table(key), compared(key, models)
    yield f"### {printed.number}. {printed.title}"
    unit = {"%": "Percent.", "sum": "Natural logarithm; lower is better."}.get(printed.unit, "")
    if note := f"{unit} {printed.note}".strip():
        yield note
    measured = {cell.claim.model for cell in cells if cell.measured is not None}
    beside = [cell for cell in cells if cell.claim.model in measured]
    if beside:
        yield table(_beside(beside, models))
        yield from deciders({name: models[name] for name in models if name in measured})
    rows = {cell.claim.row for cell in beside}
    if rows != set(printed.rows):
        alone = [[row, *map(plain, values)] for row, values in printed.rows.items() if row not in rows]
        yield "*Published; nothing was measured.*"
        yield table(pd.DataFrame(alone, columns=["", *printed.columns]))


def _beside(cells: Sequence[Compared], models: Models) -> pd.DataFrame:
    """A row for each figure: with the heads that the study lists, and beside it with those found here."""
    listed = [cell.claim for cell in cells if _of_listed_heads(cell)]
    own = {claim: compare(claim, models[claim.model], found=True).measured for claim in listed}
    rows = []
    for cell in cells:
        claim, digits = cell.claim, cell.claim.digits
        value, around = _figures(cell.measured, digits)
        row = {
            "": claim.row,
            "column": claim.column,
            "published": f"{claim.published:.{digits}f}",
            "measured": value,
            "95% interval": around,
            "difference": "–" if cell.difference is None else f"{cell.difference:+.{digits}f}",
            "agrees": {True: "✓", False: "✗", None: "–"}[cell.agrees],
            "answered by": _answered_by(cell),
        }
        if any(another.open_clip is not None for another in cells):
            row["open_clip"] = plain(cell.open_clip)
        if any(another.standard is not None for another in cells):
            row["standard set"] = _figures(cell.standard, digits)[0]
        if claim.measure == "bias":
            row["correct metric"] = " ".join(_figures(cell.correct, digits))
            level = cell.correct.chance if cell.correct else UNKNOWN
            row["chance"] = "–" if isnan(level.value) else " ".join(_figures(level, 1))
        if own:
            row["with the heads found here"] = " ".join(dict.fromkeys(_figures(own.get(claim), digits)))
        rows.append(row)
    return pd.DataFrame(rows)


def _of_listed_heads(cell: Compared) -> bool:
    if cell.measured is None or not cell.measured.plan:
        return False
    name = PlanName.parse(cell.measured.plan)
    return name.kind != name.base_kind


def _figures(figure: Estimate | None, digits: int) -> tuple[str, str]:
    """The value and its interval, or dashes."""
    if figure is None or isnan(figure.value):
        return "–", "–"
    around = "–" if isnan(figure.low) else f"[{figure.low:.{digits}f}, {figure.high:.{digits}f}]"
    return f"{figure.value:.{digits}f}", around


def _answered_by(cell: Compared) -> str:
    measured = cell.measured
    if measured is None:
        return "–"
    parts = (measured.plan, measured.dataset or cell.claim.dataset, measured.mode)
    return ", ".join(filter(None, parts)) if measured.plan else "scores"


def heads_found_again(models: Models) -> Iterator[Block]:
    """The overlap of the heads that the study lists with those found here, by level."""
    if by_level := overlaps(models):
        rows = [
            {"model": row.model, "level": row.level, "heads": str(row.heads), "printed": str(row.printed)}
            | {"found here": str(row.found), "both": str(row.both), "same label": str(row.alike)}
            | {"Jaccard": f"{row.jaccard:.2f}", "by chance": f"{row.expected:.2f}"}
            | {"p": p_text(row.p_value), "adjusted p": p_text(row.adjusted)}
            for row in by_level
        ]
        yield from fill("found_again", rows=rows)
        yield from deciders({one.name: models[one.name] for one in paper.models() if one.name in models})


def deciders(models: Models) -> Iterator[Block]:
    """Which language models labeled and judged: levels, labels and plans of heads found here rest on them."""
    by_said: dict[str, list[str]] = {}
    for name, model_results in models.items():
        if said := one_line(queries.decided_by(model_results.manifest)):
            by_said.setdefault(said, []).append(name)
    for said, names in by_said.items():
        whose = f" of {', '.join(names)}" if len(by_said) > 1 else ""
        yield f"*Heads found here{whose}: {said}.*"


# Table 4 ------------------------------------------------------------------------------------------------


def read_agreement(path: Path | None) -> pd.DataFrame | None:
    """The agreement in that file, by default AGREEMENT (None if it is not there). InputError for others."""
    if path is None and not AGREEMENT.exists():
        return None
    path = path or AGREEMENT
    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}; clip-ccs annotate import writes one.") from None
    except (OSError, ValueError, pyarrow.ArrowException):
        raise InputError(f"{path} is not a readable parquet file.") from None
    if not set(frame.columns) >= COLUMNS or not set(frame["metric"]) <= set(METRICS):
        raise InputError(f"{path} is not what clip-ccs annotate import writes.")
    return frame


def agreement_blocks(measured: pd.DataFrame | None) -> list[Block]:
    panel, alone = paper.table("table4"), paper.table("v1-table2")
    names = ["Cohen's kappa", "Spearman's rho", "Kendall's tau"]
    columns = ["", *names, *(f"{name} (GPT-4o alone)" for name in names)]
    rows = [[row, *map(plain, values), *map(plain, alone.rows[row])] for row, values in panel.rows.items()]
    beside = [] if measured is None else _people(measured)
    return fill("agreement", measured=beside, published=pd.DataFrame(rows, columns=columns))


def _people(measured: pd.DataFrame) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for (model, people, judges), some in measured.groupby(["model", "people", "judges"], sort=False):
        row = {"model": str(model), "people": str(people) or "–", "judges": str(judges) or "–"}
        row["pairs"] = str(int(some["n"].iloc[0]))
        for _, cell in some.iterrows():
            name = METRICS[cell["metric"]]
            row[name] = "–" if pd.isna(cell["value"]) else in_brackets(queries.estimate(cell), 2)
            if pd.notna(cell["published"]):
                row[f"{name}, published"] = f"{cell['published']:g}"
        rows.append(row)
    return rows


def plain(value: float | None) -> str:
    """A printed figure as it is, or a dash."""
    return "–" if value is None else f"{value:g}"


# Sentences ----------------------------------------------------------------------------------------------


def sentences(results: Mapping[str, Results], agreement: pd.DataFrame | None) -> list[Block]:
    """Each sentence of audit.toml beside the cells for it and against it; where `results` answer printed
    cells, the same checks over what was measured (with people's agreement) beside.
    """
    measured = audit.audit(audit.measured(results, agreement))
    found_here = audit.audit(audit.measured(results, agreement, found_heads=True))
    answered = any(check.of for check in measured)
    rows = []
    for printed, ours, own in zip(audit.audit(), measured, found_here, strict=True):
        row = {"sentence": printed.statement, "where": printed.source}
        row |= {"printed cells for it": supported(printed)}
        if answered:
            row["measured, printed heads"] = supported(ours)
            row["measured, heads found here"] = supported(own)
        against = "; ".join(printed.exceptions) or ("none" if printed.of else "–")
        rows.append({**row, "cells against it": against, "note": printed.note or "–"})
    return fill("sentences", rows=rows)


def supported(check: Check) -> str:
    """How many of its cells support a sentence."""
    return f"{check.holds} of {check.of}" if check.of else "–"


def holes(models: Models) -> list[Block]:
    """What was asked for and could not be computed."""
    rows = [
        {"asked for, not computed": f"{name}: {entry.get('name')}", "why": str(entry.get("reason"))}
        for name, results in models.items()
        for entry in results.manifest["absent"]
    ]
    return ["## Holes", table(pd.DataFrame(rows))] if rows else []
