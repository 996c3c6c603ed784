"""Charts as SVG: no script, colors from the page's own variables, and a title that says what they show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
        parts.append(
            f'<text class="axis" x="{x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">'
            f"{number(tick, 2).rstrip('0').rstrip('.')}</text>"
        )
    for i, (name, pair, chance) in enumerate(rows):
        y = top + row_height * i
        short = name if len(name) <= 18 else f"{name[:17]}…"
        parts.append(
            f'<text class="name" x="{left - 10}" y="{y + row_height / 2 + 4}" text-anchor="end">'
            f"{esc(short)}</text>"
        )
        parts.append(
            f'<rect class="chance" x="{x(chance[0]):.1f}" width="{max(1.0, x(chance[2]) - x(chance[0])):.1f}'
            f'" y="{y + 3}" height="{row_height - 6}"/>'
        )
        for j, mark in enumerate(pair):
            cy = y + 11 + 12 * j
            words = (
                f"{name}, {mark.css}: {number(mark.value, 2)} ({number(mark.low, 2)} to "
                f"{number(mark.high, 2)})"
            )
            parts.append(
                f'<g class="{mark.css}"><title>{esc(words)}</title><line x1="{x(mark.low):.1f}" '
                f'x2="{x(mark.high):.1f}" y1="{cy}" y2="{cy}"/>'
                + (
                    f'<circle cx="{x(mark.value):.1f}" cy="{cy}" r="4.5"/>'
                    if mark.css == "before"
                    else f'<rect x="{x(mark.value) - 4.5:.1f}" y="{cy - 4.5}" width="9" height="9"/>'
                )
                + f'<text class="value" x="{width - right + 8}" y="{cy + 4}">{number(mark.value, 2)}</text>'
                "</g>"
            )
    return (
        f'<div class="scroll" tabindex="0"><svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{esc(label)}">{"".join(parts)}</svg></div>'
    )


@dataclass(frozen=True)
class Point:
    """A mark of a scatter plot. `kind` sets its shape, `fill` 0 is filled, above hollow, -1 published."""

    x: float
    x_low: float
    x_high: float
    y: float
    y_low: float
    y_high: float
    kind: str
    fill: int
    words: str
    heads: str
    model: str


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


def scatter(points: Sequence[Point], *, across: str, up: str) -> tuple[str, str]:
    """The plot, and the key of its shapes as HTML. A mark with heads can be clicked, and reached by Tab."""
    width, height, left, bottom, top, right = 760, 480, 64, 48, 14, 16
    xs = [v for p in points for v in (p.x, p.x_low, p.x_high) if v == v] + [0.0]
    ys = [v for p in points for v in (p.y, p.y_low, p.y_high) if v == v] + [0.0]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    pad_x, pad_y = (x1 - x0) * 0.05 or 1.0, (y1 - y0) * 0.05 or 0.1
    x0, x1, y0, y1 = x0 - pad_x, x1 + pad_x, y0 - pad_y, y1 + pad_y

    def x(value: float) -> float:
        return left + (width - left - right) * (value - x0) / (x1 - x0)

    def y(value: float) -> float:
        return height - bottom - (height - bottom - top) * (value - y0) / (y1 - y0)

    parts = []
    for tick in ticks(x0, x1, 8):
        css = "zero" if abs(tick) < 1e-12 else "tick"
        parts.append(
            f'<line class="{css}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{height - bottom}"/>'
        )
        parts.append(
            f'<text class="axis" x="{x(tick):.1f}" y="{height - bottom + 18}" text-anchor="middle">'
            f"{_tick(tick)}</text>"
        )
    for tick in ticks(y0, y1, 7):
        css = "zero" if abs(tick) < 1e-12 else "tick"
        parts.append(
            f'<line class="{css}" x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        )
        parts.append(
            f'<text class="axis" x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{_tick(tick)}</text>'
        )
    parts.append(
        f'<text class="name" x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">'
        f"{esc(across)}</text>"
    )
    parts.append(
        f'<text class="name" transform="translate(14 {(height - bottom + top) / 2}) rotate(-90)" '
        f'text-anchor="middle">{esc(up)}</text>'
    )
    # The small and many first, so that named sets lie on top.
    order = sorted(points, key=lambda p: (p.kind != "single", p.kind != "random", p.fill >= 0))
    parts += [_mark(p, x, y) for p in order]
    shown = [kind for kind in SHAPES if any(p.kind == kind and p.fill >= 0 for p in points)]
    key = "".join(
        '<span><svg class="chart shape" viewBox="-8 -8 16 16" aria-hidden="true"><path class="mark '
        f'kind-{kind}" d="{SHAPES[kind]}"/></svg>{kind}</span>'
        for kind in shown
    )
    chart = (
        f'<div class="scroll" tabindex="0"><svg class="chart scatter" viewBox="0 0 {width} {height}" '
        f'role="group" aria-label="{esc(up)} against {esc(across)}">{"".join(parts)}</svg></div>'
    )
    return chart, key


def _mark(p: Point, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    words = f"{p.words}: {_signed(p.x, 1)} points, MaxSkew {_signed(p.y, 3)}"
    whiskers = ""
    if p.kind != "single":
        if p.x_low == p.x_low and p.x_high == p.x_high:
            whiskers += (
                f'<line x1="{x(p.x_low):.1f}" x2="{x(p.x_high):.1f}" y1="{y(p.y):.1f}" y2="{y(p.y):.1f}"/>'
            )
        if p.y_low == p.y_low and p.y_high == p.y_high:
            whiskers += (
                f'<line x1="{x(p.x):.1f}" x2="{x(p.x):.1f}" y1="{y(p.y_low):.1f}" y2="{y(p.y_high):.1f}"/>'
            )
    shape = DIAMOND if p.fill < 0 else SHAPES.get(p.kind, SHAPES["single"])
    fill = "printed" if p.fill < 0 else "hollow" if p.fill else "solid"
    at = f'transform="translate({x(p.x):.1f} {y(p.y):.1f})"'
    if not p.heads:
        return (
            f'<g class="point {fill} kind-{p.kind}">{whiskers}<path class="mark" {at} d="{shape}"><title>'
            f"{esc(words)}</title></path></g>"
        )
    tip = esc(words + "\n" + p.heads)
    return (
        f'<g class="point {fill} kind-{p.kind}">{whiskers}<path class="mark" {at} d="{shape}" role="button" '
        'tabindex="0" data-plan="1" '
        f'data-do="plan" data-model="{esc(p.model)}" data-heads="{esc(p.heads)}" data-tip="{tip}" '
        f'aria-label="{esc(words)}; switch off {esc(p.heads)}"/></g>'
    )


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("-", "−") if abs(value) > 1e-12 else "0"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
