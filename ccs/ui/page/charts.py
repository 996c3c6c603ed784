"""Charts that fill the width they are given: positions in percent, text at its own size on every screen.

No script; colors come from the page's own variables, shapes differ too, and titles say what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ccs.ui.page.parts import esc, number


@dataclass(frozen=True)
class Mark:
    """A value with its interval; `css` is "before" or "after"."""

    value: float
    low: float
    high: float
    css: str


Chance = tuple[float, float, float]


@dataclass(frozen=True)
class Line:
    """One line of a strip chart: its name, its marks, and (low, mean, high) of what chance gives."""

    name: str
    marks: tuple[Mark, ...]
    chance: Chance


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` as percent of the chart's width, or of its height from above."""

    low: float
    high: float

    def across(self, value: float) -> str:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{100 * share:.2f}%"

    def down(self, value: float) -> str:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{100 * (1 - share):.2f}%"


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


def strip(lines: Sequence[Line], *, label: str, low: float = 0.0) -> str:
    """A chart of lines: on each a chance band, then a mark with whiskers each for before and after."""
    marks = [m for line in lines for m in line.marks]
    high = max([*(v for m in marks for v in (m.high, m.value) if v == v), *(c.chance[2] for c in lines), 0.1])
    low = min([low, *(m.low for m in marks if m.low == m.low)])
    scale = Scale(low, high)
    upright = "".join(
        f'<line class="tick" x1="{scale.across(t)}" x2="{scale.across(t)}" y1="0" y2="100%"/>'
        for t in ticks(low, high)
    )
    axis = "".join(
        f'<text class="axis" x="{scale.across(t)}" y="14" text-anchor="middle">'
        f"{number(t, 2).rstrip('0').rstrip('.')}</text>"
        for t in ticks(low, high)
    )
    rows = "".join(_line(line, scale, upright) for line in lines)
    return (
        f'<div class="strips" role="img" aria-label="{esc(label)}">{rows}<div class="line-row"><span></span>'
        f'<svg class="chart" height="20">{axis}</svg><span></span></div></div>'
    )


def _line(line: Line, scale: Scale, upright: str) -> str:
    left, _, right = line.chance
    parts = [
        f'<svg class="chart" height="34">{upright}<svg x="{scale.across(left)}" overflow="visible" '
        f'width="{_width(scale, left, right)}"><rect class="chance" y="3" width="100%" height="28"/></svg>'
    ]
    for i, mark in enumerate(line.marks):
        y, at = 11 + 12 * i, scale.across(mark.value)
        words = f"{line.name}, {mark.css}: {number(mark.value, 2)}"
        whiskers = ""
        if mark.low == mark.low and mark.high == mark.high:
            words += f" ({number(mark.low, 2)} to {number(mark.high, 2)})"
            whiskers = (
                f'<line x1="{scale.across(mark.low)}" x2="{scale.across(mark.high)}" y1="{y}" y2="{y}"/>'
            )
        shape = (
            f'<circle cx="{at}" cy="{y}" r="4.5"/>'
            if mark.css == "before"
            else f'<rect x="{at}" y="{y - 4.5}" width="9" height="9" transform="translate(-4.5 0)"/>'
        )
        parts.append(f'<g class="{mark.css}"><title>{esc(words)}</title>{whiskers}{shape}</g>')
    values = "".join(f"<b>{number(mark.value, 2)}</b>" for mark in line.marks)
    return (
        f'<div class="line-row"><span class="name" title="{esc(line.name)}">{esc(line.name)}</span>'
        f'{"".join(parts)}</svg><span class="values">{values}</span></div>'
    )


def _width(scale: Scale, left: float, right: float) -> str:
    share = (min(right, scale.high) - max(left, scale.low)) / (scale.high - scale.low)
    return f"{100 * max(share, 0.002):.2f}%"


@dataclass(frozen=True)
class Point:
    """A mark of a scatter plot, with 95% intervals (NaN if none).

    `kind` sets its shape; `look` is "solid", "hollow" or "printed" (the study's); `chosen` rings it. With
    `heads` it can be clicked, and reached by Tab.
    """

    x: float
    x_low: float
    x_high: float
    y: float
    y_low: float
    y_high: float
    kind: str
    look: str
    words: str
    heads: str
    model: str
    chosen: bool = False


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
DIAMOND = "M0-5L5 0L0 5L-5 0Z"
LEAST = 0.02  # the shortest margin of an axis


