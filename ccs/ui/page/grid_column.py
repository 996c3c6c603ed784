"""The column that all views share: the grid of heads, what is switched off, and the images at hand."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from ccs.heads import TOWERS, Head, HeadSet
from ccs.intervention import Intervention
from ccs.locate.comparison import Pair
from ccs.ui.actions import CUSTOM
from ccs.ui.html import factor
from ccs.ui.html import render as render_template
from ccs.ui.page import apart_form
from ccs.ui.service.examples import example_names, example_pages, parse_example
from ccs.ui.service.records import NONE, PRINTED, HeadRecord, ModelRecords
from ccs.ui.state import State
from ccs.ui.views import claims, second
from ccs.ui.views.base import Figure
from ccs.ui.views.bias.fairer import LOSSES
from ccs.ui.views.screen import Screen

STEPS = 5
LISTED = 8  # heads that are off, by name
LABELED = 8  # up to this many heads per layer, a cell has room for its concept


def table(records: ModelRecords, heads: HeadSet, off: HeadSet, pairs: Mapping[Head, Pair]) -> Figure:
    """The grid as a table, which its button saves. pairs: the heads of a second model."""
    beside = [
        [pairs[head].second, round(pairs[head].alike, 4), pairs[head].changed] if head in pairs else [""] * 3
        for head in heads
    ]
    rows = [
        [
            r.head,
            r.concept,
            r.score if r.published else r.ccs,
            r.k,
            r.level,
            r.share,
            r.variance,
            factor(off, r.head),
            *(other if pairs else []),
        ]
        for r, other in zip(map(records.head, heads), beside, strict=True)
    ]
    columns = ["head", "concept", "CCS", "K", "level", "share", "variance", "factor"]
    columns += ["other head", "alike", "changed"] if pairs else []
    unit = "CCS, concept and level as published" if records.published else "CCS of K texts"
    return Figure("heads", f"Heads of {records.model}", unit, columns, rows)


def render(screen: Screen) -> Markup:
    """The column as HTML."""
    state, session = screen.state, screen.session
    records, heads = screen.records, screen.heads
    found = records.presets
    current = next((name for name, off in found.items() if off == state.off), CUSTOM)
    listed = [(name, _preset_words(name, off)) for name, off in found.items()]
    if current == CUSTOM:
        listed = [(CUSTOM, f"your own selection ({len(state.off)})"), *listed]
    name, page = parse_example(state.example)
    pairs = second.pairs(screen)
    return render_template(
        "left.html",
        state=state,
        session=session,
        records=records,
        heads=heads,
        table=table(records, heads, state.off, pairs),
        cells=_cells(records, heads, state),
        towers=[(letter, name.capitalize()) for letter, name in TOWERS.items()],
        marks={head: second.mark(pair) for head, pair in pairs.items()},
        pairs=pairs,
        other=screen.app.records(state.second) if pairs else None,
        seconds=second.choices(screen) if state.tab == "heads" else [],
        focus=state.head if state.head in heads else next(iter(heads), None),
        labeled=LABELED,
        step=_step,
        steps=_steps,
        presets=listed,
        current=current,
        images=screen.images.shown,
        examples=[(f"{n}:0", n) for n in example_names(state.model)],
        truth=claims.truth(state.model),
        taught=claims.revealed(session),
        losses=LOSSES,
        example=name,
        page=page,
        pages=example_pages(name),
        apart=apart_form.render(screen),
        matter=claims.that_matter(records),
        off_now=[(records.head(head), Intervention.of(state.off - {head})) for head in state.off][:LISTED],
    )


def _preset_words(name: str, off: HeadSet) -> str:
    """A preset as it is listed."""
    if name == NONE:
        return "none: all heads on"
    return f"{name} CCS ({len(off)})" if name in PRINTED else f"{name} ({len(off)})"


def _steps(ccs: int, k: int) -> int:
    """The shade of a CCS of k texts."""
    return round(STEPS * ccs / k)


def _step(record: HeadRecord) -> int | str:
    """The shade of a head's cell."""
    if record.published:
        return {"high": 5, "moderate": 3}.get(record.level, 1)
    return "none" if record.ccs is None else _steps(record.ccs, record.k)


def _cells(records: ModelRecords, heads: HeadSet, state: State) -> list[tuple[int, list[HeadRecord | None]]]:
    """The rows of the grid: a layer and its heads, None for one that the model does not have."""
    columns = max((head.head for head in heads), default=-1) + 1
    return [
        (
            layer,
            [
                records.head(h) if (h := Head(layer, i, state.tower)) in heads else None
                for i in range(columns)
            ],
        )
        for layer in sorted({head.layer for head in heads})
    ]
