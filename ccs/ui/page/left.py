"""The column that all views share: the grid of heads, what is switched off, and the pictures at hand."""

from __future__ import annotations

import numpy as np

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.ui.page.grid import grid, legend
from ccs.ui.page.parts import button, csv_text, esc, options, select
from ccs.ui.records import Sheet
from ccs.ui.service.pictures import PAGES, example_names, parse_example, pictures
from ccs.ui.session import Session

LEVELS = (
    ("high", "high: every text fits"),
    ("moderate", "moderate: 3 of 5"),
    ("low", "low: 0 or 1"),
    ("between", "between these"),
    ("unknown", "unknown"),
)


def presets(sheet: Sheet, heads: HeadSet) -> dict[str, HeadSet]:
    """Sets of heads that can be switched off at once, by name; empty ones are left out."""
    found = {level: sheet.level(level) for level in ("high", "moderate", "low")}
    # As in the study and the tables, a concept's plan is its high heads; all it names are another choice.
    high = found["high"]
    found |= {f"concept:{concept}": HeadSet(sheet.concept(concept) & high) for concept in sheet.concepts}
    found |= {
        f"named:{concept}": sheet.concept(concept)
        for concept in sheet.concepts
        if sheet.concept(concept) - high
    }
    found |= published(sheet.model)
    found |= {
        f"layer:{layer}": HeadSet(h for h in heads if h.layer == layer)
        for layer in sorted({h.layer for h in heads})
    }
    return {"none": HeadSet(), **{name: HeadSet(off & heads) for name, off in found.items() if off & heads}}


def published(model: str) -> dict[str, HeadSet]:
    """The heads that the study prints for this model, by level; none for a model that is not in it."""
    from ccs import paper

    try:
        return {f"published-{level}": off for level, off in paper.head_sets(model).items()}
    except InputError:
        return {}


def random_heads(heads: HeadSet, n: int, seed: int, outside: HeadSet) -> HeadSet:
    """`n` heads drawn without replacement; outside of `outside` where enough are left, as the study does.

    InputError unless 1 <= n <= the number of heads.
    """
    if not 1 <= n <= len(heads):
        raise InputError(f"{n} random heads cannot be drawn; this model has 1 to {len(heads)}.")
    pool = list(heads - outside)
    if len(pool) < n:
        pool = list(heads)
    drawn = np.random.default_rng(seed).choice(len(pool), n, replace=False)
    return HeadSet(pool[i] for i in drawn)


def preset_name(name: str, off: HeadSet) -> str:
    """A preset as it is listed."""
    kind, _, rest = name.partition(":")
    words = {
        "none": "none: all heads on",
        "high": "high CCS",
        "moderate": "moderate CCS",
        "low": "low CCS",
        "concept": f"concept {rest}, high CCS",
        "named": f"concept {rest}, all its heads",
        "layer": f"all of layer {rest}",
        "published-high": "published high CCS",
        "published-moderate": "published moderate CCS",
        "published-low": "published low CCS",
    }[kind]
    return words if not off else f"{words} ({len(off)})"


def render(session: Session, sheet: Sheet, heads: HeadSet) -> str:
    """The column as HTML."""
    state = session.state
    kept = HeadSet(h for h in heads if sheet.card(h).matches(state.concept, state.level, state.find))
    drawn = grid(sheet, heads, state.off, state.head, kept, session.click)
    # On a narrow screen the panel is a sheet at the bottom, and the handle opens it.
    handle = (
        '<button type="button" class="handle" data-sheet="1" aria-expanded="false" '
        'aria-controls="heads-panel">'
        f"<b>Heads</b> {len(state.off)} of {len(heads)} off</button>"
    )
    return (
        '<div class="panel heads" id="heads-panel" data-name="heads" '
        f'data-csv="{esc(_saved(sheet, state.off))}">'
        f'{handle}<div class="line"><h2>Heads</h2>{_click(session.click)}</div>'
        f"{drawn}{legend(sheet.k)}{_off(session, sheet, heads)}"
        f'<div class="folds">{_filter(session, sheet, heads, kept)}{_random(session, sheet, heads)}</div>'
        "</div>"
        f"{_tray(session)}"
    )


def _saved(sheet: Sheet, off: HeadSet) -> str:
    return csv_text(
        ["head", "concept", "CCS", "K", "level", "share", "variance", "off"],
        [
            [h, c.label, "" if c.ccs is None else c.ccs, c.k, c.level, c.share, c.variance, int(h in off)]
            for h, c in sheet.cards.items()
        ],
    )


