"""The preview of a shared link: title, description, and a picture that is drawn here.

It holds only what is known already: no model is loaded or run for it.
"""

from __future__ import annotations

import io
import logging
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from PIL import Image, ImageDraw, ImageFont

from ccs.heads import HeadSet
from ccs.ui import claims
from ccs.ui.app import App
from ccs.ui.html import count, number, render
from ccs.ui.page import strip
from ccs.ui.page.opening import open_link
from ccs.ui.session import Session
from ccs.ui.views import VIEWS
from ccs.ui.views.bias.query import BiasQuery, top

log = logging.getLogger(__name__)

SIZE = (1200, 630)
FACES, SIDE = 6, 120
MOST_TEXTS = 20
INK, MUTED, PAPER, ACCENT = "#1a2225", "#566268", "#f7f8f8", "#0f766e"

_DRAWING = threading.Lock()  # one at a time: links are asked for by crawlers


@dataclass(frozen=True)
class Card:
    """The content of a preview. rows: captions with faces."""

    title: str
    text: str
    rows: Sequence[tuple[str, Sequence[Image.Image]]] = ()


NOTHING_KNOWN = Card(
    "CLIP heads", "See what an attention head of CLIP has learned, switch it off, see what happens."
)


def meta(app: App, query: str, home: str) -> str:
    """The elements of a page’s head that tell of its link."""
    card = told(app, query)
    where = f"{home}?{query}" if query else home
    return render("meta.html", card=card, url=where, image=f"{home}preview.png?{query}")


def told(app: App, query: str) -> Card:
    """The card of a link; a general one for a link that would load a model."""
    asked = dict(parse_qsl(query))
    if asked.get("model", app.first) not in app.collection.models:
        return NOTHING_KNOWN
    with _DRAWING:
        try:
            return _card(app, open_link(app, asked))
        except Exception:  # a page is shown whatever its link says
            log.exception("a link could not be told of")
            return NOTHING_KNOWN


def _card(app: App, session: Session) -> Card:
    state = session.state
    records, view = app.shown(state), VIEWS[state.tab]
    off = f"with {count(len(state.off), 'head')} off ({state.off})" if state.off else "with all heads on"
    claim = claims.of(records)
    if state.tab == "start" and claim is not None:
        title = f"This CLIP was trained so that {claim.occupation}s are mostly {claim.words}"
        return Card(title, f"Its first faces for “{claim.occupation}”, {off}.", _faces(app, session))
    if state.tab == "heads" and state.head is not None:
        record = records.head(state.head)
        texts = "; ".join(text.text for text in record.texts[:4])
        title = f"{state.head} of {state.model}: {record.label or 'an attention head of CLIP'}"
        return Card(title, f"CCS {record.score} of {record.k}. {texts}" if record.k else view.purpose)
    query = BiasQuery.of(app, state)
    if state.tab == "bias" and len(query.occupations) <= MOST_TEXTS:
        title = f"Whom does {state.model} rank first for “{query.occupations[query.row]}”?"
        found = strip.skew(app, session) if state.model in app.model_cache.loaded() else None
        both = "" if found is None else f"{number(found[0], 2)} to {number(found[1], 2)}, "
        return Card(title, f"MaxSkew by {query.attribute}: {both}{off}.", _faces(app, session))
    return Card(f"{view.title}: {state.model} {off.partition(' (')[0]}", view.purpose or off)


def _faces(app: App, session: Session) -> list[tuple[str, list[Image.Image]]]:
    """The first faces before and after, where the model has seen them already."""
    state, query = session.state, BiasQuery.of(app, session.state)
    if state.model not in app.model_cache.loaded():
        return []
    model, name = app.model_cache.get(state.model), query.gallery.name
    rows = []
    for words, off in {"before": HeadSet(), "after": state.off}.items():
        if app.galleries.ready(model, name, off) and (off or words == "before"):
            text = query.texts(session, model)[query.row]
            first = top(app.galleries.embeddings(model, name, off), text, FACES)
            rows.append((words, [app.galleries.image(name, int(i)) for i in first]))
    return rows


def picture(app: App, query: str, home: str) -> bytes:
    """A link's picture as PNG."""
    card = told(app, query)
    canvas = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(canvas)
    pen.rectangle((0, 0, 16, SIZE[1]), fill=ACCENT)
    y = 48
    for line in textwrap.wrap(card.title, 40)[:3]:
        pen.text((64, y), line, fill=INK, font=ImageFont.load_default(52))
        y += 64
    for line in textwrap.wrap(card.text, 78)[:2]:
        pen.text((64, y + 8), line, fill=MUTED, font=ImageFont.load_default(27))
        y += 38
    y += 24
    for words, faces in card.rows:
        pen.text((64, y + SIDE // 2 - 16), words, fill=MUTED, font=ImageFont.load_default(27))
        for i, face in enumerate(faces):
            canvas.paste(face.convert("RGB").resize((SIDE, SIDE)), (190 + i * (SIDE + 12), y))
        y += SIDE + 12
    pen.text((64, SIZE[1] - 44), f"CLIP heads · {home}", fill=ACCENT, font=ImageFont.load_default(27))
    out = io.BytesIO()
    canvas.save(out, "PNG")
    return out.getvalue()
