"""Make it fairer: three ways, fitted on half of the faces and occupations and judged on the other half while
the visitor watches: heads off, heads turned down, the groups' directions erased from the embeddings.

They are fitted in a thread of its own beside the generator that tells of it. Where that generator is closed,
because the visitor has canceled or left, the thread stops before the next images.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ccs.analysis import mitigations
from ccs.analysis.evidence import Subject
from ccs.analysis.mitigate import Half, Option, choose, fit
from ccs.analysis.mitigations import Fitted
from ccs.analysis.task import Sets
from ccs.app.html import count, join_texts
from ccs.app.routes import Form, Name, post
from ccs.app.services.cache import result
from ccs.app.services.galleries import DRAWN, world
from ccs.app.session import App, Screen
from ccs.app.state import OWN, parse_int
from ccs.app.views.base import Figure
from ccs.app.views.query import BiasQuery, top
from ccs.data import ClassificationSet, Lazy
from ccs.data.rows import spread
from ccs.errors import InputError
from ccs.model.encoder import Trunk
from ccs.model.model import Model

WAYS = {
    "ablation": "Heads off",
    "scaling": "Heads turned down",
    "projection": "Erased",
}
LOSSES = (0, 1, 2, 5, 10)  # points of accuracy that may be lost
THINGS = 300  # that are looked at, evenly spaced
FACES = 8
SEED = 0
PART = 100  # images between two looks at whether to stop
STEP = 3 * PART  # what a step of the gates takes, in images: forward and back


@dataclass(frozen=True)
class Answer:
    """A way on the half that it was not fitted on, without its maps and the people's embeddings.

    first: numbers of the faces that come first for the occupation shown. command: takes it away as a folder,
    "" where weights cannot hold it.
    """

    offer: Option
    first: tuple[int, ...]
    command: str = ""


@dataclass(frozen=True)
class Fairer:
    """What was found, and what was asked: model and query, and the points of accuracy that may be lost.

    occupation: the one that faces are shown for. answers: nothing, then `WAYS`. best: the name of the one
    that lowers MaxSkew most within the budget, "" where none surely does. chance: MaxSkew of random rankings.
    others: the attributes besides.
    """

    model: str
    query: BiasQuery
    budget: int
    occupation: str
    answers: tuple[Answer, ...]
    best: str
    chance: float
    others: tuple[str, ...]
    people: int
    prompts: int

    def fits(self, screen: Screen) -> bool:
        """True where the screen still asks what was answered."""
        state = screen.state
        return self.model == state.model and self.query.key == BiasQuery.of(screen.app, state).key


class Budget(Form):
    budget: Name = ""


@post("bias/fairer")
def make_fairer(screen: Screen, form: Budget) -> None:
    """Compare ways to lower the skew; InputError if there is too little to fit them on."""
    budget = parse_int(form.budget, "maximum loss of accuracy")
    query = BiasQuery.of(screen.app, screen.state)
    if budget > 100:
        raise InputError(f"At most 100 points of accuracy can be lost, not {budget}.")
    if len(query.occupations) < 2 or query.k < 2:
        raise InputError(
            "This needs two occupations or more and K of 2 or more: it looks at one half and reports the "
            f"other. There {'is' if len(query.occupations) == 1 else 'are'} "
            f"{count(len(query.occupations), 'occupation')}, and K is {query.k}."
        )
    screen.session.budget = budget
    screen.change(tab="bias")


class _Watched:
    """A model that counts what it is asked for, in images, and stops."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.stop = threading.Event()
        self.done = 0

    def __getattr__(self, name: str) -> Any:
        if self.stop.is_set():
            raise InputError("It was canceled.")
        self.done += STEP if name == "encoder" else 0
        return getattr(self._model, name)

    def embed_images(self, images: Trunk, ablate: Any = None) -> np.ndarray:
        parts = []
        for start in range(0, len(images), PART):
            part = images[np.arange(start, min(start + PART, len(images)))]
            parts.append(self.__getattr__("embed_images")(part, ablate))
            self.done += len(part) * (len(ablate) if isinstance(ablate, list) else 1)
        return np.concatenate(parts, axis=-2)


