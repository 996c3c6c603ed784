"""Score methods on models with known carriers of a bias: `python -m ccs_benchmark --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import pandas as pd

from ccs.analysis.evidence import Method
from ccs.batch.pages import columns, count, in_brackets
from ccs.cli.command_line import Command
from ccs.cli.options import at_least, describe
from ccs.errors import InputError
from ccs_benchmark import natural, planted_models, scoring
from ccs_benchmark.methods import GRID, METHODS
from ccs_benchmark.protocol import checked
from ccs_benchmark.scoring import estimate


def method_of(name: str) -> Method:
    """Return a known method, or the user's `package.module:function`.

    Raises:
        InputError: If it is neither.
    """
    module, colon, function = name.partition(":")
    if method := {**GRID, **METHODS}.get(name):
        return method
    if not colon:
        raise InputError(
            f"Unknown method {name!r}. Choose one of {'; '.join(METHODS)}; an intervention and a statistic: "
            f"{', '.join(GRID)}; or package.module:function."
        )
    folders = [str(Path.cwd()), str(Path(__file__).parents[1])]  # the second has `submissions` in a clone
    sys.path[:0] = folders
    try:
        method = getattr(import_module(module), function, None)
    except Exception as error:  # a user's file can raise anything
        raise InputError(f"Can't import the method {name}: {type(error).__name__}: {error}.") from error
    finally:
        del sys.path[: len(folders)]
    if not callable(method):
        raise InputError(f"The module {module} has no function {function!r}.")
    return checked(name, method)


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Score methods on models with known carriers of a bias, and print the table.

    Examples:
        python -m ccs_benchmark --method "learned mask" --splits 1
        python -m ccs_benchmark --method mymodule:find --cells cells.parquet
    """

    method: Annotated[
        tuple[str, ...], describe("Method: name, or package.module:function; repeatable", "all")
    ] = ()
    models: tuple[str, ...] = ("planted",)
    """Models: planted, natural, files, or hf://USER/NAME; repeatable"""
    attribute: Annotated[tuple[str, ...], describe("Planted attribute; repeatable", "all")] = ()
    splits: Annotated[int, at_least(1)] = 4
    """Number of splits into halves"""
    cells: Annotated[Path | None, describe("File of scores, from which a stopped run continues", "none")] = (
        None
    )
    device: str = "cpu"
    """Device: cpu, cuda, or cuda:N"""


def score_methods(settings: ScoreOptions) -> int:
    """Print the table of the methods; return 2 if one of them failed."""
    methods = {name: method_of(name) for name in settings.method or METHODS}
    track = scoring.NATURAL if settings.models == ("natural",) else scoring.PLANTED_HEADS
    places = natural.located() if track is scoring.NATURAL else planted_models.located(settings.models)
    listed = {name: method for name, method in methods.items() if ":" not in name}
    custom = {name: method for name, method in methods.items() if ":" in name}
    tables, failed = [], dict[str, str]()
    for chosen, file in ((listed, settings.cells), (custom, None)):  # a user's function may have changed
        cells, errors = scoring.run(
            chosen,
            places,
            settings.splits,
            file=file,
            attributes=settings.attribute,
            track=track,
            device=settings.device,
        )
        tables.append(cells)
        failed |= errors
        if settings.cells and file is None and len(cells):
            scoring.store_cells(cells, settings.cells)
    for sentence in failed.values():
        print(f"error: {sentence}", file=sys.stderr)
    if sum(map(len, tables)):
        cells = scoring.with_stored_cells(scoring.joined(tables), track.file)
        against = next((name for name in [*custom, *listed] if name not in failed), None)
        print(page(scoring.table(cells, against, track), track))
    return 2 if failed else 0


def page(table: pd.DataFrame, track: scoring.Track = scoring.PLANTED_HEADS) -> str:
    """Format the table of `score`, one line per method.

    Args:
        table: Table from `scoring.table`.
        track: Track of its models. Default: planted heads.
    """
    figure, second, *_ = track.figures
    rows = [
        {
            "method": str(name),
            figure.replace("_", " "): "ground truth"
            if name == track.oracle
            else in_brackets(estimate(row, figure), 2),
            second: f"{row[second]:.2f}",
            "reduction of MaxSkew": f"{row['max_skew_taken']:.3f}",
            "accuracy lost": f"{100 * row['accuracy_lost']:.1f}",
            "passes": f"{row['passes']:.1f}",
        }
        for name, row in table.iterrows()
    ]
    models = count(int(table["models"].max()), "model")
    return f"{models} with known carriers; means and 95% intervals over base models.\n{columns(rows)}"


main = Command(
    ScoreOptions, score_methods, interrupted="Interrupted. With --cells, the same command continues."
)

if __name__ == "__main__":
    sys.exit(main())
