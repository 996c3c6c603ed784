"""The figures of the view Bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccs.measures import bias
from ccs.measures.bias import BiasResult, Metric, MetricName
from ccs.ui.page.charts import Chance, Line, Mark, strip
from ccs.ui.page.parts import button, csv_text, esc, figure, number, percent, scroll
from ccs.ui.views.bias.asked import Asked, top

if TYPE_CHECKING:
    from ccs.ui.app import App

FACES = 12
LINES = 30
FAULTS = {
    "order": "As in the study’s released code for FairFace by race: each group’s share of the top is divided "
    "by another group’s share of the pool.",
    "aliased": "As in the study’s released code for SocialCounterfactuals: every group holds every picture, "
    "so what is left are ties of scores in float16.",
}
COLUMNS = (
    *("occupation", "attribute", "metric", "k", "target", "mode"),
    *("before", "before low", "before high", "after", "after low", "after high"),
    *("chance", "chance low", "chance high"),
)


def skews(first: BiasResult, second: BiasResult, what: Asked) -> str:
    """MaxSkew an occupation and their mean, before and after, over what chance gives."""
    one, two = first.max_skew, second.max_skew
    order = list(range(len(what.occupations)))
    left_out = ""
    if len(order) > LINES:
        order = sorted(order, key=lambda i: -float(one.values[i]))[:LINES]
        left_out = (
            f'<p class="muted small">The {LINES} occupations with the most skew before; all '
            f"{len(what.occupations)} stand in the table below and in the CSV.</p>"
        )
    chance: Chance = one.chance.low, one.chance.value, one.chance.high
    lines = [
        Line(what.occupations[i], (_mark(one, i, "before"), _mark(two, i, "after")), chance) for i in order
    ]
    if len(what.occupations) > 1:
        means = tuple(
            Mark(m.mean.value, m.mean.low, m.mean.high, css) for m, css in ((one, "before"), (two, "after"))
        )
        level = one.chance_mean
        lines.append(Line("mean", means, (level.low, level.value, level.high)))
    note = ""
    if what.fault is not None:
        note = (
            f"<p class=warn>{FAULTS[what.fault]} These figures reproduce the fault and say nothing about the "
            "model.</p>"
        )
    share = "pool" if what.target == "pool" else "groups, each counted alike"
    return figure(
        f"MaxSkew@{what.k} by {what.attribute}",
        note
        + '<p class="keys-line"><span><i class="key before"></i>before</span><span><i class="key after"></i>'
        'after</span><span><i class="key chance"></i>what 95% of random rankings score</span></p>'
        + strip(lines, label=f"MaxSkew at {what.k} by {what.attribute}, before and after")
        + left_out,
        what="The pictures are ranked by cosine with the occupation’s text. For each group, skew is the "
        f"natural logarithm of its share of the top {what.k} divided by its share of the {share}. "
        "<b>MaxSkew</b> is the largest: 0 is even, ln 2 = 0.69 is a group twice as frequent as it should be. "
        "Some skew comes about by chance, so the grey band shows what rankings without regard to groups "
        "score. Whiskers: 95% intervals from resampled images.",
        unit="natural log of a ratio of shares",
        name="maxskew",
        table=_saved(first, second, what),
    )


def _mark(metric: Metric, i: int, css: str) -> Mark:
    return Mark(float(metric.values[i]), float(metric.low[i]), float(metric.high[i]), css)


def faces(app: App, before: np.ndarray, after: np.ndarray, occupation: np.ndarray, what: Asked) -> str:
    """Who comes first for one occupation [d], before and after."""
    labels, words = what.gallery.groups[what.attribute], what.occupations[what.row]
    n = min(FACES, len(labels))
    old, new = top(before, occupation, n), top(after, occupation, n)
    rows, saved, fresh = [], [], '<i class="sr"> only here</i>'
    for title, order, others in (("before", old, new), ("after", new, old)):
        shown = "".join(
            f'<figure class="{"" if i in others else "fresh"}"><img '
            f'src="{app.face(what.gallery.name, int(i))}" alt="rank {rank}, {esc(labels[i])}"><figcaption>'
            f"{rank} {esc(labels[i])}{'' if i in others else fresh}</figcaption></figure>"
            for rank, i in enumerate(order, 1)
        )
        rows.append(f'<h4><i class="key {title}"></i>{title}</h4><div class="strip faces">{shown}</div>')
        saved += [[title, rank, int(i), labels[i]] for rank, i in enumerate(order, 1)]
    drawn = (
        " The drawn faces are balanced over groups and show no sign of an occupation, so whom the model puts "
        "first is its own association."
        if what.gallery.name == "world/faces"
        else ""
    )
    return figure(
        f"First {n} pictures for “{words}”",
        "".join(rows),
        what=f"The first {n} of {len(labels)} pictures, by cosine with the occupation’s text. ◆ marks a "
        f"picture that only one of the two rankings puts there. Below each: its rank and its group.{drawn}",
        unit="rank",
        name="first-pictures",
        table=csv_text(["ranking", "rank", "picture", what.attribute], saved),
    )


def groups(first: BiasResult, second: BiasResult, what: Asked) -> str:
    """Each group's share of the top for one occupation, beside its share of the pool."""
    pool, row = first.pool / first.pool.sum(), what.row
    rows, saved = [], []
    for g, group in enumerate(first.groups):
        shares = first.top[row, g] / first.k, second.top[row, g] / second.k
        bars = "".join(
            f'<span class="bar {css}"><span style="width:{100 * share:.1f}%"></span><i '
            f'style="left:{100 * pool[g]:.1f}%"></i><b>{percent(share)}</b></span>'
            for css, share in zip(("before", "after"), shares, strict=True)
        )
        rows.append(
            f'<tr><th scope="row">{esc(group)}</th><td><span class="pair">{bars}</span></td><td class=num>'
            f"{percent(pool[g])}</td></tr>"
        )
        saved.append([group, shares[0], shares[1], pool[g]])
    return figure(
        f"Who is in the top {what.k} for “{what.occupations[row]}”",
        '<table class="groups"><thead><tr><th scope="col">group</th><th scope="col"><i class="key before">'
        "</i>before "
        '<i class="key after"></i>after</th><th scope="col" class="num">pool</th></tr></thead><tbody>'
        + "".join(rows)
        + "</tbody></table>",
        what=f"Each group’s share of the top {what.k}, before and after; the upright line is its share of "
        "the whole pool, which an even ranking would give.",
        unit="share of the top, %",
        name="groups",
        table=csv_text(["group", "before", "after", "pool"], saved),
    )


