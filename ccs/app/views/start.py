"""The view Start: who ranks first for an occupation, what a head encodes, and the effect of its ablation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup

from ccs.analysis.bias import MEAN
from ccs.app.services.galleries import world
from ccs.app.services.model_cache import PHOTO, saw_drawings_only
from ccs.app.session import Screen
from ccs.app.state import State
from ccs.app.views import claims, classify
from ccs.app.views.base import Figure, View, empty, if_ready
from ccs.app.views.claims import Claim
from ccs.app.views.heads import top_images
from ccs.app.views.query import BiasQuery, bias_lines, embed_query
from ccs.errors import InputError
from ccs.heads import HeadSet

SHOWN = 12  # faces
OCCUPATION = "judge"


def show_start(screen: Screen) -> dict[str, Any]:
    """Return three steps with the model's own numbers."""
    name = screen.state.model
    parts = if_ready(partial(_steps, screen))
    return {"parts": parts, "drawings": saw_drawings_only(name), "photo": name == PHOTO}


def _steps(screen: Screen) -> dict[str, object]:
    head, example = classify.find_story(screen)
    record = screen.records.head(head)
    return {
        "record": record,
        "encodes": if_ready(partial(top_images, screen, record)),
        "without": classify.answers_figure(screen, example, head),
        "people": if_ready(partial(_people, screen)),
    }


def claim_of(screen: Screen) -> Claim:
    """Return what the button ablates: the heads of the model's claim, else the head of the story."""
    return claims.find_claim(screen.records) or Claim("gender", HeadSet([classify.find_story(screen)[0]]))


def _query(screen: Screen) -> BiasQuery:
    """Return the query of all occupations with OCCUPATION shown; InputError without faces."""
    model, attribute = screen.state.model, claim_of(screen).attribute
    state = State(model=model, gallery=world(model).people, attribute=attribute, occupations=(OCCUPATION,))
    query = BiasQuery.from_state(screen.app, state)
    gallery = replace(query.gallery, occupations=query.listed)
    return replace(query, gallery=gallery, row=query.listed.index(OCCUPATION))


def _people(screen: Screen) -> Figure | Markup:
    """Return the first faces for an occupation, and the groups furthest above their share of all faces."""
    try:
        screen.app.galleries.find(world(screen.state.model).people, screen.tell)
        query = _query(screen)
    except InputError as error:
        return empty("No faces to rank", f"{error} You can rank your own faces in the view Bias.")
    embedded = embed_query(screen, query)
    gallery, table, (before, after) = query.gallery, embedded.measure(screen), embedded.first(SHOWN)
    rows = pd.DataFrame({"rank": range(1, SHOWN + 1), "image": after})
    rows = rows.assign(**{name: groups[after] for name, groups in gallery.groups.items()})
    values = {
        "claim": claim_of(screen),
        "query": query,
        "state": screen.state,
        "shares": table.shares.loc[OCCUPATION],
        "faces": [(screen.app.face(gallery.name, i), i not in before) for i in after],
        "skew": table.of("MaxSkew").loc[MEAN],
        "preference": table.preference,
    }
    settings = {**screen.settings, **query.settings, "occupation": OCCUPATION}
    return Figure("claim", rows, settings, values=values)


def start_program(screen: Screen) -> str:
    """Return a program that prints MaxSkew of all occupations, and the shares for OCCUPATION."""
    return bias_lines(screen, _query(screen), ("MaxSkew",))


VIEW = View("start", show_start, start_program)
