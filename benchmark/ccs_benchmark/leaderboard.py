"""The leaderboard of the benchmark: a static HTML page made from cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

import pandas as pd
from huggingface_hub import SpaceCardData

from ccs.batch.pages import environment, in_brackets
from ccs.errors import InputError
from ccs.files import write_text
from ccs_benchmark import scoring
from ccs_benchmark.methods import METHODS
from ccs_benchmark.planted_models import Truth
from ccs_benchmark.scoring import estimate

ALL = "all"
SHARES = ("average_precision", "precision")
_BYTES = 4 * 2**20


def read_submission(path: Path) -> pd.DataFrame:
    """Read the cells of a submission, as `python -m ccs_benchmark --cells` writes them.

    Args:
        path: The Parquet file.

    Raises:
        InputError: If the file has wrong columns, impossible scores, or cells of another method.
    """
    if path.stat().st_size > _BYTES:
        raise InputError(f"{path.name} is larger than {_BYTES >> 20} MiB.")
    try:
        cells = pd.read_parquet(path)
    except (ValueError, OSError) as error:  # what pyarrow raises
        raise InputError(f"{path.name} isn't a Parquet file: {str(error)[:100]}.") from None
    if list(cells.columns) != list(scoring.COLUMNS) or cells.empty:
        raise InputError(f"{path.name} must have the columns {', '.join(scoring.COLUMNS)}.")
    submission = cells[cells["method"] != scoring.PLANTED]
    names = [str(name) for name in submission["method"].unique()]
    if len(names) != 1 or not re.fullmatch(rf"submissions\.{path.stem}:\w{{1,40}}", names[0], re.ASCII):
        raise InputError(f"{path.name} holds cells of {names}, not of submissions.{path.stem}:FUNCTION.")
    figures = submission[[*scoring.FIGURES, "passes", "took"]].apply(pd.to_numeric, errors="coerce")
    if figures.isna().any(axis=None) or not figures[list(SHARES)].stack().between(0, 1).all():
        raise InputError(f"{path.name} holds scores that are not numbers, or shares outside 0 to 1.")
    return submission.reset_index(drop=True)


def submitted(folder: Path, cells: pd.DataFrame) -> list[pd.DataFrame]:
    """Read the submissions that have a cell for every case.

    Args:
        folder: Folder of the submissions.
        cells: Cells with the cases.

    Returns:
        The cells of each complete submission, for only these cases.
    """
    keys = list(scoring.KEY[:4])
    cases = set(cells[keys].itertuples(index=False, name=None))
    complete = []
    for path in sorted(folder.glob("*.parquet")):
        submission = read_submission(path)
        submission = submission[
            [case in cases for case in submission[keys].itertuples(index=False, name=None)]
        ]
        if len(submission) == len(cases):
            complete.append(submission)
    return complete


def write(folder: Path, cells: pd.DataFrame, truths: Mapping[str, Truth], repository: str) -> None:
    """Write a static Space: the page, its card, and the cells.

    Args:
        folder: Output folder.
        cells: Cells of all methods.
        truths: Model -> ground truth.
        repository: USER/NAME of the models.
    """
    folder.mkdir(parents=True, exist_ok=True)
    card = SpaceCardData(title="Heads that carry a bias", sdk="static", license="mit", models=[repository])
    write_text(folder / "README.md", f"---\n{card}\n---\n\nMade by `python -m ccs_benchmark.publish`.\n")
    cells.to_parquet(folder / "cells.parquet", index=False, compression="zstd")
    write_text(folder / "index.html", page(cells, truths, repository))


def page(cells: pd.DataFrame, truths: Mapping[str, Truth], repository: str) -> str:
    """Render the page. It has a table for each track and attribute, and shows one at a time.

    Args:
        cells: Cells of all methods.
        truths: Model -> ground truth.
        repository: USER/NAME of the models.
    """
    html = environment(Path(__file__).parent)
    tables = list(_tables(cells, truths))
    tracks, attributes = (list(dict.fromkeys(entry[place] for entry in tables)) for place in (0, 1))
    return html.get_template("leaderboard.html").render(
        repository=repository,
        tables=tables,
        tracks=tracks,
        attributes=attributes,
        splits=cells["seed"].nunique(),
        took=scoring.TOOK,
    )


def _tables(
    cells: pd.DataFrame, truths: Mapping[str, Truth]
) -> Iterator[tuple[str, str, int, list[dict[str, str]]]]:
    """Return track, attribute, number of models, and rows, for each pair with a learned bias."""
    strength = cells["model"].map({name: truth.strength for name, truth in truths.items()})
    tracks = {ALL: strength.notna()} | {
        f"{part:.0%} of the bias planted": strength == part
        for part in sorted(strength.dropna().unique(), reverse=True)
    }
    attributes = [ALL, *sorted(cells["attribute"].unique())]
    computed: dict[tuple[int, ...], tuple[int, list[dict[str, str]]]] = {}
    for (track, among), attribute in product(tracks.items(), attributes):
        selected = cells[among & ((cells["attribute"] == attribute) | (attribute == ALL))]
        if (selected["took"] < scoring.TOOK).all():
            continue
        key = tuple(selected.index)
        if key not in computed:  # with one strength, its track equals ALL
            table = scoring.table(selected)
            computed[key] = int(table["models"].max()), list(_rows(table))
        yield track, attribute, *computed[key]


def _rows(table: pd.DataFrame) -> Iterable[dict[str, str]]:
    for name, row in table.iterrows():
        truth, ours = name == scoring.PLANTED, name in METHODS
        figures = {
            figure: in_brackets(estimate(row, figure), 3 if figure.startswith(("max", "cram")) else 2)
            for figure in scoring.FIGURES[:4]
        }
        figures["accuracy_lost"] = in_brackets(estimate(row, "accuracy_lost").times(100), 1)
        if truth:
            figures |= dict.fromkeys(SHARES, "–")
        yield {
            "method": str(name).partition(":")[2] or str(name),
            "kind": "truth" if truth else "ours" if ours else "submitted",
            "passes": "–" if truth else f"{row['passes']:.0f}",
            "cases": str(int(row["cases"])),
            **figures,
        }
