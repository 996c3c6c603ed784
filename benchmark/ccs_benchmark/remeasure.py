"""Measure the stored rankings of the learned track again on fresh faces: `python -m ccs_benchmark.remeasure`.

A ranking of heads is what a method made of the half that it saw, so it stays. Its gap share, area, and costs
come from 4,800 faces that no method saw and from the prompts and control images of the other half. Takes
about five minutes of one core per case, one case per model, attribute, and split; a stopped run continues.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ccs.analysis.subject import Subject
from ccs.analysis.task import GALLERIES
from ccs.heads import Head
from ccs_benchmark import natural, scoring
from ccs_benchmark.methods import METHODS

PEOPLE = 600 * GALLERIES


def main() -> None:
    """Measure the cases that aren't measured on fresh faces; those of the tables' bases first."""
    track, cells = scoring.NATURAL, scoring.read_cells(natural.CELLS)
    sets = track.sets()
    for name in cells["model"].unique():
        subject = None
        for attribute, seed, case in _cases(cells[cells["model"] == name]):
            if "people" in case and (case["people"] == PEOPLE).all():
                continue
            subject = subject or Subject(track.load(name), sets)
            print(f"{name}, {attribute}, split {seed}", flush=True)
            scoring.store_cells(measure(subject, case, attribute, seed), natural.CELLS)


def _cases(cells: pd.DataFrame) -> Iterator[tuple[str, int, pd.DataFrame]]:
    for (attribute, seed), case in cells.groupby(["attribute", "seed"]):
        yield str(attribute), int(seed), case


def measure(subject: Subject, case: pd.DataFrame, attribute: str, seed: int) -> pd.DataFrame:
    """Return the cells of a case with the figures on fresh faces.

    Args:
        subject: the model with its people and control images.
        case: stored cells of one model, attribute, and split.
        attribute: of the case.
        seed: of its split.

    Returns:
        The same cells. Those of methods without a name keep their agreement alone, which needs no faces.
    """
    _, unseen = subject.split(attribute, seed)
    named = case["method"].isin([*METHODS, natural.TRUTH])
    orders = {
        row["method"]: tuple(map(Head.parse, row["heads"].split())) for _, row in case[named].iterrows()
    }
    shares = natural.truth(subject.model.name)[attribute]
    figures = natural.figures(subject.model, unseen, shares, orders, {})
    measured = case.set_index("method")
    measured[[name for name in natural.FIGURES if name != "agreement"]] = float("nan")
    measured.update(pd.DataFrame(figures).T)
    measured["took"] = figures[natural.TRUTH]["took"]
    measured["people"] = len(unseen.people)
    return measured.reset_index()[list(case.columns.union(["people"], sort=False))]


if __name__ == "__main__":
    main()
