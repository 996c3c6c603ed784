"""The grid of heads: layers down, heads across, a number for the CCS, and what is switched off."""

from __future__ import annotations

from ccs.heads import Head, HeadSet
from ccs.ui.page.parts import esc
from ccs.ui.records import Card, Sheet

STEPS = 5
LABELLED = 8  # up to this many heads a layer, a cell has room for its concept


def grid(sheet: Sheet, heads: HeadSet, off: HeadSet, chosen: Head | None, kept: HeadSet, click: str) -> str:
    """The grid as HTML.

    heads: those of the model. off: switched off. chosen: whose card is open. kept: what the filter keeps; the
    others are dimmed. click: what a click does, "inspect" or "switch". Arrow keys walk, Enter does
    what a click does, Space or X switches off and on.
    """
    if not heads:
        return '<p class="muted">This model has no head to show.</p>'
    layers = sorted({head.layer for head in heads})
    columns = max(head.head for head in heads) + 1
    focus = chosen if chosen in heads else next(iter(heads))
    names = "".join(f'<span role="columnheader">H{column}</span>' for column in range(columns))
    rows = [
        f'<div role="row" class="names"><span role="columnheader"><i class="sr">Layer</i></span>{names}</div>'
    ]
    for layer in layers:
        cells = [
            _cell(sheet.card(head), head in off, head == chosen, head in kept, head == focus, columns)
            if (head := Head(layer, column)) in heads
            else '<span role="gridcell" aria-label="no head"></span>'
            for column in range(columns)
        ]
        rows.append(f'<div role="row"><span role="rowheader">L{layer}</span>{"".join(cells)}</div>')
    wide = " wide" if columns > LABELLED else ""
    return (
        f'<div class="grid{wide}" role="grid" aria-label="Attention heads of {esc(sheet.model)}, layers by '
        'heads" '
        f'aria-describedby="grid-help" data-click="{esc(click)}" data-off="{esc(off)}" '
        f'style="--columns:{columns}">{"".join(rows)}</div>'
    )


def _cell(card: Card, off: bool, chosen: bool, kept: bool, focus: bool, columns: int) -> str:
    # Steps of the color scale: 0 to 5 whatever k is; the digit says the number itself.
    step = "none" if card.ccs is None else str(round(STEPS * card.ccs / card.k))
    texts = [f"{rank}. {text.text}" for rank, text in enumerate(card.texts[:5], 1)]
    score = f"CCS {card.ccs} of {card.k}" if card.ccs is not None else f"CCS {card.level_name}"
    tip = "\n".join([f"{card.head} · {card.label or 'no concept'} · {score}", *texts])
    state = "switched off" if off else "on"
    # What is seen is part of what is read out: "L7.H2, CCS 5 of 5, Colors, on".
    score = (
        f'<i class="sr">{card.head}, CCS </i><b>{card.score}</b><i class="sr">'
        f"{f' of {card.k}' if card.k else ''}, </i>"
    )
    concept = esc(card.label or "no concept")
    named = (
        f"<small>{concept if card.label else '–'}</small>"
        if columns <= LABELLED
        else f'<i class="sr">{concept}</i>'
    )
    css = f"cell step-{step}{' off' if off else ''}{'' if kept else ' dim'}"
    return (
        f'<div role="gridcell" aria-selected="{str(chosen).lower()}">'
        f'<button type="button" class="{css}" data-head="{card.head}" data-tip="{esc(tip)}" '
        f'aria-pressed="{str(off).lower()}" tabindex="{0 if focus else -1}">'
        f'{score}{named}<i class="sr">, {state}</i></button></div>'
    )


def legend(k: int) -> str:
    """What number, color and hatching mean."""
    if not k:
        return (
            '<p class="legend" id="grid-help">No scores for this model: its heads can be switched off all '
            "the same.</p>"
        )
    steps = "".join(
        f'<span class="swatch step-{round(STEPS * n / k)}" aria-hidden="true">{n}</span>'
        for n in range(k + 1)
    )
    return (
        '<p class="legend" id="grid-help">'
        '<button type="button" class="quiet" data-save="png" aria-label="Save the grid as PNG">PNG</button>'
        '<button type="button" class="quiet" data-save="csv" aria-label="Save the grid as CSV">CSV</button>'
        f'{steps}<span>Number: the head’s <abbr title="Concept Consistency Score">'
        f"CCS</abbr>, how many of its {k} texts fit its concept. <b>?</b> unknown. "
        '<span class="swatch off" aria-hidden="true">5</span> switched off. '
        '<span class="keys">Arrow keys walk, Enter opens, Space switches off.</span></span></p>'
    )