def scatter(points: Sequence[Point], *, across: str, up: str) -> tuple[str, str]:
    """The plot, and the key of its shapes, as HTML."""
    x = _scale([v for p in points for v in (p.x, p.x_low, p.x_high) if v == v])
    y = _scale([v for p in points for v in (p.y, p.y_low, p.y_high) if v == v])
    parts = []
    for tick in ticks(x.low, x.high, 6):
        css, at = "zero" if abs(tick) < 1e-12 else "tick", x.across(tick)
        parts.append(f'<line class="{css}" x1="{at}" x2="{at}" y1="0" y2="100%"/>')
        parts.append(
            f'<text class="axis" x="{at}" y="100%" dy="18" text-anchor="middle">{_tick(tick)}</text>'
        )
    for tick in ticks(y.low, y.high, 7):
        css, at = "zero" if abs(tick) < 1e-12 else "tick", y.down(tick)
        parts.append(f'<line class="{css}" x1="0" x2="100%" y1="{at}" y2="{at}"/>')
        parts.append(
            f'<text class="axis" x="0" y="{at}" dx="-8" dy="4" text-anchor="end">{_tick(tick)}</text>'
        )
    # The small and many first, so that named sets lie on top, and the chosen one above all.
    order = sorted(
        points, key=lambda p: (p.chosen, p.kind != "single", p.kind != "random", p.look != "printed")
    )
    parts += [_mark(p, x, y) for p in order]
    shown = [kind for kind in SHAPES if any(p.kind == kind and p.look != "printed" for p in points)]
    key = "".join(
        '<span><svg class="shape" viewBox="-8 -8 16 16" aria-hidden="true"><path class="mark '
        f'kind-{kind}" d="{SHAPES[kind]}"/></svg>{kind}</span>'
        for kind in shown
    )
    chart = (
        f'<p class="axis-name">↑ {esc(up)}</p><div class="scatter"><svg class="chart" role="group" '
        f'aria-label="{esc(up)} against {esc(across)}">{"".join(parts)}</svg></div>'
        f'<p class="axis-name across">{esc(across)} →</p>'
    )
    return chart, key


def _scale(values: Sequence[float]) -> Scale:
    low, high = min([0.0, *values]), max([0.0, *values])
    pad = (high - low) * 0.05 or LEAST
    return Scale(low - pad, high + pad)


def _mark(p: Point, x: Scale, y: Scale) -> str:
    words = f"{p.words}: {_signed(p.x, 1)} points, MaxSkew {_signed(p.y, 3)}"
    at_x, at_y, whiskers = x.across(p.x), y.down(p.y), ""
    if p.kind != "single":
        if p.x_low == p.x_low and p.x_high == p.x_high:
            whiskers += f'<line x1="{x.across(p.x_low)}" x2="{x.across(p.x_high)}" y1="{at_y}" y2="{at_y}"/>'
        if p.y_low == p.y_low and p.y_high == p.y_high:
            whiskers += f'<line x1="{at_x}" x2="{at_x}" y1="{y.down(p.y_low)}" y2="{y.down(p.y_high)}"/>'
    shape = DIAMOND if p.look == "printed" else SHAPES.get(p.kind, SHAPES["single"])
    ring = '<circle class="ring" r="11"/>' if p.chosen else ""
    css = f"point {p.look} kind-{p.kind}"
    tip = esc(f"{words}\n{p.heads}" if p.heads else words)
    act = ""
    if p.heads:
        act = (
            'role="button" tabindex="0" data-plan="1" '
            f'data-do="plan" data-model="{esc(p.model)}" data-heads="{esc(p.heads)}" '
            f'aria-pressed="{str(p.chosen).lower()}" aria-label="{esc(words)}; switch off {esc(p.heads)}" '
        )
    # A point's own coordinates, so that its shape has the same size on every screen.
    return (
        f'<g class="{css}">{whiskers}<svg x="{at_x}" y="{at_y}" overflow="visible" width="1" height="1">'
        f'{ring}<path class="mark" {act}data-tip="{tip}" d="{shape}"/></svg></g>'
    )


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("-", "−") if abs(value) > 1e-12 else "0"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
