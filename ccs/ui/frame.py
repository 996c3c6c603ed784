"""What stands around every view: the page's head, the strip of what is off, the column of heads and images.

That column has the form, too, by which a model is taken apart.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from markupsafe import Markup

from ccs.data.untrusted import parse_address
from ccs.errors import InputError
from ccs.heads import TOWERS, Head, HeadSet, Intervention
from ccs.locate.comparison import Pair
from ccs.model.loading.footprint import require_room
from ccs.model.loading.sources import is_public
from ccs.texts.pools import POOLS
from ccs.texts.score import level
from ccs.ui.actions import ANOTHER, CUSTOM
from ccs.ui.html import count, factor, render
from ccs.ui.service.examples import example_names, example_pages, parse_example
from ccs.ui.service.model_cache import PHOTO, live, photographic, saw_drawings_only
from ccs.ui.service.records import NONE, PRINTED, HeadRecord
from ccs.ui.service.taking_apart import FEWEST, MOST, PHOTOGRAPHS, Request
from ccs.ui.session import Screen
from ccs.ui.state import line, one_of, parse_int
from ccs.ui.views import VIEWS, claims, classify, second
from ccs.ui.views.base import Figure
from ccs.ui.views.bias_query import BiasQuery
from ccs.ui.views.fairer import LOSSES

PHOTO_WORDS = "photo was taught 200 kinds of things from small photographs; its answers are often wrong."
GROUPS = {
    "computed": "computed: with texts and CCS",
    "live": "live: fetched when chosen",
    "named": "named here",
}
STEPS = 5  # shades of the grid
LISTED = 8  # heads that are off, by name
LABELED = 8  # up to this many heads per layer, a cell has room for its concept
COUNT = 1000  # photographs to take a model apart on
COPIES, BESIDE = 3, 2**30  # of the weights that a run holds, and bytes of memory that it takes besides


def regions(screen: Screen, body: Markup) -> dict[str, str]:
    """The page by region, its view with this body."""
    view = VIEWS[screen.state.tab]
    main = Markup('<div class="view view-{}" id="view" tabindex="-1"><h2 class="sr">{}</h2>{}</div>')
    return {
        "top": top(screen),
        "strip": _strip(screen),
        "left": _column(screen),
        "main": main.format(view.name, view.title, body),
    }


# -- the head ------------------------------------------------------------------------------------------------


def top(screen: Screen) -> Markup:
    """The head of the page: which model, which view, what to know first, and how to take the screen along."""
    app, session, name = screen.app, screen.session, screen.state.model
    sizes = {n: f"{n} · {size / 1e9:.1f} GB" for n, size in live().items()}  # of what is fetched
    return render(
        "top.html",
        model=name,
        groups=[
            (GROUPS[group], [(n, sizes.get(n, n)) for n in names]) for group, names in app.groups.items()
        ],
        another=ANOTHER,
        session=session,
        views=VIEWS.values(),
        view=VIEWS[screen.state.tab],
        drawings=saw_drawings_only(name) and bool(session.uploads),
        photographic=photographic(),
        standing=[*app.collection.notices, *_standing(screen)],
    )


def _standing(screen: Screen) -> list[str]:
    """Notices that hold as long as this model is shown."""
    name, records = screen.state.model, screen.records
    told = [PHOTO_WORDS] if name == PHOTO else []
    if records.results is None:
        printed = records.published
        what = "texts. The grid shows what the study printed of them." if printed else "texts and no scores."
        tables = f"There are no tables for {name}, so its heads have no {what} They can be switched off."
        return [tables, *told]
    try:
        if screen.has_model and screen.model.weights_hash != records.weights:
            told.append(
                f"The tables of {name} were computed from other weights than those loaded here; texts and "
                "scores may not match it. Compute them again with: clip-ccs compute"
            )
    except InputError as error:
        return [str(error)]
    return told


# -- the strip -----------------------------------------------------------------------------------------------


def _strip(screen: Screen) -> Markup:
    """What is off, and what that changes; what is not known at once is left out."""
    answers = skew = None
    if screen.state.off and screen.has_model:
        with suppress(InputError):
            moves = classify.moves(screen)
            answers = sum(move.answer != move.now for move in moves), len(moves)
            skew = _skew(screen)
    return render("strip.html", state=screen.state, session=screen.session, answers=answers, skew=skew)


def _skew(screen: Screen) -> tuple[float, float, BiasQuery] | None:
    """Mean MaxSkew before and after, and what it is of; None where it is not known."""
    model, galleries, plans = screen.model, screen.app.galleries, (HeadSet(), screen.state.off)
    query = BiasQuery.of(screen.app, screen.state)
    name = query.gallery.name
    if not galleries.ready(model, name, screen.state.off):
        return None
    both = (galleries.embeddings(model, name, off) for off in plans)
    texts = (query.texts(screen.session, model, off) for off in plans)
    before, now = map(query.mean_skew, both, texts)
    return before, now, query


# -- the column of heads and images --------------------------------------------------------------------------


def _column(screen: Screen) -> Markup:
    state, session, heads = screen.state, screen.session, screen.heads
    records = screen.records
    current = next((name for name, off in records.presets.items() if off == state.off), CUSTOM)
    presets = [(name, _preset_words(name, off)) for name, off in records.presets.items()]
    if current == CUSTOM:
        presets = [(CUSTOM, f"your own selection: {count(len(state.off), 'head')}"), *presets]
    example, page = parse_example(state.example)
    pairs = second.pairs(screen)
    return render(
        "left.html",
        state=state,
        session=session,
        records=records,
        heads=heads,
        table=_table(screen, pairs),
        cells=_cells(screen),
        towers=[(letter, name.capitalize()) for letter, name in TOWERS.items()],
        marks={head: second.mark(pair) for head, pair in pairs.items()},
        pairs=pairs,
        other=screen.app.records(state.second) if pairs else None,
        seconds=[("", "no other model"), *(name for name in screen.app.models if name != state.model)],
        focus=state.head if state.head in heads else next(iter(heads), None),
        labeled=LABELED,
        step=_step,
        steps=_steps,
        level=level,
        presets=presets,
        current=current,
        images=screen.images.shown,
        examples=[(f"{n}:0", n) for n in example_names(state.model)],
        truth=claims.truth(state.model),
        taught=claims.revealed(session),
        losses=LOSSES,
        example=example,
        page=page,
        pages=example_pages(example),
        apart=_apart(screen),
        matter=claims.that_matter(records),
        off_now=[(records.head(head), Intervention.of(state.off - {head})) for head in state.off][:LISTED],
    )


def _preset_words(name: str, off: HeadSet) -> str:
    """A preset as it is listed."""
    if name == NONE:
        return "none: all heads on"
    return f"{name}{' CCS' if name in PRINTED else ''}: {count(len(off), 'head')}"


def _table(screen: Screen, pairs: Mapping[Head, Pair]) -> Figure:
    """The grid as a table, which its button saves. pairs: the heads of a second model."""
    records, off, rows = screen.records, screen.state.off, []
    for head in screen.heads:
        one, pair = records.head(head), pairs.get(head)
        score = one.score if one.published else one.ccs
        row = [head, one.concept, score, one.k, one.level, one.share, one.variance, factor(off, head)]
        beside = [pair.second, round(pair.alike, 4), pair.changed] if pair else [""] * 3
        rows.append([*row, *(beside if pairs else [])])
    columns = ["head", "concept", "CCS", "K", "level", "share", "variance", "factor"]
    columns += ["other head", "alike", "changed"] if pairs else []
    unit = "CCS, concept and level as published" if records.published else "CCS of K texts"
    made = {"other model": screen.state.second} if pairs else {}
    return Figure("heads", f"Heads of {records.model}", unit, columns, rows, made=made)


def _steps(ccs: int, k: int) -> int:
    """The shade of a CCS of k texts."""
    return round(STEPS * ccs / k)


def _step(record: HeadRecord) -> int | str:
    """The shade of a head's cell."""
    if record.published:
        return {"high": 5, "moderate": 3}.get(record.level, 1)
    return "none" if record.ccs is None else _steps(record.ccs, record.k)


