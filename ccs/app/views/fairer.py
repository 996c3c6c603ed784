"""Make it fairer: four ways to lower a bias, fitted on half of the people and measured on others."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event

import numpy as np

from ccs.analysis import carriers
from ccs.analysis.evidence import Subject
from ccs.analysis.mitigate import MitigationTable, Option, mitigate_subject
from ccs.analysis.mitigations import METHODS, Fitted
from ccs.analysis.task import Sets
from ccs.app.html import count, join_texts
from ccs.app.routes import Form, Name, post
from ccs.app.services.cache import result
from ccs.app.services.galleries import world
from ccs.app.services.uploads import data_url
from ccs.app.session import FACE_SIDE, Screen
from ccs.app.state import parse_int
from ccs.app.views.base import Figure
from ccs.app.views.query import BiasQuery, shareable, top
from ccs.data import ClassificationSet
from ccs.errors import InputError

METHOD_TITLES = {
    "ablation": "Heads off",
    "scaling": "Heads turned down",
    "edit of all heads": "Erased in heads",
    "projection": "Erased",
}
TRIED = ("ablation", "scaling")
"""Methods that the app can show outside this comparison, and that `export` saves by their heads' factors."""
LOSSES = (0, 1, 2, 5, 10)  # points of accuracy that may be lost
FACES = 8
SEED = 0


class Budget(Form):
    budget: Name = ""


@post("bias/fairer")
def make_fairer(screen: Screen, form: Budget) -> None:
    """Compare ways to lower the bias; InputError with too little to fit them on."""
    budget = parse_int(form.budget, "maximum loss of accuracy")
    query = BiasQuery.of(screen.app, screen.state)
    if budget > 100:
        raise InputError(f"At most 100 points of accuracy can be lost; got {budget}.")
    if len(query.occupations) < 2 or query.k < 2:
        raise InputError(
            "Expected at least 2 occupations and a K of 2, since methods are fitted on half of them; "
            f"got {count(len(query.occupations), 'occupation')} and K = {query.k}."
        )
    screen.session.budget = budget
    screen.change(tab="bias")


def compare_methods(screen: Screen) -> Iterator[tuple[float, str]]:
    """Compare the methods if the visitor has requested it; yields progress, and keeps a figure.

    They run in a thread, which ends at its next step if this generator is closed.
    """
    session, query, canceled = screen.session, BiasQuery.of(screen.app, screen.state), Event()
    budget, session.budget = session.budget, None  # once: a canceled comparison isn't resumed
    if budget is None:
        return
    steps = ["Splitting people and occupations in half"]

    def tell(line: str) -> None:
        if canceled.is_set():
            raise InputError("The comparison was canceled.")
        steps.append(line)

    thread = ThreadPoolExecutor(1)
    try:
        subject = yield from _open_subject(screen, query)
        methods = {name: METHODS[name] for name in METHOD_TITLES}
        comparison = thread.submit(
            mitigate_subject, subject, query.attribute, methods, budget / 100, SEED, tell
        )
        while not wait([comparison], 0.3).done:
            yield 0.1 + 0.9 * min(1, len(steps) / (carriers.STEPS + 6)), steps[-1].capitalize()
        table = comparison.result()
        session.fairer = (screen.state.model, query.key), _figure(screen, query, subject, table)
    except InputError as error:
        session.notify(f"The methods weren't compared: {error}")
    finally:
        canceled.set()
        thread.shutdown(wait=False)


def _open_subject(screen: Screen, query: BiasQuery) -> Generator[tuple[float, str], None, Subject]:
    """Return the model with the gallery's people and with control images; yields progress."""
    galleries, model = screen.app.galleries, screen.model
    name = world(model.name).things
    for share in galleries.embed(model, name):
        yield 0.1 * share, "Embedding control images"
    controls = galleries.find(name)
    assert isinstance(controls, ClassificationSet)
    trunks = [result(galleries.embed(model, gallery)).trunk for gallery in (query.gallery.name, name)]
    if trunks[0] is None or trunks[1] is None:
        raise InputError("This gallery is too large for the app; use clip-ccs mitigate.")
    return Subject(
        model, Sets(people=query.gallery, controls=controls, held_out=True), (trunks[0], trunks[1])
    )


def _figure(screen: Screen, query: BiasQuery, subject: Subject, table: MitigationTable) -> Figure:
    """Return the comparison, with each method's first faces for one of the held-out occupations."""
    attribute, gallery = query.attribute, query.gallery
    fresh, (people, prompts) = subject.fresh(attribute, SEED), subject.unseen(attribute, SEED)
    task, whole = subject.split(attribute, SEED)[1], subject.whole(attribute)
    measured, people = (gallery, people) if fresh is None else (fresh, np.arange(len(fresh.images)))
    place = next(iter(np.flatnonzero(prompts == whole.rows[query.row])), 0)
    pool = np.arange(len(people)) if task.pools is None else np.flatnonzero(task.pools[place])
    ways = []
    for name, option in table.options.items():
        prompt = option.fitted.on_texts(task.prompts[place : place + 1])[0]
        first = people[pool[top(option.people[pool], prompt, min(FACES, len(pool)))]]
        faces = [(data_url(measured.images[int(i)], FACE_SIDE), measured.groups[attribute][i]) for i in first]
        small = replace(option, people=option.people[:0], fitted=Fitted(option.fitted.heads))
        saves = name in METHOD_TITLES and not option.reason and (option.fitted.heads or name not in TRIED)
        command = _command(screen, query, option, table) if saves else ""
        ways.append((METHOD_TITLES.get(name, ""), small, faces, command))
    values = {
        "query": query,
        "table": replace(table, options={}),
        "occupation": whole.names[prompts[place]],
        "chance": table.rows["chance"].iloc[0],
        "before": ways[0],
        "ways": ways[1:],
        "tried": TRIED,
        "others": [name for name in gallery.groups if name != attribute],
    }
    rows = table.rows.to_numpy().tolist()
    return Figure("fairer", list(map(str, table.rows)), rows, values, settings=query.settings)


def _command(screen: Screen, query: BiasQuery, option: Option, table: MitigationTable) -> str:
    """Return the command that saves the model with a method."""
    arguments = {"model": screen.state.model, "out": "fairer"}
    if option.name in TRIED:
        arguments["ablate"] = str(option.fitted.heads)
    else:
        name = query.gallery.name
        arguments |= {
            "gallery": shareable(name),
            "attribute": query.attribute,
            "occupations": join_texts(query.occupations, ", "),
            "top": str(query.k),
            "preserve": table.about["preserve"],
            "max-images": str(len(query.gallery.images)),
            "only": option.name,
            "max-loss": "100",
        }
    parts = [part for key, value in arguments.items() for part in (f"--{key}", value)]
    return shlex.join(["clip-ccs", "export" if option.name in TRIED else "mitigate", *parts])
