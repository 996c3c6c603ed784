"""The page: its regions of HTML around a view, and the work that a screen needs before it is complete."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress

from markupsafe import Markup, escape

from ccs.app.controls import CUSTOM
from ccs.app.html import count, factor, fill, render
from ccs.app.jobs import Job, Update, Work
from ccs.app.services.analyses import DATASETS, DEFAULT_COUNT, MAX_COUNT
from ccs.app.services.examples import example_names, example_pages, parse_example
from ccs.app.services.model_cache import PHOTO, live_models, photographic, saw_drawings_only
from ccs.app.services.records import NONE, PRINTED, HeadRecord
from ccs.app.session import App, Screen
from ccs.app.views import VIEWS, claims, classify
from ccs.app.views.base import MADE_WITH, Empty, Figure
from ccs.app.views.fairer import LOSSES
from ccs.app.views.query import BiasQuery
from ccs.errors import InputError
from ccs.heads import ENCODERS, Head, HeadSet, Intervention
from ccs.texts.pools import POOLS
from ccs.texts.score import level

log = logging.getLogger(__name__)

PHOTO_WORDS = "photo knows 200 kinds of things from small photographs; its answers are often wrong."
GROUPS = {
    "computed": "With texts and CCS",
    "live": "Without scores; loaded when chosen",
    "named": "Named here",
}
STEPS = 5  # shades of the grid
LISTED = 8  # ablated heads, by name
LABELED = 8  # up to this many heads per layer, a cell has room for its concept


def work(screen: Screen, fresh: bool = True) -> Work:
    """Do what a screen needs: yields its regions as far as they are ready, progress, and the whole page.

    Args:
        screen: the screen.
        fresh: False if the browser shows the same view already, whose numbers then stay until new ones are
            there.
    """
    view = VIEWS[screen.state.tab]
    try:
        if _missing_models(screen) or (fresh and _is_pending(screen)):
            yield Update(0.0, "Computing", regions(screen, complete=False))
        news = _news(screen)
        for share, doing in _prepare(screen):
            if (now := _news(screen)) != news:
                news = now
                yield Update(share, doing, regions(screen, complete=False))
            yield Update(share, doing)
        yield Update(1.0, "", regions(screen))
    except InputError as error:
        yield Update(1.0, "", _failed(screen, str(error)))
    except Exception:
        log.exception("the view %r failed", view.name)
        yield Update(1.0, "", _failed(screen, "Something went wrong; the error was logged."))


def canceled(screen: Screen) -> Work:
    """Tell that the work was canceled, and do none."""
    yield Update(1.0, "", {"top": _top(screen)})


def _missing_models(screen: Screen) -> list[str]:
    names = VIEWS[screen.state.tab].models(screen.state)
    return [name for name in names if name not in screen.app.model_cache.loaded()]


def _is_pending(screen: Screen) -> bool:
    with suppress(InputError):
        return VIEWS[screen.state.tab].pending(screen)
    return False


def _news(screen: Screen) -> object:
    """What can be shown of a view while `prepare` works: where it changes, the view is sent again."""
    with suppress(InputError):
        return None if _missing_models(screen) else VIEWS[screen.state.tab].news(screen)
    return None


def _prepare(screen: Screen) -> Iterator[tuple[float, str]]:
    with suppress(InputError):  # the view says it, next to what can be shown all the same
        for name in _missing_models(screen):
            for doing in screen.app.model_cache.loading(name, seconds=3600):
                yield 0.0, doing
        yield from VIEWS[screen.state.tab].prepare(screen)


def regions(screen: Screen, complete: bool = True) -> dict[str, str]:
    """Return the page's regions as HTML; with `complete` False, what can be shown without long work."""
    state, view = screen.state, VIEWS[screen.state.tab]
    weights = screen.model.weights_hash if screen.has_model else screen.records.weights
    made = {"model": state.model, "weights": weights[:16], "gallery": "", "template": ""}
    before = MADE_WITH.set({**made, "ablated heads": state.ablate})
    try:
        return _around(screen, view.render(screen, complete))
    finally:
        MADE_WITH.reset(before)


