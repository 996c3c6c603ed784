"""Charts as SVG: no script, colors from the page's own variables, and a title that says what they show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ccs.ui.parts import esc, number


@dataclass(frozen=True)
class Mark:
    """A value with its interval; `css` is "before" or "after"."""

    value: float
    low: float
    high: float
    css: str


Chance = tuple[float, float, float]


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


def strip(rows: Sequence[tuple[str, Sequence[Mark], Chance]], *, label: str, low: float = 0.0) -> str:
    """One line a row: its chance band, then a mark with whiskers each for before and after."""
    marks = [m for _, pair, _ in rows for m in pair]
    high = max([*(m.high for m in marks), *(m.value for m in marks), *(c[2] for *_, c in rows), 0.1])
    low = min([low, *(m.low for m in marks if m.low == m.low)])
    width, left, right, top, row_height = 640, 130, 52, 8, 34
    height = top + row_height * len(rows) + 26

    def x(value: float) -> float:
        return left + (width - left - right) * (min(max(value, low), high) - low) / (high - low)

    parts = []
    bottom = top + row_height * len(rows)
    for tick in ticks(low, high):
        parts.append(f'<line class="tick" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="axis" x="{x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{number(tick, 2).rstrip("0").rstrip(".")}</text>')
    for i, (name, pair, chance) in enumerate(rows):
        y = top + row_height * i
        short = name if len(name) <= 18 else f"{name[:17]}…"
        parts.append(f'<text class="name" x="{left - 10}" y="{y + row_height / 2 + 4}" text-anchor="end">{esc(short)}</text>')
        parts.append(f'<rect class="chance" x="{x(chance[0]):.1f}" width="{max(1.0, x(chance[2]) - x(chance[0])):.1f}" y="{y + 3}" height="{row_height - 6}"/>')
        for j, mark in enumerate(pair):
            cy = y + 11 + 12 * j
            words = f"{name}, {mark.css}: {number(mark.value, 2)} ({number(mark.low, 2)} to {number(mark.high, 2)})"
            parts.append(
                f'<g class="{mark.css}"><title>{esc(words)}</title><line x1="{x(mark.low):.1f}" x2="{x(mark.high):.1f}" y1="{cy}" y2="{cy}"/>'
                + (f'<circle cx="{x(mark.value):.1f}" cy="{cy}" r="4.5"/>' if mark.css == "before"
                   else f'<rect x="{x(mark.value) - 4.5:.1f}" y="{cy - 4.5}" width="9" height="9"/>')
                + f'<text class="value" x="{width - right + 8}" y="{cy + 4}">{number(mark.value, 2)}</text></g>'
            )  # fmt: skip
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{esc(label)}">{"".join(parts)}</svg>'
