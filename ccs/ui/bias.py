"""The view Bias: who comes first when pictures of people are ranked for an occupation, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ccs import bias, faults, ranking
from ccs.bias import BiasResult, MetricName
from ccs.datasets.sets import BiasSet
from ccs.errors import InputError
from ccs.models import Model
from ccs.ui.charts import Mark, strip
from ccs.ui.parts import button, csv_text, empty, esc, figure, head_row, number, options, percent, signed
from ccs.ui.session import Session
from ccs.zeroshot import class_weights

if TYPE_CHECKING:
    from ccs.ui.core import App

FACES = 12
OPENING = ("judge", "artist", "teacher")
OWN = "the gallery’s own"
STUDY = "the study’s four"
DRAWS = 400
LARGE = 200  # pictures from which on an instant estimate is worth having


@dataclass(frozen=True)
class Asked:
    """What is measured: every choice that the figures depend on."""

    gallery: BiasSet
    attribute: str
    occupations: tuple[str, ...]
    templates: tuple[str, ...]
    k: int
    target: str
    faulty: bool


def asked(app: App, session: Session) -> Asked:
    """The choices in force; what the visitor left open is the gallery's own."""
    from ccs import paper

    state = session.state
    gallery = app.galleries.get(state.gallery or app.galleries.names[0])
    attribute = state.attribute if state.attribute in gallery.groups else next(iter(gallery.groups))
    occupations = (
        state.occupations or tuple(o for o in OPENING if o in gallery.occupations) or gallery.occupations[:3]
    )
    templates = {"": gallery.templates, "study": paper.templates()}.get(
        state.bias_template, (state.bias_template,)
    )
    k = state.k or gallery.k.get(attribute, max(1, len(gallery.images) // 10))
    return Asked(
        gallery, attribute, occupations, templates, min(k, len(gallery.images)), state.target, state.faulty
    )


def texts(session: Session, model: Model, what: Asked) -> np.ndarray:
    """Unit text embeddings [occupations, d], templates averaged; kept for the next click."""
    key = ("occupations", model.weights_hash, what.occupations, what.templates)
    return session.memory.get(key, lambda: class_weights(model, what.occupations, what.templates))


def measure(
    before: np.ndarray, after: np.ndarray, occupations: np.ndarray, what: Asked
) -> tuple[BiasResult, BiasResult]:
    """The results with nothing off and with the heads off, on the same resampled images."""
    fault: faults.Fault | None = "order" if what.faulty else None
    first, second = bias.measure_plans(
        [before, after],
        occupations,
        what.gallery.groups[what.attribute],
        what.k,
        target="uniform" if what.target == "uniform" else "pool",
        fault=fault,
        draws=DRAWS,
    )
    return first, second


def top(embeddings: np.ndarray, occupation: np.ndarray, n: int) -> np.ndarray:
    """Indices of the `n` pictures nearest to the occupation's text, best first."""
    scores = ranking.products(ranking.unit(occupation[None], "text"), ranking.unit(embeddings, "images"))
    return np.asarray(ranking.top(scores, n)[0])


def prepare(app: App, session: Session) -> Iterator[tuple[float, str]]:
    """The long work before an exact answer: yields (share done, what is being done)."""
    try:
        model = app.shelf.get(session.state.model)
        name = asked(app, session).gallery.name
    except InputError:
        return
    n = len(app.galleries.get(name).images)
    for share in app.galleries.seen(model, name):
        yield share, f"Looking at {n} pictures"
    if n >= LARGE:
        for share in app.galleries.collect(model, name):
            yield share, "Collecting direct effects, for instant estimates from now on"
    for share in app.galleries.pruned(model, name, session.state.off):
        yield share, f"Looking again with {len(session.state.off)} heads off"


def render(app: App, session: Session, exact: bool = True) -> str:
    """The view as HTML. With `exact` False, from the direct effects that are known (an instant estimate)."""
    what = asked(app, session)
    form = _form(app, session, what)
    try:
        model = app.shelf.get(session.state.model)
        off, name = session.state.off, what.gallery.name
        before = app.galleries.base(model, name)
        estimate = None if exact else app.galleries.estimate(model, name, off)
        after = estimate if estimate is not None else app.galleries.embeddings(model, name, off)
        rows = texts(session, model, what)
        first, second = measure(before, after, rows, what)
    except InputError as error:
        return form + empty("Nothing to measure", str(error))
    shown = (
        "exact: each head’s output is zero in the forward pass"
        if exact
        else "an instant estimate from direct effects; the exact answer follows"
    )
    parts = [
        f'<p class="lead" data-exact="{int(exact)}">{_summary(first, second, what, len(off))} <span '
        f'class="muted">({shown})</span></p>',
        _skew(first, second, what),
        _faces(app, before, after, rows[0], what),
        _groups(first, second, what),
        _table(first, second, what),
    ]
    return form + "".join(parts)


def _summary(first: BiasResult, second: BiasResult, what: Asked, n_off: int) -> str:
    one, two = first.max_skew, second.max_skew
    inside = "inside" if two.chance_mean.low <= two.mean.value <= two.chance_mean.high else "outside"
    many = (
        f"over {len(what.occupations)} occupations"
        if len(what.occupations) > 1
        else f"for “{esc(what.occupations[0])}”"
    )
    if not n_off:
        return (
            f"Mean MaxSkew by {esc(what.attribute)} {many}: <b>{number(one.mean.value, 2)}</b>; random "
            "rankings score "
            f"{number(one.chance_mean.value, 2)} ({number(one.chance_mean.low, 2)} to "
            f"{number(one.chance_mean.high, 2)}). No head is off."
        )
    effect = bias.compare(second, first)
    return (
        f"Mean MaxSkew by {esc(what.attribute)} {many}: <b>{number(one.mean.value, 2)} → "
        f"{number(two.mean.value, 2)}</b> with {n_off} "
        f"off, a change of {signed(effect.value, 2)} ({number(effect.low, 2)} to {number(effect.high, 2)}); "
        f"{inside} what random "
        f"rankings score ({number(two.chance_mean.low, 2)} to {number(two.chance_mean.high, 2)})."
    )


def _skew(first: BiasResult, second: BiasResult, what: Asked) -> str:
    one, two = first.max_skew, second.max_skew
    chance = one.chance.low, one.chance.value, one.chance.high
    rows = [
        (
            occupation,
            (
                Mark(float(one.values[i]), float(one.low[i]), float(one.high[i]), "before"),
                Mark(float(two.values[i]), float(two.low[i]), float(two.high[i]), "after"),
            ),
            chance,
        )
        for i, occupation in enumerate(what.occupations[:30])
    ]
    if len(what.occupations) > 1:
        mean = one.chance_mean.low, one.chance_mean.value, one.chance_mean.high
        rows.append(
            (
                "mean",
                (
                    Mark(one.mean.value, one.mean.low, one.mean.high, "before"),
                    Mark(two.mean.value, two.mean.low, two.mean.high, "after"),
                ),
                mean,
            )
        )
    note = ""
    if what.faulty:
        note = (
            "<p class=warn>As in the study’s released code: each group’s share is divided by another group’s "
            "share of the pool. "
            "These figures reproduce the fault and say nothing about the model.</p>"
        )
    return figure(
        f"MaxSkew@{what.k} by {what.attribute}",
        note
        + '<p class="keys-line"><span><i class="key before"></i>before</span><span><i class="key after"></i>'
        "after</span>"
        '<span><i class="key chance"></i>what 95% of random rankings score</span></p>'
        + strip(rows, label=f"MaxSkew at {what.k} by {what.attribute}, before and after", low=0.0),
        what="The pictures are ranked by cosine with the occupation’s text. For each group, skew is the "
        "natural logarithm of its "
        f"share of the top {what.k} divided by its share of the "
        f"{'pool' if what.target == 'pool' else 'groups, each counted alike'}. "
        "<b>MaxSkew</b> is the largest: 0 is even, ln 2 = 0.69 is a group twice as frequent as it should be. "
        "Some skew comes "
        "about by chance, so the grey band shows what rankings without regard to groups score. Whiskers: 95% "
        "intervals from "
        "resampled images.",
        unit="natural log of a ratio of shares",
        name="maxskew",
        table=_saved(first, second, what),
    )


def _faces(app: App, before: np.ndarray, after: np.ndarray, occupation: np.ndarray, what: Asked) -> str:
    groups = what.gallery.groups[what.attribute]
    n = min(FACES, len(groups))
    old, new = top(before, occupation, n), top(after, occupation, n)
    rows, saved = [], []
    for title, order, others in (("before", old, new), ("after", new, old)):
        faces = "".join(
            f'<figure class="{"" if i in others else "fresh"}"><img '
            f'src="{app.face(what.gallery.name, int(i))}" '
            f'alt="rank {rank}, {esc(groups[i])}"><figcaption>{rank}. '
            f"{esc(groups[i])}{'' if i in others else ' ◆'}</figcaption></figure>"
            for rank, i in enumerate(order, 1)
        )
        rows.append(f'<h4><i class="key {title}"></i>{title}</h4><div class="strip faces">{faces}</div>')
        saved += [[title, rank, int(i), groups[i]] for rank, i in enumerate(order, 1)]
    return figure(
        f"First {n} pictures for “{what.occupations[0]}”",
        "".join(rows),
        what=f"The first {n} of {len(groups)} pictures, by cosine with the first occupation’s text. ◆ marks "
        "a picture that only "
        "one of the two rankings puts there. Below each: its rank and its group. The drawn faces are "
        "balanced over groups and show "
        "no sign of an occupation, so whom the model puts first is its own association.",
        unit="rank",
        name="first-pictures",
        table=csv_text(["ranking", "rank", "picture", what.attribute], saved),
    )


def _groups(first: BiasResult, second: BiasResult, what: Asked) -> str:
    pool = first.pool / first.pool.sum()
    rows, saved = [], []
    for g, group in enumerate(first.groups):
        shares = first.top[0, g] / first.k, second.top[0, g] / second.k
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
        f"Who is in the top {what.k} for “{what.occupations[0]}”",
        '<table class="groups"><thead><tr><th scope="col">group</th><th scope="col"><i class="key before">'
        "</i>before "
        '<i class="key after"></i>after</th><th scope="col" class="num">pool</th></tr></thead><tbody>'
        + "".join(rows)
        + "</tbody></table>",
        what=f"Each group’s share of the top {what.k}, before and after; the upright line is its share of "
        "the whole pool, which an even "
        "ranking would give.",
        unit="share of the top, %",
        name="groups",
        table=csv_text(["group", "before", "after", "pool"], saved),
    )


def _table(first: BiasResult, second: BiasResult, what: Asked) -> str:
    names: list[MetricName] = [name for name in bias.METRICS if name in first.metrics]
    header = head_row("occupation", *(column for name in names for column in (f"#{name} before", "#after")))
    rows = []
    for i, occupation in enumerate(what.occupations):
        cells = "".join(
            f"<td class=num>{number(float(r.metrics[name].values[i]), 3)}</td>"
            for name in names
            for r in (first, second)
        )
        rows.append(f'<tr><th scope="row">{esc(occupation)}</th>{cells}</tr>')
    for label, kind in (("mean", "mean"), ("sum", "sum"), ("chance, mean", "chance_mean")):
        cells = "".join(
            f"<td class=num>{number(float(getattr(r.metrics[name], kind).value), 3)}</td>"
            for name in names
            for r in (first, second)
        )
        rows.append(f'<tr class="total"><th scope="row">{label}</th>{cells}</tr>')
    ties = int(max(first.ties.max(), second.ties.max()))
    return figure(
        "By occupation",
        f'<div class="scroll" tabindex="0"><table class="nums">{header}<tbody>{"".join(rows)}</tbody></table>'
        "</div>",
        what="<b>MaxSkew</b>: the most over-represented group. <b>MinSkew</b>: the most under-represented "
        "one, below 0; a group "
        "without a picture counts as half a picture. <b>NDKL</b>: the divergence between the groups’ shares "
        "at every depth of the ranking and "
        "their target, weighted towards the top; 0 is even. <b>Sum</b> over occupations is what the study "
        "prints; <b>chance</b> is "
        f"the mean over random rankings. Equal scores at the cut: {ties}.",
        unit="nats",
        name="by-occupation",
        table=_saved(first, second, what),
    )


def _saved(first: BiasResult, second: BiasResult, what: Asked) -> str:
    rows = [
        [
            occupation,
            what.attribute,
            name,
            what.k,
            what.target,
            first.mode,
            one.values[i],
            one.low[i],
            one.high[i],
            two.values[i],
            two.low[i],
            two.high[i],
            one.chance.value,
            one.chance.low,
            one.chance.high,
        ]
        for name, one in first.metrics.items()
        for two in (second.metrics[name],)
        for i, occupation in enumerate(what.occupations)
    ]
    return csv_text(
        [
            "occupation",
            "attribute",
            "metric",
            "k",
            "target",
            "mode",
            "before",
            "before low",
            "before high",
            "after",
            "after low",
            "after high",
            "chance",
            "chance low",
            "chance high",
        ],
        rows,
    )


def _form(app: App, session: Session, what: Asked) -> str:
    from ccs import paper

    state, n = session.state, len(what.gallery.images)
    templates = [("", OWN), ("study", STUDY), ("a photo of a {}", "a photo of a {}")]
    if state.bias_template not in [value for value, _ in templates]:
        templates.append((state.bias_template, state.bias_template))
    listed = sorted({*what.gallery.occupations, *paper.occupations()})
    choices = options([("", "add one …"), *((o, o) for o in listed)], "")
    galleries = [
        (name, f"{name} ({len(app.galleries.get(name).images)} pictures)") for name in app.galleries.names
    ]
    fault = (
        '<label class="check"><input type="checkbox" name="faulty" value="1"'
        f"{' checked' if state.faulty else ''}><span>as the study’s code computed it</span></label>"
    )
    return (
        '<form class="panel ask" data-do="bias"><div class="row"><label class="field grow"><span>'
        "Occupations, one a line or between commas; "
        'any words will do</span><textarea name="occupations" rows="2" maxlength="20000">'
        f"{esc(', '.join(what.occupations))}</textarea></label>"
        '<div class="stack"><label class="field"><span>From the lists</span><select data-add="occupations">'
        f"{choices}</select></label>"
        f'<div class="buttons">{button("All 104 of the study", "occupations", value="study")}'
        f"{button('All of the drawn world', 'occupations', value='world')}</div></div></div>"
        '<div class="row"><label class="field"><span>Gallery</span><select name="gallery">'
        f"{options(galleries, what.gallery.name)}</select></label>"
        '<label class="field"><span>Attribute</span><select name="attribute">'
        f"{options([(a, a) for a in what.gallery.groups], what.attribute)}</select></label>"
        f'<label class="field"><span>Top K of {n}</span><input type="number" name="k" min="1" max="{n}" '
        f'value="{what.k}"></label>'
        '<label class="field"><span>Templates</span><select name="template">'
        f"{options(templates, state.bias_template)}</select></label>"
        '<label class="field"><span>Fair share is</span><select name="target">'
        f"{options([('pool', 'the pool’s share'), ('uniform', 'the same for all')], state.target)}</select>"
        "</label>"
        f'{fault}</div><div class="row"><button type="submit" class="primary">Measure</button></div></form>'
    )
