"""A question to the view Bias, what it is made of, and the embeddings that answer it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fastapi import UploadFile
from pydantic import Field

from ccs.analysis.bias import embed_occupations, fewest_ranked, measure_gallery, rank_gallery, set_question
from ccs.app.html import count, program
from ccs.app.routes import Form, Long, Name, post
from ccs.app.services.uploads import MAX_BYTES
from ccs.app.session import App, Screen, Session
from ccs.app.state import NO_HEADS, OWN, State, parse_int, split_texts
from ccs.data import BiasSet, Lazy
from ccs.data.open import open_upload
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, HeadSet
from ccs.metrics import bias, ranking
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.skew import MetricName
from ccs.model.model import Model

OPENING = ("judge", "artist", "teacher")
DRAWS = 400
SHOWN_METRICS: tuple[MetricName, ...] = ("MaxSkew", "AUC", "NDKL", "logit gap")


_ORDERS = (
    ("light", "medium-light", "medium", "medium-dark", "dark"),
    ("very light", "light", "intermediate", "tan", "brown", "dark"),
    ("child", "young", "adult", "middle-aged", "old"),
)
"""Groups that have an order."""


def natural_order(groups: Iterable[str]) -> tuple[str, ...]:
    """Return groups from light to dark and from young to old, numbers by size, others by name."""
    names = list(groups)
    scale = next((order for order in _ORDERS if {name.casefold() for name in names} <= {*order}), ())

    def place(name: str) -> tuple[float, str]:
        number = re.match(r"\d+", name)  # "0-2" before "10-19"
        return (scale.index(name.casefold()) if scale else float(number[0]) if number else 1e9), name

    return tuple(sorted(names, key=place))


@dataclass(frozen=True)
class BiasQuery:
    """Every choice that the figures depend on.

    gallery: with the occupations and the K that are asked for. listed: all of its occupations. row: the
    occupation shown in images.
    """

    gallery: BiasSet
    attribute: str
    listed: tuple[str, ...]
    row: int = 0

    @classmethod
    def of(cls, app: App, state: State) -> BiasQuery:
        """The choices in force; what the visitor left open is the gallery's own.

        InputError for K above half of the images that every occupation ranks.
        """
        gallery = app.galleries.get(cls.name(app, state))
        attribute = state.attribute if state.attribute in gallery.groups else next(iter(gallery.groups))
        opening = tuple(o for o in OPENING if o in gallery.occupations) or gallery.occupations[:3]
        people = set_question(gallery, state.occupations or opening, top=state.k or None)
        return cls(people, attribute, gallery.occupations, min(state.row, len(people.occupations) - 1))

    @staticmethod
    def name(app: App, state: State) -> str:
        """The gallery in force: the link's, unless its visitor has left, else the model's first."""
        gone = state.gallery.startswith(OWN) and not app.galleries.has(state.gallery)
        return (not gone and state.gallery) or app.galleries.names(state.model)[0]

    @property
    def occupations(self) -> tuple[str, ...]:
        return self.gallery.occupations

    @property
    def k(self) -> int:
        return self.gallery.k[self.attribute]

    @property
    def groups(self) -> tuple[str, ...]:
        """The attribute's groups in their natural order."""
        return natural_order(map(str, np.unique(self.gallery.groups[self.attribute])))

    @property
    def made(self) -> dict[str, str]:
        """What a figure was made with. The name of a visitor's gallery, which gives access, is left out."""
        name = "own" if self.gallery.name.startswith(OWN) else self.gallery.name
        return {"gallery": name, "template": " | ".join(self.gallery.templates), "attribute": self.attribute}

    @property
    def shown(self) -> dict[str, str]:
        """What a figure of the occupation shown was made with."""
        return {**self.made, "occupation": self.occupations[self.row]}

    @property
    def most_k(self) -> int:
        """Half of the images that an occupation ranks, the fewest."""
        return max(1, fewest_ranked(self.gallery) // 2)

    @property
    def key(self) -> tuple[object, ...]:
        """All of it but the row: equal for queries with the same answer."""
        return self.gallery.name, self.attribute, self.occupations, self.k

    def first(self, n: int) -> BiasQuery:
        """The same of the first `n` images, with the same part of them as K."""
        whole = self.gallery
        pools, units = (None if of is None else of[:n] for of in (whole.pools, whole.units))
        part = replace(
            whole,
            images=Lazy(whole.images.__getitem__, range(n)),
            groups={name: of[:n] for name, of in whole.groups.items()},
            k={name: max(1, round(k * n / len(whole.images))) for name, k in whole.k.items()},
            pools=pools,
            units=units,
        )
        return replace(self, gallery=part)

    @property
    def pools(self) -> np.ndarray | None:
        """The images that each occupation ranks, bool [occupations, images]; None for all."""
        return self.gallery.own_pools(self.occupations)

    def texts(self, session: Session, model: Model, off: HeadSet = NO_HEADS) -> np.ndarray:
        """Unit text embeddings [occupations, d], templates averaged, with the text encoder's heads off; kept
        for the next click.
        """
        off = off.of_encoder(TEXT)
        key = ("occupations", model.weights_hash, self.occupations, self.gallery.templates, off)
        return session.memory.get(key, lambda: embed_occupations(model, self.gallery, off))

    def mean_skew(self, images: np.ndarray, texts: np.ndarray) -> float:
        """The mean MaxSkew over texts, from unit embeddings of the gallery's images and of the texts."""
        return bias.means(images, rank_gallery(self.gallery, self.attribute, texts))["MaxSkew"]

    def measure(
        self, images: Sequence[np.ndarray], texts: Sequence[np.ndarray], logit_scale: float
    ) -> list[BiasResult]:
        """The results with nothing off and with the heads off, on the same resampled images: from embeddings
        of images [n, d] and of texts [occupations, d] with either. logit_scale: from a cosine to a logit.
        """
        settings = {"metrics": SHOWN_METRICS, "draws": DRAWS, "logit_scale": logit_scale}
        return list(measure_gallery(self.gallery, self.attribute, images, texts, **settings))


def lines(state: State, query: BiasQuery, names: Sequence[MetricName]) -> str:
    """Lines of a program that loads the model, asks it the query and prints these measures, and each group's
    share of the top for the occupation shown.
    """
    spec = "" if query.gallery.name.startswith(OWN) else query.gallery.name
    rest = program("bias", query=query, spec=spec, names=names)
    return program("model", model=state.model, ablate=state.ablate) + rest


def top(embeddings: np.ndarray, occupation: np.ndarray, n: int) -> np.ndarray:
    """Indices of the `n` images nearest to the occupation's text, best first."""
    scores = ranking.products(ranking.unit(occupation[None], "text"), ranking.unit(embeddings, "images"))
    return np.asarray(ranking.top(scores, n)[0])


def embedded(
    app: App, model: Model, query: BiasQuery, off: HeadSet, complete: bool = True
) -> tuple[BiasQuery, np.ndarray, np.ndarray] | None:
    """The query, and its gallery's embeddings with nothing and with the heads off. With `complete` False only
    what is at hand: of the first images while the others are being looked at, or None.
    """
    galleries, name = app.galleries, query.gallery.name
    if complete or galleries.ready(model, name, off):
        return query, galleries.embeddings(model, name), galleries.embeddings(model, name, off)
    part = galleries.part(model, name)
    if part is None or part.trunk is None:
        return None
    seen = off.of_encoder(IMAGE)
    after = model.embed_images(part.trunk, seen) if seen else part.base
    return query.first(len(part.base)), part.base, after


# -- forms ---------------------------------------------------------------------------------------------------


class BiasForm(Form):
    occupations: Long = ""
    gallery: Name = ""
    attribute: Name = ""
    k: Name = ""


@post("bias")
def measure_bias(screen: Screen, form: BiasForm) -> None:
    """Rank a gallery for occupations."""
    app, k, gallery, attribute = screen.app, parse_int(form.k or "0", "K"), form.gallery, form.attribute
    known = BiasQuery.name(app, screen.state)
    gallery = known if gallery == OWN and known.startswith(OWN) else gallery
    if app.galleries.has(gallery) or gallery not in app.galleries.names(screen.state.model):
        people = app.galleries.get(gallery)
        attribute = attribute if attribute in people.groups else next(iter(people.groups))
        k = 0 if k == people.k.get(attribute) else k
    k = k if gallery == known else 0
    occupations = split_texts(form.occupations)
    screen.change(gallery=gallery, attribute=attribute, k=k, occupations=occupations, row=0)
    if app.galleries.has(gallery):
        BiasQuery.of(app, screen.state)  # K may be more than every occupation has images


class GalleryForm(Form):
    files: list[UploadFile] = Field(default=[])


@post("bias/gallery")
def add_gallery(screen: Screen, form: GalleryForm) -> None:
    """Rank a gallery of the visitor's, from a zip or Parquet file."""
    files = [file for file in form.files if file.filename]
    if len(files) != 1:
        raise InputError(f"Expected one zip or Parquet file; got {len(files)}.")
    data = files[0].file.read()
    if len(data) > MAX_BYTES:
        raise InputError(
            f"The file has {len(data) / 2**20:.0f} MB; at most {MAX_BYTES >> 20} MB are accepted."
        )
    name = f"{OWN}{secrets.token_urlsafe(12)}"
    gallery = open_upload(data, name)
    screen.app.galleries.add(gallery, screen.session)
    screen.session.gallery = name
    screen.change(tab="bias", gallery=name, attribute=next(iter(gallery.groups)), k=0, row=0)
    if gallery.skipped:
        screen.session.notify(f"{count(len(gallery.skipped), 'image')} left out: {gallery.skipped[0]} …")


@post("bias/all")
def choose_all_occupations(screen: Screen, form: Form) -> None:
    """Rank for all occupations of the gallery."""
    screen.change(occupations=BiasQuery.of(screen.app, screen.state).listed)
    BiasQuery.of(screen.app, screen.state)  # K may be more than these have images


class RowForm(Form):
    row: Name = ""


@post("bias/row")
def show_row(screen: Screen, form: RowForm) -> None:
    """Show the images of another occupation."""
    screen.change(row=parse_int(form.row, "occupation's number"))