def _failed(screen: Screen, words: str) -> dict[str, str]:
    """Return the page without its view: the rest of it still works."""
    return _around(screen, escape(Empty("This view can't be shown", words)))


def _around(screen: Screen, body: Markup) -> dict[str, str]:
    view = VIEWS[screen.state.tab]
    main = Markup('<div class="view view-{}" id="view" tabindex="-1"><h2 class="sr">{}</h2>{}</div>')
    return {
        "top": _top(screen),
        "strip": _strip(screen),
        "left": _column(screen),
        "main": main.format(view.name, view.title, body),
    }


def status(jobs: list[Job]) -> str:
    """Return the region that tells of work in progress."""
    return render("status.html", jobs=jobs)


def fragment(html: Mapping[str, str], have: Mapping[str, str], page: str, address: str) -> str:
    """Return the regions that differ from those that the browser has.

    Args:
        html: the regions.
        have: the digests of the browser's regions.
        page: the page's key.
        address: the query of its screen.
    """
    parts = []
    for name, region in html.items():
        digest = hashlib.blake2b(region.encode(), digest_size=6).hexdigest()
        if have.get(name) != digest:
            parts.append(
                f'<div id="region-{name}" data-digest="{digest}">{fill(region, page, address)}</div>'
            )
    return "".join(parts)


# -- the head ------------------------------------------------------------------------------------------------


def _top(screen: Screen) -> Markup:
    app, session, name = screen.app, screen.session, screen.state.model
    groups = [(GROUPS[group], [_listed(app, n) for n in names]) for group, names in app.groups.items()]
    return render(
        "top.html",
        model=name,
        groups=groups,
        session=session,
        state=screen.state,
        views=VIEWS.values(),
        view=VIEWS[screen.state.tab],
        drawings=saw_drawings_only(name) and bool(session.uploads),
        photographic=photographic(),
        standing=[*app.collection.notices, *_standing(screen)],
    )


def _listed(app: App, name: str) -> tuple[str, str]:
    """A model with what it is, for the list."""
    if saw_drawings_only(name):
        return name, f"{name} · toy model, drawings"
    if name == PHOTO:
        return name, f"{name} · toy model, photographs"
    if app.model_cache.failure(name):
        return name, f"{name} · unavailable here"
    size = live_models().get(name)
    return name, f"{name} · CLIP" + (f", {size / 1e9:.1f} GB" if size else "")


def _standing(screen: Screen) -> list[str]:
    """Notices that hold as long as this model is shown."""
    name, records = screen.state.model, screen.records
    notices = [PHOTO_WORDS] if name == PHOTO else []
    if records.results is None:
        what = "texts. The grid shows the paper's levels." if records.published else "texts or scores."
        return [f"There are no tables for {name}, so its heads have no {what}", *notices]
    try:
        if screen.has_model and screen.model.weights_hash != records.weights:
            notices.append(
                f"The tables of {name} were computed from other weights than those loaded here; texts and "
                "scores may not match. Recompute them with: clip-ccs compute"
            )
    except InputError as error:
        return [str(error)]
    return notices


# -- the strip -----------------------------------------------------------------------------------------------


def _strip(screen: Screen) -> Markup:
    """Which heads are ablated, and what that changes as far as it is known."""
    answers = skew = None
    if screen.state.ablate and screen.has_model:
        with suppress(InputError):
            moves = classify.moves(screen)
            answers = sum(move.answer != move.now for move in moves), len(moves)
            skew = _skew(screen)
    return render("strip.html", state=screen.state, session=screen.session, answers=answers, skew=skew)


