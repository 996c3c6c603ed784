"""Table 4: how far people agree with the judges, published beside what `batch.annotate import` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow

from batch.report.page import Block, Grid, Heading, Text
from batch.report.wording import in_brackets
from ccs import paper
from ccs.errors import InputError
from ccs.measures.stats import Estimate

FILE = Path("agreement.parquet")
METRICS = {
    "same": "same verdict",
    "cohen_kappa": "Cohen's kappa",
    "spearman_rho": "Spearman's rho",
    "kendall_tau": "Kendall's tau",
    "krippendorff_alpha": "Krippendorff's alpha",
}
COLUMNS = {"model", "people", "judges", "metric", "value", "low", "high", "n", "left_out", "published"}


def read(path: Path | None) -> pd.DataFrame | None:
    """The agreement that was written there (None: `agreement.parquet` of this folder, where it is).

    InputError for a file that is not there or is none of agreement.
    """
    if path is None and not FILE.exists():
        return None
    path = path or FILE
    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}; python -m batch.annotate import writes one.") from None
    except (OSError, ValueError, pyarrow.ArrowException):
        raise InputError(f"{path} is not a readable parquet file.") from None
    if not set(frame.columns) >= COLUMNS or not set(frame["metric"]) <= set(METRICS):
        raise InputError(f"{path} is not what python -m batch.annotate import writes.")
    return frame


def agreement_blocks(measured: pd.DataFrame | None) -> Iterator[Block]:
    """The section of table 4."""
    yield Heading(3, "Table 4. Agreement of people with language models")
    panel, alone = paper.table("table4"), paper.table("v1-table2")
    if measured is None or not len(measured):
        yield Text(
            "Comparing needs people's own answers about the same heads (`python -m batch.annotate`), "
            "which this report does not have. The first version of the study gave the same comparison for "
            "GPT-4o alone."
        )
    else:
        yield Text(
            "People who answered blind samples of the same texts (`python -m batch.annotate`), beside the "
            "panel and each judge; 95% intervals draw the pairs of text and concept anew. The study's "
            "figure stands where it has one for that model and its panel."
        )
        yield _beside(measured)
    names = ["Cohen's kappa", "Spearman's rho", "Kendall's tau"]
    columns = ["", *names, *(f"{name} (GPT-4o alone)" for name in names)]
    rows = [[row, *map(_plain, values), *map(_plain, alone.rows[row])] for row, values in panel.rows.items()]
    yield Grid(columns, rows, "Published.")


def _beside(measured: pd.DataFrame) -> Grid:
    metrics = [name for name in METRICS if (measured["metric"] == name).any()]
    columns = ["model", "people", "judges", "pairs"]
    for name in metrics:
        columns += [METRICS[name], "published"] if _printed(measured, name) else [METRICS[name]]
    rows = []
    for (model, people, judges), some in measured.groupby(["model", "people", "judges"], sort=False):
        by_metric = {row["metric"]: row for _, row in some.iterrows()}
        cells = [str(model), str(people) or "–", str(judges) or "–", str(int(some["n"].iloc[0]))]
        for name in metrics:
            row = by_metric.get(name)
            known = row is not None and pd.notna(row["value"])
            cells.append(in_brackets(_estimate(row), 2) if known else "–")
            if _printed(measured, name):
                cells.append("–" if row is None or pd.isna(row["published"]) else f"{row['published']:g}")
        rows.append(cells)
    return Grid(columns, rows, "Measured.", frozenset({"people", "judges"}))


def _estimate(row: pd.Series) -> Estimate:
    return Estimate(float(row["value"]), float(row["low"]), float(row["high"]))


def _printed(measured: pd.DataFrame, metric: str) -> bool:
    return bool(measured.loc[measured["metric"] == metric, "published"].notna().any())


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