def _click(click: str) -> str:
    choices = "".join(
        f'<label><input type="radio" name="click" value="{value}" data-do="click"'
        f"{' checked' if click == value else ''}><span>{words}</span></label>"
        for value, words in (("inspect", "opens its card"), ("switch", "switches it off"))
    )
    return f'<fieldset class="segments"><legend>A click</legend>{choices}</fieldset>'


def _off(session: Session, sheet: Sheet, heads: HeadSet) -> str:
    state, history = session.state, session.history
    found = presets(sheet, heads)
    current = next((name for name, off in found.items() if off == state.off), "custom")
    listed = [(name, preset_name(name, off)) for name, off in found.items()]
    if current == "custom":
        listed = [("custom", f"a choice of my own ({len(state.off)})"), *listed]
    names = f"<code>{esc(state.off)}</code>" if state.off else "no head: the model as it is"
    buttons = (
        button("Undo", "undo", disabled=not history.past, key="undo")
        + button("Redo", "redo", disabled=not history.future, key="redo")
        + button("Reset", "preset", disabled=not state.off, value="none")
    )
    return (
        f'<div class="off-bar"><p aria-live="polite"><b>{len(state.off)} of {len(heads)} switched off:</b> '
        f"{names}</p>"
        f'<div class="row">{select("Switch off", "preset", listed, current)}<div class="buttons">'
        f"{buttons}</div></div></div>"
    )


def _random(session: Session, sheet: Sheet, heads: HeadSet) -> str:
    n = len(session.state.off) or max(1, len(sheet.level("high")))
    return (
        '<details class="filter" data-keep="random"><summary>Random heads</summary>'
        '<form data-do="random" class="row">'
        f'<label>heads <input type="number" name="n" min="1" max="{len(heads)}" value="{min(n, len(heads))}">'
        "</label>"
        '<label>seed <input type="number" name="seed" min="0" max="99999" value="0"></label>'
        '<button type="submit">Draw</button></form><p class="muted small">Drawn outside of the high-CCS '
        "heads, as in the study.</p></details>"
    )


def _filter(session: Session, sheet: Sheet, heads: HeadSet, kept: HeadSet) -> str:
    if not sheet.cards:
        return ""
    state = session.state
    concepts = [("", "any concept"), *((c, c) for c in sheet.concepts)]
    levels = [("", "any level"), *LEVELS]
    active = bool(state.concept or state.level or state.find)
    found = (
        f'<p aria-live="polite">{len(kept)} of {len(heads)} heads fit; the others are dimmed.</p>'
        if active
        else ""
    )
    return (
        f'<details class="filter" data-keep="find"{" open" if active else ""}><summary>Find heads</summary>'
        '<form data-do="filter" data-live="1" class="row">'
        '<label class="field"><span>Concept</span><select name="concept">'
        f"{options(concepts, state.concept)}</select></label>"
        f'<label class="field"><span>Level</span><select name="level">{options(levels, state.level)}</select>'
        "</label>"
        '<label class="field grow"><span>Words in its texts</span><input type="search" name="find" '
        f'maxlength="60" value="{esc(state.find)}"></label>'
        f"</form>{found}</details>"
    )


def _tray(session: Session) -> str:
    shown = pictures(session)
    thumbs = "".join(
        f'<li><img src="{p.thumb}" alt="Picture {i}: {esc(p.name)}">'
        f'<span title="{esc(p.note)}">{esc(p.name)}</span>'
        + (
            f'<button type="button" class="quiet" data-do="remove" data-index="{i - 1}" aria-label="Remove '
            f'{esc(p.name)}">×</button>'
            if session.uploads
            else ""
        )
        + "</li>"
        for i, p in enumerate(shown, 1)
    )
    name, page = parse_example(session.state.example)
    own = (
        button("Back to the examples", "example", value=f"{name}:{page}")
        if session.uploads
        else (
            select("Drawn examples", "example", [(f"{n}:0", n) for n in example_names()], f"{name}:0")
            + button("Another four", "example", value=f"{name}:{(page + 1) % PAGES}")
        )
    )
    return (
        '<div class="panel tray" data-drop="1"><h2>Pictures</h2>'
        f'<ul class="thumbs">{thumbs}</ul><div class="row">'
        '<label class="button">Add pictures<input class="sr" type="file" multiple accept="image/*" '
        'data-files="1"></label>'
        '<button type="button" data-camera="1">Camera</button></div>'
        f'<div class="row">{own}</div><p class="muted small">Drop or paste pictures too: up to 16, each '
        "20 MB and 40 megapixels. They stay in memory until an hour after you leave; no link holds them.</p>"
        "</div>"
    )
