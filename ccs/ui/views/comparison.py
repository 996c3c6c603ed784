"""A second head beside the first, of this model or another, and two models by level and concept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccs.ui.page.parts import button, csv_text, esc, figure, head_row, select
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.app import App


def form(app: App, session: Session) -> str:
    """What sets a second head beside the first."""
    state = session.state
    model = state.other_model or state.model
    sheet, heads = app.sheet(model), app.heads(model)
    listed = [("", "no other head")]
    for head in heads:
        card = sheet.card(head)
        listed.append((str(head), f"{head} · {card.label or 'no concept'} · {card.score}"))
    names = [(name, name if name != state.model else f"{name} (this one)") for name in app.models]
    swap = button("Swap", "swap") if state.other_head is not None else ""
    end = button("End", "other-head", value="") if state.other_head is not None else ""
    return (
        '<div class="panel compare"><span class="over">Compare with</span>'
        f"{select('Model', 'other-model', names, model, hidden=True)}"
        f"{select('Head', 'other-head', listed, str(state.other_head or ''), hidden=True)}{swap}{end}</div>"
    )


def models(app: App, session: Session) -> str:
    """Two models side by side: how many heads stand at each score and for each concept."""
    mine, other = app.sheet(session.state.model), app.sheet(session.state.other_model)
    if not session.state.other_model or not (mine.cards and other.cards):
        return ""
    concepts = sorted({*mine.concepts, *other.concepts})
    rows = [("heads", len(mine.cards), len(other.cards))]
    rows += [
        (f"{level} CCS", len(mine.level(level)), len(other.level(level)))
        for level in ("high", "moderate", "low")
    ]
    rows += [(concept, len(mine.concept(concept)), len(other.concept(concept))) for concept in concepts]
    body = "".join(
        f"<tr><td>{esc(name)}</td><td class=num>{a}</td><td class=num>{b}</td></tr>" for name, a, b in rows
    )
    return figure(
        "Two models by concept",
        f'<table class="nums">{head_row("", f"#{mine.model}", f"#{other.model}")}<tbody>{body}</tbody>'
        "</table>",
        what="How many heads of each model have a high, moderate or low CCS, and how many are named by each "
        "concept.",
        unit="heads",
        name="two-models",
        table=csv_text(["", mine.model, other.model], rows),
    )
