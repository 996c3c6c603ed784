"""Make it fairer: four ways to lower a bias, fitted on half of the people and measured on others."""

from __future__ import annotations

import itertools
from typing import Annotated

from pydantic import Field

from ccs.analysis.evidence import Subject
from ccs.app.routes import post
from ccs.app.services.galleries import world
from ccs.app.session import Screen
from ccs.app.views.base import Figure
from ccs.app.views.query import BiasQuery
from ccs.data import ClassificationSet
from ccs.errors import InputError

WAYS = ("ablation", "scaling", "edit of all heads", "projection")  # of `ccs.mitigate`


@post("bias/fairer")
def make_fairer(screen: Screen, budget: Annotated[int, Field(ge=0, le=100)] = 0) -> None:
    """Request a comparison of ways to lower the bias, which `compare_methods` does.

    Args:
        screen: The screen that the form changes.
        budget: The points of accuracy that may be lost.
    """
    screen.session.budget = budget
    screen.change(tab="bias")


def compare_methods(screen: Screen, query: BiasQuery) -> None:
    """Compare the methods if the visitor has requested it, and keep a figure.

    Args:
        screen: The screen.
        query: Its query.
    """
    from ccs.analysis import carriers  # these import PyTorch
    from ccs.analysis.mitigate import mitigate_subject
    from ccs.analysis.mitigations import METHODS

    session, galleries, steps = screen.session, screen.app.galleries, itertools.count()
    if session.budget is None:
        return
    screen.tell(0.0, "Comparing methods")
    budget, session.budget = session.budget, None  # once: a canceled comparison isn't resumed
    model, controls = screen.model, world(screen.model.name).things

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
        subject = Subject(model, query.gallery, images, (people, things), fresh=True)
        methods = {name: METHODS[name] for name in WAYS}
        table = mitigate_subject(subject, query.attribute, methods, budget / 100, tell=tell)
    except InputError as error:
        session.notify(f"The methods weren't compared: {error}")
        return
    settings = {**query.settings, "ablated heads": ""}
    figure = Figure.of(screen, "fairer", table.rows, settings, query=query, comparison=table)
    session.fairer = (screen.state.model, query.key), figure
