"""Score methods on models in which it is known who carries a skew: `python -m ccs_benchmark --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pandas as pd

from ccs.analysis.evidence import Method
from ccs.batch.pages import columns, count, in_brackets
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
            f"There is no method {name!r}; there are {'; '.join(METHODS)}; an intervention and a statistic: "
            f"{', '.join(GRID)}; or package.module:function."
        )
    folders = [str(Path.cwd()), str(Path(__file__).parents[1])]  # the second has `submissions` in a clone
    sys.path[:0] = folders
    try:
        method = getattr(import_module(module), function, None)
    except Exception as error:  # whatever a user's file raises
        raise InputError(f"The method {name} cannot be imported: {type(error).__name__}: {error}.") from error
    finally:
        del sys.path[: len(folders)]
    if not callable(method):
        raise InputError(f"The module {module} has no function {function!r}.")
    return checked(name, method)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the methods; return 2 if one of them failed."""
    parser = argparse.ArgumentParser("python -m ccs_benchmark", description=__doc__)
    parser.add_argument("--method", action="append", help="name or package.module:function (default: all)")
    parser.add_argument("--models", action="append", help="planted (default), natural, files, hf://USER/NAME")
    parser.add_argument("--attribute", action="append", default=[], help="planted attribute (default: all)")
    parser.add_argument("--splits", type=int, default=4, help="splits into halves (default: 4)")
    parser.add_argument("--cells", type=Path, help="file of scores, from which a stopped run goes on")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N (default: cpu)")
    args = parser.parse_args(argv)
    try:
        return _score(args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _score(args: argparse.Namespace) -> int:
    methods = {name: method_of(name) for name in args.method or METHODS}
    models = args.models or ["planted"]
    track = scoring.NATURAL if models == ["natural"] else scoring.PLANTED_HEADS
    places = natural.located() if track is scoring.NATURAL else planted_models.located(models)
    listed = {name: method for name, method in methods.items() if ":" not in name}
    theirs = {name: method for name, method in methods.items() if ":" in name}
    tables, failed = [], dict[str, str]()
    for chosen, file in ((listed, args.cells), (theirs, None)):  # a user's function may have changed
        cells, errors = scoring.run(
            chosen, places, args.splits, file=file, attributes=args.attribute, track=track, device=args.device
        )
        tables.append(cells)
        failed |= errors
        if args.cells and file is None and len(cells):
            scoring.store_cells(cells, args.cells)
    for sentence in failed.values():
        print(f"error: {sentence}", file=sys.stderr)
    if sum(map(len, tables)):
        cells = scoring.with_stored_cells(scoring.joined(tables), track.file)
        against = next((name for name in [*theirs, *listed] if name not in failed), None)
        print(page(scoring.table(cells, against, track), track))
    return 2 if failed else 0


def page(table: pd.DataFrame, track: scoring.Track = scoring.PLANTED_HEADS) -> str:
    """Format the table of `score`, one line per method.

    Args:
        table: as `scoring.table` returns it.
        track: the track of its models; planted heads by default.
    """
    figure, second, *_ = track.figures
    rows = [
        {
            "method": str(name),
            figure.replace("_", " "): "the truth"
            if name == track.oracle
            else in_brackets(estimate(row, figure), 2),
            second: f"{row[second]:.2f}",
            "MaxSkew taken": f"{row['max_skew_taken']:.3f}",
            "accuracy lost": f"{100 * row['accuracy_lost']:.1f}",
            "passes": f"{row['passes']:.1f}",
        }
        for name, row in table.iterrows()
    ]
    models = count(int(table["models"].max()), "model")
    return f"{models} with known carriers; means and 95% intervals between models.\n{columns(rows)}"


if __name__ == "__main__":
    sys.exit(main())
