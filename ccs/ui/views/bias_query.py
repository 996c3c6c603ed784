"""A question to the view Bias, the choices that it is made of, and the measurement that answers it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import get_args

import numpy as np

from ccs.datasets.sets import BiasSet
from ccs.errors import InputError
from ccs.measures import bias, faults, ranking
from ccs.measures.accuracy import class_weights
from ccs.measures.bias import BiasResult
from ccs.model.model import Model
from ccs.paper import figures as paper
from ccs.ui.actions import Fields, change
from ccs.ui.app import App
from ccs.ui.session import Session
from ccs.ui.state import FAULTS, State, line, one_of, parse_int, template, texts

OPENING = ("judge", "artist", "teacher")
STUDY = "study"  # the study's four templates
DRAWS = 400


@dataclass(frozen=True)
class BiasQuery:
    """Every choice that the figures depend on. `row`: the occupation shown in images.

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

    @classmethod
    def of(cls, app: App, state: State) -> BiasQuery:
        """The choices in force; what the visitor left open is the gallery's own."""
        gallery = app.galleries.get(state.gallery or app.galleries.names[0])
        attribute = state.attribute if state.attribute in gallery.groups else next(iter(gallery.groups))
        opening = tuple(o for o in OPENING if o in gallery.occupations) or gallery.occupations[:3]
        occupations = state.occupations or opening
        own = {"": gallery.templates, STUDY: paper.templates()}
        k = state.k or gallery.k.get(attribute, max(1, len(gallery.images) // 10))
        return cls(
            gallery=gallery,
            attribute=attribute,
            occupations=occupations,
            templates=own.get(state.bias_template, (state.bias_template,)),
            k=min(k, len(gallery.images)),
            target=state.target,
            fault=next((fault for fault in get_args(faults.Fault) if fault == state.fault), None),
            row=min(state.row, len(occupations) - 1),
        )

    def texts(self, session: Session, model: Model) -> np.ndarray:
        """Unit text embeddings [occupations, d], templates averaged; kept for the next click."""
        key = ("occupations", model.weights_hash, self.occupations, self.templates)
        return session.memory.get(key, lambda: class_weights(model, self.occupations, self.templates))

    def measure(
        self, before: np.ndarray, after: np.ndarray, occupations: np.ndarray
    ) -> tuple[BiasResult, BiasResult]:
        """The results with nothing off and with the heads off, on the same resampled images."""
        with ThreadPoolExecutor() as threads:
            first, second = bias.measure_plans(
                [before, after],
                occupations,
                self.gallery.groups[self.attribute],
                self.k,
                target="uniform" if self.target == "uniform" else "pool",
                fault=self.fault,
                draws=DRAWS,
                map=threads.map,
            )
        return first, second


def top(embeddings: np.ndarray, occupation: np.ndarray, n: int) -> np.ndarray:
    """Indices of the `n` images nearest to the occupation's text, best first."""
    scores = ranking.products(ranking.unit(occupation[None], "text"), ranking.unit(embeddings, "images"))
    return np.asarray(ranking.top(scores, n)[0])


# -- actions -------------------------------------------------------------------------------------------------


def ask(app: App, session: Session, fields: Fields) -> None:
    """Take the form of the view."""
    gallery = app.galleries.get(str(fields.get("gallery", "")))
    attribute = str(fields.get("attribute", ""))
    attribute = attribute if attribute in gallery.groups else next(iter(gallery.groups))
    changed = gallery.name != BiasQuery.of(app, session.state).gallery.name
    k = parse_int(fields.get("k"), "cut-off K")
    if not changed and not 1 <= k <= len(gallery.images):
        raise InputError(f"K must be 1 to {len(gallery.images)}, not {k}.")
    chosen = line(str(fields.get("template", "")))
    change(
        session,
        gallery=gallery.name,
        attribute=attribute,
        bias_template=chosen if chosen == STUDY else template(chosen),
        k=0 if changed or k == gallery.k.get(attribute) else k,
        occupations=texts(str(fields.get("occupations", ""))),
        target="uniform" if fields.get("target") == "uniform" else "pool",
        fault=one_of(fields.get("fault", ""), FAULTS, "way to compute"),
        row=0,
    )


def all_occupations(app: App, session: Session, fields: Fields) -> None:
    """Ask of all occupations of the study, or of the gallery."""
    own = BiasQuery.of(app, session.state).gallery.occupations
    change(session, occupations=paper.occupations() if fields.get("value") == STUDY else own)


def show_row(app: App, session: Session, fields: Fields) -> None:
    """Show the images of another occupation."""
    change(session, row=parse_int(fields.get("value"), "occupation’s number"))