def table(first: BiasResult, second: BiasResult, what: Asked) -> str:
    """All metrics an occupation and over all, beside chance; a click on an occupation shows its pictures."""
    names: list[MetricName] = [name for name in bias.METRICS if name in first.metrics]
    spans = "".join(f'<th scope="colgroup" colspan="2" class="num">{name}</th>' for name in names)
    halves = "".join(
        '<th scope="col" class="num">before</th><th scope="col" class="num">after</th>' for _ in names
    )
    header = f'<thead><tr><th scope="col" rowspan="2">occupation</th>{spans}</tr><tr>{halves}</tr></thead>'
    rows = []
    for i, occupation in enumerate(what.occupations):
        values = [float(r.metrics[name].values[i]) for name in names for r in (first, second)]
        link = button(occupation, "row", css="link", value=i)
        rows.append(_row(link, [number(value, 3) for value in values]))
    both = [r.metrics[name] for name in names for r in (first, second)]
    rows.append(_row("mean", [_interval(m.mean) for m in both], "total"))
    rows.append(_row("sum", [number(m.sum.value, 3) for m in both], "total"))
    rows.append(_row("chance, mean", [_interval(m.chance_mean) for m in both], "total"))
    ties = int(max(first.ties.max(), second.ties.max()))
    return figure(
        "By occupation",
        scroll(f'<table class="nums">{header}<tbody>{"".join(rows)}</tbody></table>'),
        what="<b>MaxSkew</b>: the most over-represented group. <b>MinSkew</b>: the most under-represented "
        "one, below 0; a group without a picture counts as half a picture. <b>NDKL</b>: the divergence "
        "between the groups’ shares at every depth of the ranking and their target, weighted towards the "
        "top; 0 is even. <b>Sum</b> over occupations is what the study prints; <b>chance</b> is the mean "
        "over random rankings, with what 95% of them score. In brackets: 95% intervals. Equal scores at the "
        f"cut: {ties}. A click on an occupation shows its pictures.",
        unit="nats",
        name="by-occupation",
        table=_saved(first, second, what),
    )


def _row(name: str, cells: list[str], css: str = "") -> str:
    return (
        f'<tr class="{css}"><th scope="row">{name}</th>'
        f"{''.join(f'<td class=num>{cell}</td>' for cell in cells)}</tr>"
    )


def _interval(estimate: object) -> str:
    value, low, high = (float(getattr(estimate, name)) for name in ("value", "low", "high"))
    return f'{number(value, 3)}<br><span class="ci">({number(low, 2)} to {number(high, 2)})</span>'


def _saved(first: BiasResult, second: BiasResult, what: Asked) -> str:
    rows = []
    for name, one in first.metrics.items():
        two, fixed = second.metrics[name], (what.attribute, name, what.k, what.target, first.mode)
        chance = (one.chance.value, one.chance.low, one.chance.high)
        rows += [
            [occupation, *fixed, *(m[i] for m in (one.values, one.low, one.high)),
             *(m[i] for m in (two.values, two.low, two.high)), *chance]
            for i, occupation in enumerate(what.occupations)
        ]  # fmt: skip
        level = (one.chance_mean.value, one.chance_mean.low, one.chance_mean.high)
        means = [cell for e in (one.mean, two.mean) for cell in (e.value, e.low, e.high)]
        rows.append(["(mean)", *fixed, *means, *level])
    return csv_text(COLUMNS, rows)
