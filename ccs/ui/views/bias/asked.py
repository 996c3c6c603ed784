"""What the visitor asks of the view Bias, and the measurement that answers it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from ccs.datasets.sets import BiasSet
from ccs.measures import bias, faults, ranking
from ccs.measures.accuracy import class_weights
from ccs.measures.bias import BiasResult
from ccs.model.model import Model
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.app import App

OPENING = ("judge", "artist", "teacher")
DRAWS = 400


@dataclass(frozen=True)
class Asked:
    """What is measured: every choice that the figures depend on. `row`: the occupation shown in pictures.

    `templates` and `occupations` are texts; `fault` is one of the study's code, None for the right way.
    """

    gallery: BiasSet
    attribute: str
    occupations: tuple[str, ...]
    templates: tuple[str, ...]
    k: int
    target: str
    fault: faults.Fault | None
    row: int = 0


def asked(app: App, session: Session) -> Asked:
    """The choices in force; what the visitor left open is the gallery's own."""
    from ccs import paper

    state = session.state
    gallery = app.galleries.get(state.gallery or app.galleries.names[0])
    attribute = state.attribute if state.attribute in gallery.groups else next(iter(gallery.groups))
    occupations = (
        state.occupations or tuple(o for o in OPENING if o in gallery.occupations) or gallery.occupations[:3]
    )
    templates = {"": gallery.templates, "study": paper.templates()}.get(
        state.bias_template, (state.bias_template,)
    )
    k = state.k or gallery.k.get(attribute, max(1, len(gallery.images) // 10))
    return Asked(
        gallery=gallery,
        attribute=attribute,
        occupations=occupations,
        templates=templates,
        k=min(k, len(gallery.images)),
        target=state.target,
        fault=next((fault for fault in get_args(faults.Fault) if fault == state.fault), None),
        row=min(state.row, len(occupations) - 1),
    )


def texts(session: Session, model: Model, what: Asked) -> np.ndarray:
    """Unit text embeddings [occupations, d], templates averaged; kept for the next click."""
    key = ("occupations", model.weights_hash, what.occupations, what.templates)
    return session.memory.get(key, lambda: class_weights(model, what.occupations, what.templates))


def measure(
    before: np.ndarray, after: np.ndarray, occupations: np.ndarray, what: Asked
) -> tuple[BiasResult, BiasResult]:
    """The results with nothing off and with the heads off, on the same resampled images."""
    with ThreadPoolExecutor() as threads:
        first, second = bias.measure_plans(
            [before, after],
            occupations,
            what.gallery.groups[what.attribute],
            what.k,
            target="uniform" if what.target == "uniform" else "pool",
            fault=what.fault,
            draws=DRAWS,
            map=threads.map,
        )
    return first, second


def top(embeddings: np.ndarray, occupation: np.ndarray, n: int) -> np.ndarray:
    """Indices of the `n` pictures nearest to the occupation's text, best first."""
    scores = ranking.products(ranking.unit(occupation[None], "text"), ranking.unit(embeddings, "images"))
    return np.asarray(ranking.top(scores, n)[0])
