"""The view Classify: what the model answers to the visitor's images, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from markupsafe import Markup

from ccs.heads import Head, HeadSet
from ccs.measures import ranking
from ccs.measures.accuracy import class_weights
from ccs.model.model import Model
from ccs.ui.actions import Action, Fields, change, set_off
from ccs.ui.html import program, render
from ccs.ui.service.classes import named, set_names
from ccs.ui.service.examples import SHOWN, embed, load_example, parse_example, shown_images
from ccs.ui.service.uploads import InputImage
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import OUTPUTS, State, one_of, template, texts
from ccs.ui.views import claims
from ccs.ui.views.base import Figure, View, of_model

MANY = 100  # classes whose names take a while to be read
LISTED = 5  # classes per image, before and after
TEMPLATES = ("a photo of a {}", "a picture of a {}", "{}")


class Comparison(NamedTuple):
    """Probabilities [images, classes] with nothing off and with some heads off."""

    before: np.ndarray
    after: np.ndarray


def ranks(shares: np.ndarray) -> np.ndarray:
    """Rank from 1 of every class for every image; equal probabilities in the classes' order."""
    order = np.argsort(-shares, axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") + 1


def margin(shares: np.ndarray) -> np.ndarray:
    """First probability less the second [images]; 1 with a single class."""
    both = np.sort(shares, axis=1)[:, ::-1]
    return np.asarray(both[:, 0] - both[:, 1]) if both.shape[1] > 1 else both[:, 0]


def asked(state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(classes, templates) in force: what was typed, else those of the example's set."""
    example = load_example(state.example, state.model)
    classes, templates = named(state.class_set) if state.class_set else (example.classes, example.templates)
    return state.classes or classes, (state.template,) if state.template else templates


def class_matrix(session: Session, model: Model) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes in force and their unit weights [classes, d], kept for the next click."""
    classes, templates = asked(session.state)
    key = ("classes", model.weights_hash, classes, templates)
    return classes, session.memory.get(key, lambda: class_weights(model, classes, templates))


def measure(
    session: Session, model: Model, off: HeadSet | None = None
) -> tuple[tuple[str, ...], Comparison, np.ndarray]:
    """Classes, probabilities, and the cosine [images] between embeddings; `off`: others than what is off."""
    classes, weights = class_matrix(session, model)
    before, after = embed(session, model, [HeadSet(), session.state.off if off is None else off])
    found = Comparison(*(model.probabilities(rows @ weights.T) for rows in (before, after)))
    return classes, found, (before * after).sum(axis=1)


class Move(NamedTuple):
    """A picture's first answers with all heads on and with some off, the first one's probability in either,
    and the similarity of its embeddings."""

    image: str
    answer: str
    before: float
    after: float
    now: str
    similarity: float


def moves(session: Session, model: Model, off: HeadSet | None = None) -> list[Move]:
    """What the heads that are off, or others, change in the answers to the pictures at hand."""
    classes, found, similarity = measure(session, model, off)
    return [
        Move(image.name, classes[b.argmax()], b.max(), a[b.argmax()], classes[a.argmax()], same)
        for image, b, a, same in zip(shown_images(session), *found, similarity, strict=True)
    ]


def telling(app: App, session: Session, model: Model) -> Head:
    """The head without which the first picture's first answer loses most probability."""
    image = shown_images(session)[0]
    classes, weights = class_matrix(session, model)

    def find() -> Head:
        heads = list(model.heads)
        plans = [HeadSet(), *(HeadSet([head]) for head in heads)]
        rows = model.embed_images(model.trunk([image.pixels]), plans)[:, 0]
        shares = model.probabilities(rows @ weights.T)
        return heads[int(shares[1:, shares[0].argmax()].argmin())]

    return app.derived.get(("telling", model.weights_hash, image.key, classes), find)


def _telling(app: App, session: Session, fields: Fields) -> None:
    """Switch off the one head that matters most to the first picture."""
    head = telling(app, session, app.model_cache.get(session.state.model))
    set_off(session, HeadSet([head]))
    change(session, head=head)


def _classify(app: App, session: Session, fields: Fields) -> None:
    classes = texts(str(fields.get("classes", "")))
    chosen = template(str(fields.get("own") or fields.get("template") or ""))
    # The set's own classes, untouched, stay its own: another example then brings its own.
    if not session.state.class_set and classes == asked(replace(session.state, classes=()))[0]:
        classes = ()
    change(session, classes=classes, template=chosen)


def _class_set(app: App, session: Session, fields: Fields) -> None:
    name = one_of(fields.get("value"), ("", *set_names()), "set of classes")
    change(session, class_set=name, classes=(), template="")


def _own_classes(app: App, session: Session, fields: Fields) -> None:
    change(session, classes=())


class Classify(View):
    """Zero-shot answers with all heads on and with some off."""

    name = "classify"
    title = "Classify"
    purpose = "What the model answers to images, with all heads and without some."
    actions: ClassVar[Mapping[str, Action]] = {
        "classify": _classify,
        "own-classes": _own_classes,
        "class-set": _class_set,
        "telling": _telling,
    }

    def prepare(self, app: App, session: Session) -> Iterator[tuple[float, str]]:
        if len(names := asked(session.state)[0]) > MANY:
            yield 0.0, f"Reading {len(names)} names of classes"
            class_matrix(session, app.model_cache.get(session.state.model))

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        state = session.state
        templates = [("", "the set’s own"), *dict.fromkeys(filter(None, (*TEMPLATES, state.template)))]
        return render(
            "views/classify.html",
            state=state,
            classes=state.classes if state.class_set else asked(state)[0],
            class_sets=[("", "of the examples"), *set_names()],
            templates=templates,
            answer=of_model(app, state.model, complete, lambda model: _answers(session, model)),
            matter=claims.that_matter(app.shown(state))[0],
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        return [_answers(session, app.model_cache.get(session.state.model))]

    def snippet(self, app: App, session: Session) -> str:
        return lines(session, session.state.off)


@dataclass(frozen=True)
class Answer:
    """One image on the page: its first answers and margins before and after, and (class, shares, ranks) of
    the classes listed.
    """

    image: InputImage
    first: tuple[str, str]
    margins: tuple[float, float]
    listed: Sequence[tuple[str, float, float, int, int]]

    @property
    def turned(self) -> bool:
        """True if the first answer changes."""
        return self.first[0] != self.first[1]


def _answers(session: Session, model: Model) -> Figure:
    classes, found, similarity = measure(session, model)
    shown = shown_images(session)
    places = ranks(found.before), ranks(found.after)
    rows, answers = [], []
    for i, image in enumerate(shown):
        each = (one[i].tolist() for one in (found.before, found.after, *places))
        table = list(zip(classes, *each, strict=True))
        rows += [
            [image.name, name, round(b, 6), round(a, 6), *places, session.state.off]
            for name, b, a, *places in table
        ]
        first = classes[int(found.before[i].argmax())], classes[int(found.after[i].argmax())]
        listed = sorted((one for one in table if min(one[3:]) <= LISTED), key=lambda one: (one[4], one[3]))
        margins = float(margin(found.before)[i]), float(margin(found.after)[i])
        answers.append(Answer(image, first, margins, listed))
    return Figure(
        "classify",
        "Before and after",
        "probability, %",
        ["image", "class", "before", "after", "rank before", "rank after", "heads off"],
        rows,
        {
            "answers": answers,
            "n": len(classes),
            "outputs": OUTPUTS[session.state.ablation],
            "templates": asked(session.state)[1],
            "scale": model.logit_scale,
            "bias": model.logit_bias,
            "similarity": float(similarity.mean()),
            "same": session.memory.get(
                ("alike", model.weights_hash, *asked(session.state)),
                lambda: ranking.alike(*class_matrix(session, model)),
            ),
        },
    )


def lines(session: Session, off: HeadSet) -> str:
    """Lines of a program that loads the model and classifies the visitor's images before and after `off`."""
    classes, templates = asked(session.state)
    name, page = parse_example(session.state.example)
    return program("model", model=session.state.model, off=off) + program(
        "classify",
        uploads=[image.name for image in session.uploads],
        example=name,
        first=page * SHOWN,
        last=(page + 1) * SHOWN,
        classes=classes,
        templates=templates,
    )
