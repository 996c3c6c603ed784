"""Simulate how often 95% intervals over base models hold the true mean.

    python benchmarks/interval_coverage.py          # writes benchmarks/results/interval_coverage.md

Each draw makes models of a few bases: value = mean + base effect + model effect. The families of base
effects (normal, exponential, two-point) have the same variance. The t interval of `bases.across_bases` is
compared with the bootstrap of bases, then models, which earlier results used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccs.files import write_text
from ccs_benchmark.bases import across_bases

Floats = NDArray[np.float64]
MEAN = 0.3
RESULT = Path(__file__).parent / "results" / "interval_coverage.md"
DESIGNS = {
    "2 bases of 9 models": (2, 9),
    "3 bases of 2": (3, 2),
    "5 bases of 2": (5, 2),
    "8 bases of 3": (8, 3),
}
FAMILIES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
    "two-point": lambda rng, n: rng.choice((-1.0, 1.0), n),
}


def bootstrap(values: Floats, bases: int, rng: np.random.Generator, draws: int = 500) -> tuple[float, float]:
    """Return the percentile interval of a bootstrap of bases, then models.

    Args:
        values: Numbers [bases * models], a base's models next to each other.
        bases: Number of bases.
        rng: NumPy random generator.
        draws: Number of resamples.
    """
    table = values.reshape(bases, -1)
    base = rng.integers(bases, size=(draws, bases, 1))
    model = rng.integers(table.shape[1], size=(draws, bases, table.shape[1]))
    low, high = np.quantile(table[base, model].mean(axis=(1, 2)), (0.025, 0.975))
    return float(low), float(high)


def coverage(repeats: int, spread: float = 0.5, seed: int = 0) -> list[dict[str, object]]:
    """Return a row per design and family of base effects.

    Args:
        repeats: Number of simulated experiments per row.
        spread: Standard deviation of models within a base, in units of that of the bases.
        seed: Random seed.
    """
    rng, rows = np.random.default_rng(seed), []
    for design, (bases, models) in DESIGNS.items():
        names = np.repeat(np.arange(bases), models)
        for family, draw in FAMILIES.items():
            held = np.zeros(2)
            for _ in range(repeats):
                values = MEAN + draw(rng, bases)[names] + spread * rng.normal(size=bases * models)
                interval = across_bases(values, names)
                ends = ((interval.low, interval.high), bootstrap(values, bases, rng))
                held += [low <= MEAN <= high for low, high in ends]
            rows.append(
                {"design": design, "base effects": family, "t": held[0] / repeats}
                | {"bootstrap": held[1] / repeats}
            )
    return rows


def as_markdown(rows: list[dict[str, object]], repeats: int) -> str:
    """Return the table as a page.

    Args:
        rows: One per design and kind of base effects, with the coverage (0 to 1) of both intervals.
        repeats: Number of simulated experiments per row.
    """
    lines = [
        "# Coverage of 95% intervals over base models",
        "",
        f"`python benchmarks/interval_coverage.py`: {repeats:,} simulated experiments per row.",
        "",
        "With normal base effects the t interval holds the true mean in 94% or more of experiments. "
        "Bootstrapping a few bases doesn't. With strongly skewed or two-point effects, two or three bases "
        "are too few for any interval without further assumptions; the sign-flip p-value then says what "
        "the design allows.",
        "",
        "| design | base effects | t interval (`bases.across_bases`) | bootstrap of bases, then models |",
        "|---|---|---|---|",
    ]
    lines += ["| {design} | {base effects} | {t:.1%} | {bootstrap:.1%} |".format(**row) for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the simulation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=2000, help="experiments per row (default: 2000)")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "interval_coverage.md"
    )
    arguments = parser.parse_args()
    page = as_markdown(coverage(arguments.repeats), arguments.repeats)
    write_text(arguments.out, page)
    print(page)


if __name__ == "__main__":
    main()