def run(screen: Screen) -> Iterator[tuple[float, str]]:
    """Fit the ways, judge them, and tell of it."""
    app, session, model = screen.app, screen.session, screen.model
    budget, query = session.budget, BiasQuery.of(app, screen.state)
    session.budget = None  # asked once: who cancels has canceled
    if budget is None:
        return
    galleries, name = app.galleries, world(model.name).things
    try:
        for share in galleries.seen(model, name):
            yield 0.1 * share, "Looking at pictures of things"
        pictures = galleries.find(name)
    except InputError as error:  # the view speaks of its gallery alone, not of what only this reads
        session.notify(f"Nothing was looked for: {error}")
        return
    assert isinstance(pictures, ClassificationSet)
    people, others = (result(galleries.seen(model, one)).trunk for one in (query.gallery.name, name))
    if people is None or others is None:
        session.notify("This gallery is too large for this page: clip-ccs mitigate does it.")
        return
    chosen = np.array(spread(len(pictures.images), THINGS))
    shown = Lazy(pictures.images.__getitem__, chosen.tolist())
    sets = Sets(
        people=query.gallery,
        controls=replace(pictures, images=shown, labels=pictures.labels[chosen]),
    )
    watched = _Watched(model)
    said = [f"Turning down {count(len(model.heads), 'head')}, on one half of the faces"]
    subject = Subject(cast(Model, watched), sets, (people, others[chosen]))

    def work() -> Fairer:
        half = Half(subject, query.attribute, SEED, said.append)
        found = fit(half, {name: mitigations.METHODS[name] for name in WAYS}, SEED)
        return _answers(screen.state.model, query, budget, subject, half, found, name)

    n = len(people) / 2
    whole = 30 * STEP + 9 * n + 3 * (n + len(chosen) / 2)  # steps, sets tried, ways judged
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(work)
        try:
            while not found.done():
                yield 0.1 + 0.9 * min(watched.done / whole, 1.0), said[-1].capitalize()
                try:
                    found.result(timeout=0.3)
                except NotYet:
                    continue
            session.fairer = found.result()
        except InputError as error:
            session.notify(str(error))
        finally:
            watched.stop.set()


def _answers(
    model: str, query: BiasQuery, budget: int, subject: Subject, half: Half, found: list[Option], things: str
) -> Fairer:
    """What is kept for the page, with the faces that each puts first."""
    rows, asked = subject.unseen(half.attribute, SEED)
    wanted = int(subject.whole(half.attribute).rows[query.row])
    place = list(asked).index(wanted) if wanted in asked else 0
    own = np.arange(len(rows)) if half.task.pools is None else np.flatnonzero(half.task.pools[place])
    best = choose(found, budget / 100)
    answers = []
    for one in found:
        text = one.fitted.on_texts(half.task.prompts[place : place + 1])[0]
        first = rows[own[top(one.people[own], text, min(FACES, len(own)))]]
        command = "" if one.reason or one is found[0] else _command(model, query, budget, one, things)
        bare = replace(one, fitted=Fitted(one.fitted.heads), people=one.people[:0])
        answers.append(Answer(bare, tuple(map(int, first)), command))
    return Fairer(
        model=model,
        query=query,
        budget=budget,
        occupation=subject.whole(half.attribute).names[asked[place]],
        answers=tuple(answers),
        best=best.name if best else "",
        chance=half.chance["max_skew_chance"],
        others=tuple(half.other_groups),
        people=len(half.task.people),
        prompts=len(half.task.prompts),
    )


def _command(model: str, query: BiasQuery, budget: int, one: Option, things: str) -> str:
    """What to type for a folder of the model with this."""
    if one.fitted.heads:
        return shlex.join(
            ["clip-ccs", "export", "--model", model, "--ablate", str(one.fitted.heads), "--out", "fairer"]
        )
    gallery = "faces.zip" if query.gallery.name.startswith(OWN) else query.gallery.name
    named = {
        "model": model,
        "gallery": gallery,
        "attribute": query.attribute,
        "occupations": join_texts(query.occupations, ", "),
        "top": query.k,
        "keep": things,
        "max-images": len(query.gallery.images),
        "only": one.name,
        "budget": 100,
        "out": "fairer",
    }
    return shlex.join(
        ["clip-ccs", "mitigate", *(part for k, v in named.items() for part in (f"--{k}", str(v)))]
    )


def figure(app: App, found: Fairer) -> Figure:
    """The answers side by side, on the half that they were not fitted on."""
    offers = [one.offer for one in found.answers]
    rows = []
    for one in offers:
        every = (one.max_skew, one.max_skew_change, one.accuracy, one.accuracy_change)
        figures = [value for each in every for value in (each.value, each.low, each.high)]
        rows.append([one.name, one.fitted.heads, *figures, one.group_accuracy, one.other_skew])
    names = ("MaxSkew", "MaxSkew change", "accuracy", "accuracy change")
    columns = ["way", "heads off", *(f"{name}{end}" for name in names for end in ("", " low", " high"))]
    columns += ["asked for", "MaxSkew of others"]
    groups, name = found.query.gallery.groups[found.query.attribute], found.query.gallery.name
    faces = [[(app.face(name, i), groups[i]) for i in one.first] for one in found.answers]
    shown = {
        "found": found,
        "own": name.startswith(OWN),
        "things": "drawn things" if world(found.model) == DRAWN else "ten kinds of things (CIFAR-10)",
        "before": (offers[0], faces[0]),
        "ways": [
            (WAYS[one.offer.name], one, own) for one, own in zip(found.answers[1:], faces[1:], strict=True)
        ],
        "known": len(set(groups)),
    }
    unit = "natural log; points of accuracy"
    return Figure("fairer", "Make it fairer", unit, columns, rows, shown, made=found.query.made)
