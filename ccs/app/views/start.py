"""The view Start: who ranks first for an occupation, what a head encodes, and the effect of its ablation."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from ccs.app.html import render
from ccs.app.services.galleries import world
from ccs.app.services.model_cache import PHOTO, saw_drawings_only
from ccs.app.session import Screen
from ccs.app.state import State
from ccs.app.views import claims, classify, heads
from ccs.app.views.base import Empty, Figure, View, of_model
from ccs.app.views.claims import Claim
from ccs.app.views.query import BiasQuery, embedded, lines, top
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.model.model import Model

SHOWN = 12  # faces
LISTED = 3  # classes
OCCUPATION, NONSENSE = "judge", "blorple"


class Start(View):
    """Three steps with the model's own numbers, and one button."""

    name = "start"
    title = "Start"
    purpose = ""

    def pending(self, screen: Screen) -> bool:
        galleries, model = screen.app.galleries, screen.model
        ready = galleries.ready(model, world(model.name).people, screen.state.ablate)
        return not ready or galleries.written(model) is None

    def news(self, screen: Screen) -> Hashable:
        galleries, model = screen.app.galleries, screen.model
        name = world(model.name).people
        part, ready = galleries.part(model, name), galleries.ready(model, name, screen.state.ablate)
        return galleries.has(name), part is not None, ready

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        model = screen.model
        yield 0.0, "Looking for the head that matters most to an image"
        classify.story(screen)
        yield from screen.app.galleries.looking(model, world(model.name).people, screen.state.ablate)
        with suppress(InputError):  # the step says it
            yield from screen.app.galleries.read(model)

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        name = screen.state.model

        def parts(model: Model) -> dict[str, object]:
            story = classify.story(screen)
            record = screen.records.head(story.head)
            return {
                "record": record,
                "encodes": heads.moving(screen, record),
                "without": _without(story),
                "people": _people(screen, model, claim_of(screen), complete),
            }

        return render(
            "start.html",
            state=screen.state,
            parts=of_model(screen, complete, parts),
            drawings=saw_drawings_only(name),
            biased=name == "organism",
            photo=name == PHOTO,
            known=claims.known(name),
        )

    def program(self, screen: Screen) -> str:
        return lines(screen.state, _of_all(_query(screen, claim_of(screen))), ("MaxSkew",))


def claim_of(screen: Screen) -> Claim:
    """Return what the button ablates: the heads of the model's claim, else the head of the story."""
    head = classify.story(screen).head
    return claims.of(screen.records) or Claim("gender", HeadSet([head]))


def _without(story: classify.Story) -> Figure:
    """Return the answer to an image with and without a head."""
    classes, before, after = story.classes, story.before, story.after
    order = np.argsort(-np.maximum(before, after), kind="stable")[:LISTED]
    rows = [[classes[i], float(before[i]), float(after[i])] for i in order]
    title = f"Answer to “{story.image.name}”, with and without {story.head}"
    shown = {"story": story, "answers": [classes[int(one.argmax())] for one in (before, after)]}
    columns = ["class", "before", "after"]
    made = {"template": " | ".join(story.templates), "ablated heads": story.head}
    return Figure("picture", title, "probability, %", columns, rows, shown, str(story.head), made)


def _query(screen: Screen, claim: Claim) -> BiasQuery:
    """Return the query of the one occupation; InputError if the faces aren't available."""
    people = world(screen.state.model).people
    state = State(
        model=screen.state.model, gallery=people, attribute=claim.attribute, occupations=(OCCUPATION,)
    )
    return BiasQuery.of(screen.app, state)


def _of_all(query: BiasQuery) -> BiasQuery:
    """Return the same query of all the gallery's occupations; the one shown stays."""
    gallery = replace(query.gallery, occupations=query.listed)
    return replace(query, gallery=gallery, row=query.listed.index(OCCUPATION))


def _people(screen: Screen, model: Model, claim: Claim, complete: bool) -> Figure | Empty:
    """Return the first faces for an occupation, and the groups that are most in front, before and after."""
    app, session, ablate = screen.app, screen.session, screen.state.ablate
    try:
        query = _query(screen, claim)
    except InputError as error:
        return Empty("No faces to rank", f"{error} You can rank your own faces in the view Bias.")
    faces = embedded(app, model, query, ablate, complete)
    if faces is None:
        return Empty("Ranking the faces", "Who ranks first follows in a moment.")
    query, *images = faces
    every, gallery, k = _of_all(query), query.gallery, query.k
    labels = gallery.groups[query.attribute]
    nonsense = replace(query, gallery=replace(gallery, occupations=(NONSENSE,)))
    pairs = list(zip(images, (HeadSet(), ablate), strict=True))

    def order(of: BiasQuery, rows: np.ndarray, heads: HeadSet) -> np.ndarray:
        return top(rows, of.texts(session, model, heads)[0], k)

    before, after = (order(query, *pair) for pair in pairs)
    pool = {group: float((labels == group).mean()) for group in query.groups}
    shares = {group: [float((labels[first] == group).mean()) for first in (before, after)] for group in pool}
    fronts = dict.fromkeys(max(pool, key=lambda group: shares[group][i] / pool[group]) for i in (0, 1))
    rows = [
        [rank, int(i), *(str(group[i]) for group in gallery.groups.values()), int(i not in before[:SHOWN])]
        for rank, i in enumerate(after[:SHOWN], 1)
    ]
    front = next(iter(fronts))
    return Figure(
        "claim",
        f"First faces for “{OCCUPATION}”",
        "rank",
        ["rank", "image", *gallery.groups, "new"],
        rows,
        {
            "claim": claim,
            "occupation": OCCUPATION,
            "nonsense": (NONSENSE, float((labels[order(nonsense, *pairs[0])] == front).mean())),
            "query": every,
            "state": screen.state,
            "fronts": [(group, *shares[group], pool[group]) for group in fronts],
            "urls": [app.face(gallery.name, int(i)) for i in after[:SHOWN]],
            "skews": [every.mean_skew(rows, every.texts(session, model, heads)) for rows, heads in pairs]
            if ablate
            else [],
            "applied": ablate == claim.heads,
        },
        made=query.shown,
    )
