"""Table 4: how far people agree with the judges, published beside what `batch.annotate import` wrote."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow

from batch.report.document import Block, fill
from batch.report.wording import in_brackets
from ccs.errors import InputError
from ccs.paper import figures as paper
from ccs.results import queries

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
    """The agreement in that file, by default in `agreement.parquet` of this folder (None if it is not there).

    InputError for a file that is not there or does not hold agreement.
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


def agreement_blocks(measured: pd.DataFrame | None) -> list[Block]:
    """The section of table 4."""
    panel, alone = paper.table("table4"), paper.table("v1-table2")
    names = ["Cohen's kappa", "Spearman's rho", "Kendall's tau"]
    columns = ["", *names, *(f"{name} (GPT-4o alone)" for name in names)]
    rows = [[row, *map(plain, values), *map(plain, alone.rows[row])] for row, values in panel.rows.items()]
    beside = [] if measured is None else _beside(measured)
    return fill("agreement", measured=beside, published=pd.DataFrame(rows, columns=columns))


def _beside(measured: pd.DataFrame) -> list[dict[str, str]]:
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
