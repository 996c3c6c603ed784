"""Check a submission to the leaderboard: `python -m ccs_benchmark.check_submission submissions/yours.py`.

A submission needs scores for every planted model, attribute, and split. A sample of them is recomputed. The
sample depends on the bytes of both files, so that submitters can't choose it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs_benchmark import leaderboard, planted_models, scoring
from ccs_benchmark.__main__ import method_of

CASES, SPLITS, APART = 3, 4, 0.01
"""Number of recomputed cases, number of splits, and tolerance. Machines round differently, and heads with
nearly equal scores can change places."""


def check(file: Path, cases: int = CASES, models: Sequence[str] = ("planted",)) -> str:
    """Check that a submission has all cells, and that recomputing a sample gives the same scores.

    Args:
        file: The method's Python file, with its cells next to it (`.parquet`).
        cases: Number of recomputed cells.
        models: As for `planted_models.located`.

    Returns:
        A sentence with the checks.

    Raises:
        InputError: If a file or a case is missing, or a score differs by more than APART.
    """
    table = file.with_suffix(".parquet")
    for path in (file, table):
        if not path.is_file():
            raise InputError(f"A submission needs a .py and a .parquet file; {path} doesn't exist.")
    submission = leaderboard.read_submission(table)
    places = {Path(place).stem: place for place in planted_models.located(models)}
    keys = list(scoring.KEY[:4])
    submitted_cases = set(submission[keys].itertuples(index=False, name=None))
    expected_cases = {
        (name, planted_models.weights(place), attribute, seed)
        for name, place in places.items()
        for attribute in planted_models.truth(place).attributes
        for seed in range(SPLITS)
    }
    if submitted_cases != expected_cases:
        raise InputError(
            f"{table.name} lacks {len(expected_cases - submitted_cases)} of {len(expected_cases)} cases, "
            f"and has {len(submitted_cases - expected_cases)} unknown ones."
        )
    seed = int(hashlib.sha256(file.read_bytes() + table.read_bytes()).hexdigest()[:8], 16)
    name = submission["method"][0]
    cases = min(cases, len(submission))
    for row in np.random.default_rng(seed).choice(len(submission), cases, replace=False):
        cell = submission.loc[row]
        recomputed, failed = scoring.run(
            {name: method_of(name)},
            [places[cell["model"]]],
            [int(cell["seed"])],
            attributes=[cell["attribute"]],
        )
        if failed:
            raise InputError(failed[name])
        again = recomputed[recomputed["method"] == name].iloc[0]
        for figure in scoring.FIGURES:
            if abs(again[figure] - cell[figure]) > APART:
                raise InputError(
                    f"{cell['model']}, {cell['attribute']}, split {cell['seed']}: {figure} is "
                    f"{again[figure]:.3f}, but {table.name} has {cell[figure]:.3f}."
                )
    return f"{name}: {len(submission)} cells, {cases} of them recomputed with the same scores."


@dataclass(frozen=True)
class CheckOptions:
    """Check submissions to the leaderboard.

    Examples:
        python -m ccs_benchmark.check_submission submissions/yours.py
    """

    files: tuple[Path, ...]
    """Python files of methods, with their cells next to them"""


main = Command(CheckOptions, lambda settings: print("\n".join(map(check, settings.files))))

if __name__ == "__main__":
    sys.exit(main())
