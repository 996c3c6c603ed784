"""The view Start: what one head has learned, what goes wrong without it, and whom the model puts first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.model.model import Model
from ccs.ui.html import render
from ccs.ui.service.galleries import world
from ccs.ui.service.model_cache import PHOTO, saw_drawings_only
from ccs.ui.session import Screen
from ccs.ui.state import State
from ccs.ui.views import claims, classify, heads
from ccs.ui.views.base import Empty, Figure, View, of_model
from ccs.ui.views.bias_query import BiasQuery, embedded, lines, top
from ccs.ui.views.claims import Claim

SHOWN = 12  # faces
LISTED = 3  # classes
OCCUPATION = "judge"


class Start(View):
    """Three steps, each with the model's own figures, and one switch."""

    name = "start"
    title = "Start"
    purpose = ""

    def pending(self, screen: Screen) -> bool:
        return screen.session.view != self.name

    def news(self, screen: Screen) -> Hashable:
        app, model = screen.app, screen.model
        name, pictures = world(model.name).people, app.galleries.written(model)
        return pictures is not None, app.galleries.has(name), app.galleries.part(model, name) is not None

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        model = screen.model
        yield 0.0, "Looking for the head that matters most to a picture"
        classify.story(screen)
        with suppress(InputError):  # the step says it
            yield from screen.app.galleries.read(model)
        yield from screen.app.galleries.looking(model, world(model.name).people, screen.state.off)

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        name = screen.state.model

        def live(model: Model) -> dict[str, object]:
            story, claim = classify.story(screen), claim_of(screen)
            record = screen.records.head(story.head)
            return {
                "record": record,
                "claim": claim,
                "learned": heads.moving(screen, record),
                "without": _without(story),
                "people": _people(screen, model, claim, complete),
            }

        return render(
            "views/start.html",
            state=screen.state,
            found=of_model(screen, complete, live),
            drawn=saw_drawings_only(name),
            photo=name == PHOTO,
            known=claims.taught(name),
        )

    def snippet(self, screen: Screen) -> str:
        return lines(screen.state, _of_all(_asked(screen, claim_of(screen))), ("MaxSkew",))


def claim_of(screen: Screen) -> Claim:
    """What the button switches off: the heads of the model's claim, else the head of the story."""
    head = classify.story(screen).head
    return claims.of(screen.records) or Claim("gender", HeadSet([head]))


def _without(story: classify.Story) -> Figure:
    """The answer to a picture with and without a head."""
    classes, before, after = story.classes, story.before, story.after
    order = np.argsort(-np.maximum(before, after), kind="stable")[:LISTED]
    rows = [[classes[i], float(before[i]), float(after[i])] for i in order]
    title = f"What it sees in “{story.image.name}”, with and without {story.head}"
    shown = {"story": story, "answers": [classes[int(one.argmax())] for one in (before, after)]}
    columns = ["class", "with it", "without it"]
    made = {"template": " | ".join(story.templates), "heads off": story.head}
    return Figure("picture", title, "probability, %", columns, rows, shown, str(story.head), made)


def _asked(screen: Screen, claim: Claim) -> BiasQuery:
    """The question of the one occupation; InputError where the faces cannot be had."""
    model, attribute = screen.state.model, claim.attribute
    asked = State(gallery=world(model).people, attribute=attribute, occupations=(OCCUPATION,))
    return BiasQuery.of(screen.app, asked)


def _of_all(one: BiasQuery) -> BiasQuery:
    """The same question of all the gallery's occupations; the one shown stays."""
    gallery = replace(one.gallery, occupations=one.listed)
    return replace(one, gallery=gallery, row=one.listed.index(OCCUPATION))


def _people(screen: Screen, model: Model, claim: Claim, complete: bool) -> Figure | Empty:
    """The first faces for an occupation, and the groups that are most in front, before and after."""
    app, session = screen.app, screen.session
    off = session.state.off
    try:
        one = _asked(screen, claim)
    except InputError as error:
        return Empty("No faces to rank", f"{error} Faces of your own can be ranked in the view Bias.")
    found = embedded(app, model, one, off, complete)
    if found is None:
        return Empty("The faces are being looked at", "Who comes first follows in a moment.")
    one, *both = found
    every, gallery, k = _of_all(one), one.gallery, one.k
    labels = gallery.groups[one.attribute]
    pairs = list(zip(both, (HeadSet(), off), strict=True))
    before, after = (top(rows, one.texts(session, model, read)[0], k) for rows, read in pairs)
    pool = {group: float((labels == group).mean()) for group in sorted(set(labels))}
    shares = {group: [float((labels[order] == group).mean()) for order in (before, after)] for group in pool}
    fronts = dict.fromkeys(max(pool, key=lambda one: shares[one][i] / pool[one]) for i in (0, 1))
    rows = [
        [rank, int(i), *(str(of[i]) for of in gallery.groups.values()), int(i not in before[:SHOWN])]
        for rank, i in enumerate(after[:SHOWN], 1)
    ]
    return Figure(
        "claim",
        f"Its first faces for “{OCCUPATION}”",
        "rank",
        ["rank", "image", *gallery.groups, "new"],
        rows,
        {
            "claim": claim,
            "occupation": OCCUPATION,
            "query": every,
            "state": session.state,
            "fronts": [(group, *shares[group], pool[group]) for group in fronts],
            "urls": [app.face(gallery.name, int(i)) for i in after[:SHOWN]],
            "skews": [every.mean_skew(rows, every.texts(session, model, read)) for rows, read in pairs]
            if off
            else [],
            "switched": off == claim.off,
        },
        made=one.shown,
    )
