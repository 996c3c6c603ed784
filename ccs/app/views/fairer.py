"""Make it fairer: four ways to lower a bias, fitted on half of the people and measured on others."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from ccs.analysis.evidence import Subject
from ccs.analysis.task import Sets
from ccs.app.html import count, join_texts
from ccs.app.routes import Name, post
from ccs.app.services.galleries import world
from ccs.app.session import Screen
from ccs.app.state import parse_int
from ccs.app.views.base import Figure
from ccs.app.views.query import BiasQuery, shareable
from ccs.data import ClassificationSet
from ccs.errors import InputError

if TYPE_CHECKING:
    from ccs.analysis.mitigate import MitigationTable, Option

METHOD_TITLES = {
    "ablation": "Heads off",
    "scaling": "Heads turned down",
    "edit of all heads": "Erased in heads",
    "projection": "Erased",
}
TRIED = ("ablation", "scaling")
"""Methods that the app can show outside this comparison, and that `export` saves by their heads' factors."""
LOSSES = (0, 1, 2, 5, 10)  # points of accuracy that may be lost
SEED = 0


@post("bias/fairer")
def make_fairer(screen: Screen, budget: Name = "") -> None:
    """Request a comparison of ways to lower the bias, which `compare_methods` does.

    Args:
        screen: The screen that the form changes.
        budget: The points of accuracy that may be lost, 0 to 100.

    Raises:
        InputError: For another number of points, and for fewer than 2 occupations or a K below 2.
    """
    points = parse_int(budget, "maximum loss of accuracy")
    query = BiasQuery.from_state(screen.app, screen.state)
    if points > 100:
        raise InputError(f"At most 100 points of accuracy can be lost; got {points}.")
    if len(query.occupations) < 2 or query.k < 2:
        raise InputError(
            "Expected at least 2 occupations and a K of 2, since methods are fitted on half of them; "
            f"got {count(len(query.occupations), 'occupation')} and K = {query.k}."
        )
    screen.session.budget = points
    screen.change(tab="bias")


def compare_methods(screen: Screen) -> None:
    """Compare the methods if the visitor has requested it, and keep a figure."""
    from ccs.analysis import carriers  # these import PyTorch
    from ccs.analysis.mitigate import mitigate_subject
    from ccs.analysis.mitigations import METHODS

    session, query, steps = screen.session, BiasQuery.from_state(screen.app, screen.state), itertools.count()
    budget, session.budget = session.budget, None  # once: a canceled comparison isn't resumed
    if budget is None:
        return
    galleries, model, controls = screen.app.galleries, screen.model, world(screen.model.name).things

    def tell(line: str) -> None:
        share = 0.1 + 0.9 * min(1, next(steps) / (carriers.STEPS + 6))
        screen.tell(share, line.partition(":")[0].capitalize())

    try:
        people, things = (
            galleries.images(name, screen.tell).whole(model).trunk for name in (query.gallery.name, controls)
        )
        if people is None or things is None:
            raise InputError("This gallery is too large for the app; use clip-ccs mitigate.")
        images = galleries.find(controls)
        assert isinstance(images, ClassificationSet)
        sets = Sets(people=query.gallery, controls=images, held_out=True)
        methods = {name: METHODS[name] for name in METHOD_TITLES}
        subject = Subject(model, sets, (people, things))
        table = mitigate_subject(subject, query.attribute, methods, budget / 100, SEED, tell)
        session.fairer = (screen.state.model, query.key), _figure(screen, query, table)
    except InputError as error:
        session.notify(f"The methods weren't compared: {error}")


def _figure(screen: Screen, query: BiasQuery, table: MitigationTable) -> Figure:
    """Return the comparison, without the people's embeddings and what maps them."""
    from ccs.analysis.mitigations import Fitted

    before, *options = [
        replace(option, people=option.people[:0], fitted=Fitted(option.fitted.heads))
        for option in table.options.values()
    ]
    values = {
        "query": query,
        "about": table.about,
        "best": table.best,
        "chance": table.rows["chance"].iloc[0],
        "before": before,
        "ways": [(METHOD_TITLES[option.name], option, _command(screen, query, option)) for option in options],
        "tried": TRIED,
        "others": [name for name in query.gallery.groups if name != query.attribute],
    }
    rows = table.rows.to_numpy().tolist()
    return Figure("fairer", list(map(str, table.rows)), rows, values, settings=query.settings)


def _command(screen: Screen, query: BiasQuery, option: Option) -> str:
    """Return the command that saves the model with a method, "" if the method isn't worth it."""
    arguments, tried = {"model": screen.state.model, "out": "fairer"}, option.name in TRIED
    if option.reason or not (option.fitted.heads if tried else option.max_skew_change.high < 0):
        return ""
    if tried:
        arguments["ablate"] = str(option.fitted.heads)
    else:
        arguments |= {
            "gallery": shareable(query.gallery.name),
            "attribute": query.attribute,
            "occupations": join_texts(query.occupations, ", "),
            "top": str(query.k),
            "preserve": world(screen.state.model).things,
            "max-images": str(len(query.gallery.images)),
            "method": option.name,
        }
    parts = [part for key, value in arguments.items() for part in (f"--{key}", value)]
    return shlex.join(["clip-ccs", "export" if tried else "mitigate", *parts])