def _skew(screen: Screen) -> tuple[float, float, BiasQuery] | None:
    """Return the mean MaxSkew before and after and its query, None if it isn't known."""
    model, galleries, plans = screen.model, screen.app.galleries, (HeadSet(), screen.state.ablate)
    query = BiasQuery.of(screen.app, screen.state)
    name = query.gallery.name
    if not galleries.ready(model, name, screen.state.ablate):
        return None
    images = (galleries.embeddings(model, name, heads) for heads in plans)
    texts = (query.texts(screen.session, model, heads) for heads in plans)
    before, after = map(query.mean_skew, images, texts)
    return before, after, query


# -- the column of heads and images --------------------------------------------------------------------------


def _column(screen: Screen) -> Markup:
    state, records, heads = screen.state, screen.records, screen.heads
    current = next((name for name, preset in records.presets.items() if preset == state.ablate), CUSTOM)
    presets = [(name, _describe_preset(name, preset)) for name, preset in records.presets.items()]
    if current == CUSTOM:
        presets = [(CUSTOM, f"your own selection: {count(len(state.ablate), 'head')}"), *presets]
    example, number = parse_example(state.example)
    drawings = saw_drawings_only(state.model)
    return render(
        "left.html",
        state=state,
        session=screen.session,
        records=records,
        heads=heads,
        table=_table(screen),
        cells=_cells(screen),
        encoders=[(letter, name.capitalize()) for letter, name in ENCODERS.items()],
        focus=state.head if state.head in heads else next(iter(heads), None),
        labeled=LABELED,
        step=_step,
        steps=_steps,
        level=level,
        presets=presets,
        current=current,
        images=screen.images.shown,
        examples=[(f"{name}:0", name) for name in example_names(state.model)],
        truth=claims.truth(state.model),
        taught=claims.lessons(state.model),
        losses=LOSSES,
        example=example,
        number=number,
        pages=example_pages(example),
        analyzed=bool(state.analysis) and records is not screen.app.records(state.model),
        datasets=sorted(DATASETS, key=lambda name: (DATASETS[name] == "world") != drawings),
        count=DEFAULT_COUNT,
        max_count=MAX_COUNT,
        pools=sorted(POOLS, key=lambda name: (name == "world") != drawings),
        matter=claims.that_matter(records),
        ablated=[
            (records.head(head), Intervention.of(state.ablate - {head})) for head in [*state.ablate][:LISTED]
        ],
    )


def _describe_preset(name: str, heads: HeadSet) -> str:
    if name == NONE:
        return "none: all heads on"
    return f"{name}{' CCS' if name in PRINTED else ''}: {count(len(heads), 'head')}"


def _table(screen: Screen) -> Figure:
    """Return the grid as a table, which its button saves."""
    records, rows = screen.records, []
    for head in screen.heads:
        record = records.head(head)
        score = record.score if record.published else record.ccs
        row = [head, record.concept, score, record.k, record.level, record.share, record.variance]
        rows.append([*row, factor(screen.state.ablate, head)])
    columns = ["head", "concept", "CCS", "K", "level", "share", "variance", "factor"]
    unit = "CCS, concept, and level as published" if records.published else "CCS of K texts"
    return Figure("heads", f"Heads of {records.model}", unit, columns, rows)


def _steps(ccs: int, k: int) -> int:
    """Return the shade of a CCS of k texts."""
    return round(STEPS * ccs / k)


def _step(record: HeadRecord) -> int | str:
    """Return the shade of a head's cell."""
    if record.published:
        return {"high": 5, "moderate": 3}.get(record.level, 1)
    return "none" if record.ccs is None else _steps(record.ccs, record.k)


def _cells(screen: Screen) -> list[tuple[int, list[HeadRecord | None]]]:
    """Return the rows of the grid: a layer and its heads, None for one that the model doesn't have."""
    records, heads, encoder = screen.records, screen.heads, screen.state.encoder
    columns = max((head.head for head in heads), default=-1) + 1
    rows = {h.layer: [Head(h.layer, i, encoder) for i in range(columns)] for h in heads}
    return [(layer, [records.head(h) if h in heads else None for h in row]) for layer, row in rows.items()]
