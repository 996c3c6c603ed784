"""The view Start: who ranks first for an occupation, what a head encodes, and the effect of its ablation."""

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from ccs.app.services.galleries import world
from ccs.app.services.records import Claim
from ccs.app.session import Screen
from ccs.app.state import State
from ccs.app.views import classify
from ccs.app.views.base import Figure, View, if_ready
from ccs.app.views.heads import top_images
from ccs.app.views.query import BiasQuery, bias_lines, embed_query
from ccs.heads import HeadSet

SHOWN_FACES = 12
OCCUPATION = "judge"


def show_start(screen: Screen) -> dict[str, Any]:
    """Return three steps with the model's own numbers."""
    return {"steps": if_ready(partial(_steps, screen))}


def _steps(screen: Screen) -> dict[str, object]:
    head, example = classify.find_story(screen)
    record = screen.records.head(head)
    return {
        "record": record,
        "encodes": if_ready(partial(top_images, screen, record), "No images"),
        "without": classify.answers_figure(screen, example, head),
        "people": if_ready(partial(_people, screen), "No faces. You can rank your own faces in Bias"),
    }


def claim_of(screen: Screen) -> Claim:
    """Return what the button ablates: the heads of the model's claim, else the head of the story."""
    return screen.records.claim or Claim("gender", HeadSet([classify.find_story(screen)[0]]))


def _query(screen: Screen) -> BiasQuery:
    """Return the query of all occupations with OCCUPATION shown; InputError without faces."""
    model = screen.state.model
    faces = screen.app.galleries.people(world(model).people, screen.tell)
    names = faces.occupations
    state = State(model=model, gallery=faces.name, attribute=claim_of(screen).attribute, occupations=names)
    return BiasQuery.from_state(screen.app, replace(state, row=names.index(OCCUPATION)))


def _people(screen: Screen) -> Figure:
    """Return the first faces for an occupation, and the groups furthest above their share of all faces."""
    query = _query(screen)
    embedded, gallery = embed_query(screen, query), query.gallery
    before, after = embedded.first(SHOWN_FACES)
    groups = {name: groups[after] for name, groups in gallery.groups.items()}
    rows = pd.DataFrame({"rank": range(1, SHOWN_FACES + 1), "image": after, **groups})
    values = {"claim": claim_of(screen), "query": query, "result": embedded.measure(screen), "before": before}
    values |= {"state": screen.state, "face": partial(screen.app.face, gallery.name)}
    return Figure.of(screen, "claim", rows, {**query.settings, "occupation": OCCUPATION}, **values)


def start_program(screen: Screen) -> str:
    """Return a program that prints MaxSkew of all occupations, and the shares for OCCUPATION."""
    return bias_lines(screen, _query(screen), ("MaxSkew",))


VIEW = View("start", show_start, start_program)