def _cells(screen: Screen) -> list[tuple[int, list[HeadRecord | None]]]:
    """The rows of the grid: a layer and its heads, None for one that the model does not have."""
    records, heads, tower = screen.records, screen.heads, screen.state.tower
    columns = max((head.head for head in heads), default=-1) + 1
    rows = {h.layer: [Head(h.layer, i, tower) for i in range(columns)] for h in heads}
    return [(layer, [records.head(h) if h in heads else None for h in row]) for layer, row in rows.items()]


# -- taking the model apart ----------------------------------------------------------------------------------


def _apart(screen: Screen) -> Markup:
    """The form that asks for it, and the tables that are shown instead of the model's own."""
    app, state = screen.app, screen.state
    shown = bool(state.apart) and screen.records is not app.records(state.model)
    drawn = saw_drawings_only(state.model)
    return render(
        "apart.html",
        shown=shown,
        archive=base64.b64encode(app.kept.archive(state.apart)).decode() if shown else "",
        images=sorted(PHOTOGRAPHS, key=lambda name: (PHOTOGRAPHS[name] == "world") != drawn),
        count=COUNT,
        most=MOST,
        pools=sorted(POOLS, key=lambda name: (name == "world") != drawn),
    )


def asked_apart(screen: Screen, count: str, texts: str, own: str, images: str) -> Request:
    """The run that the form asks for; InputError where there can be none."""
    number = parse_int(count, "number of photographs")
    if not FEWEST <= number <= MOST:
        raise InputError(f"{number} photographs are asked for; {FEWEST} to {MOST:,} can be.")
    pool = one_of(texts, POOLS, "pool of texts")
    if own := line(own):
        spec, _, _ = parse_address(own)
    else:
        spec = PHOTOGRAPHS[one_of(images, tuple(PHOTOGRAPHS), "set of photographs")]
    name, model = screen.state.model, screen.model
    needed = COPIES * sum(values.nbytes for values in model.clip.state_dict().values()) + BESIDE
    require_room(f"Taking {model.name} apart", needed)
    place = screen.app.model_cache.place(name)
    if not is_public(place) and Path(place).is_dir():
        place = str(Path(place).resolve())  # the run is in a folder of its own
    return Request(name, place, model.weights_hash, spec, number, pool)
