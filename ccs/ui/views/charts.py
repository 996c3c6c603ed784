"""A chart that fills the width it is given: positions in percent, text at its own size on every screen.

No script; colors come from the page's own variables, shapes differ too, and titles say what is shown. What is
measured here is where things lie; scatter.html draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ccs.measures.stats import Effect, Estimate
from ccs.pruning.plans import PlanName
from ccs.ui.html import render


@dataclass(frozen=True)
class Measured:
    """One plan of one model on both axes: differences from nothing off (intervals NaN if none)."""

    model: str
    plan: PlanName
    seed: int | None
    heads: str
    n_heads: int
    x: Effect
    y: Effect

    @property
    def words(self) -> str:
        """The model and the plan in words."""
        return f"{self.model}: {self.plan.words(self.seed)}"


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` as percent of the chart's width, or of its height from above."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """The value's place between the two ends, 0 to 1."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    def across(self, value: float) -> str:
        """From the left."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """From above."""
        return f"{100 * (1 - self.share(value)):.2f}%"


def ticks(low: float, high: float, n: int = 5) -> list[float]:
    """About `n` round numbers from low to high."""
    span = (high - low) or 1.0
    step = 10 ** math.floor(math.log10(span / n))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= n:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Point:
    """A plan in a scatter plot.

    `look` is "solid", for the first model, or "hollow"; `chosen` rings it. With heads it can be clicked, and
    reached by Tab.
    """

    plan: Measured
    look: str
    chosen: bool


SHAPES = {
    "high": "M0-6A6 6 0 1 1 0 6A6 6 0 1 1 0-6Z",
    "low": "M-5.5-5.5H5.5V5.5H-5.5Z",
    "moderate": "M0-6.5L6 5H-6Z",
    "random": "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
    "concept": "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "equal-high": "M0-7L6.5 0L0 7L-6.5 0Z",
    "equal-low": "M0 6.5L6-5H-6Z",
    "single": "M0-2.6A2.6 2.6 0 1 1 0 2.6A2.6 2.6 0 1 1 0-2.6Z",
}
LEAST = 0.02  # the shortest margin of an axis


def scatter(points: Sequence[Point], *, across: str, up: str) -> Markup:
    """The plot. Small and many marks come first, so that named sets lie on top, the chosen one above all."""
    x = _scale([p.plan.x.times(100) for p in points])
    y = _scale([p.plan.y for p in points])
    order = sorted(
        points,
        key=lambda p: (
            p.chosen,
            p.plan.plan.kind != "single",
            p.plan.plan.kind != "random",
        ),
    )
    return render(
        "scatter.html",
        points=order,
        x=x,
        y=y,
        x_ticks=ticks(x.low, x.high, 6),
        y_ticks=ticks(y.low, y.high, 7),
        across=across,
        up=up,
        shapes=SHAPES,
        named=_named(points),
    )


def _named(points: Sequence[Point]) -> list[tuple[Measured, str]]:
    """Names beside marks: the first model's sets of many heads."""
    ours = [p.plan for p in points if p.look == "solid" and p.plan.seed is None]
    return [(one, one.plan.kind) for one in ours if one.plan.kind in ("high", "moderate", "low", "random")]


def _scale(effects: Sequence[Estimate]) -> Scale:
    low, high = min([0.0, *_known(effects)]), max([0.0, *_known(effects)])
    pad = (high - low) * 0.05 or LEAST
    return Scale(low - pad, high + pad)


def _known(values: Sequence[Estimate]) -> list[float]:
    """The values and the ends of their intervals, without NaN."""
    return [v for e in values for v in (e.low, e.value, e.high) if v == v]
