"""The query of the view Bias, the embeddings that answer it, and the forms that change it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from fastapi import UploadFile
from pydantic import Field

from ccs.analysis.bias import embed_occupations, fewest_ranked, rank_gallery, set_question
from ccs.app.html import count, program
from ccs.app.routes import Form, Long, Name, post
from ccs.app.services.uploads import MAX_BYTES
from ccs.app.session import App, Screen, Session
from ccs.app.state import NO_HEADS, OWN, State, parse_int, split_texts
from ccs.data import BiasSet
from ccs.data.open import open_upload
from ccs.errors import InputError
from ccs.heads import TEXT, HeadSet
from ccs.metrics import bias, ranking
from ccs.metrics.skew import MetricName
from ccs.model.model import Model

OPENING = ("judge", "artist", "teacher")
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
    """Every choice that the numbers of the view Bias depend on.

    Attributes:
        gallery: with the occupations and the K in force.
        attribute: the column of groups.
        listed: all occupations of the gallery.
        row: number of the occupation whose images are shown.
    """

    gallery: BiasSet
    attribute: str
    listed: tuple[str, ...]
    row: int = 0

    @classmethod
    def of(cls, app: App, state: State) -> BiasQuery:
        """Return the query of a state; what the visitor left open is the gallery's own.

        Raises:
            InputError: For K above half of the images that every occupation ranks.
        """
        gallery = app.galleries.get(cls.gallery_name(app, state))
        attribute = state.attribute if state.attribute in gallery.groups else next(iter(gallery.groups))
        opening = tuple(o for o in OPENING if o in gallery.occupations) or gallery.occupations[:3]
        people = set_question(gallery, state.occupations or opening, top=state.k or None)
        return cls(people, attribute, gallery.occupations, min(state.row, len(people.occupations) - 1))

    @staticmethod
    def gallery_name(app: App, state: State) -> str:
        """Return the gallery in force: the link's, unless its visitor has left, else the model's first."""
        gone = state.gallery.startswith(OWN) and not app.galleries.has(state.gallery)
        return (not gone and state.gallery) or app.galleries.names(state.model)[0]

    @property
    def occupations(self) -> tuple[str, ...]:
        return self.gallery.occupations

    @property
    def occupation(self) -> str:
        """The occupation whose images are shown."""
        return self.occupations[self.row]

    @property
    def k(self) -> int:
        return self.gallery.k[self.attribute]

    @property
    def groups(self) -> tuple[str, ...]:
        """The attribute's groups in their natural order."""
        return natural_order(map(str, np.unique(self.gallery.groups[self.attribute])))

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a figure. The name of a visitor's gallery, which gives access, is left out."""
        name = "own" if self.gallery.name.startswith(OWN) else self.gallery.name
        return {"gallery": name, "template": " | ".join(self.gallery.templates), "attribute": self.attribute}

    @property
    def most_k(self) -> int:
        """Half of the images that an occupation ranks, the fewest."""
        return max(1, fewest_ranked(self.gallery) // 2)

    @property
    def key(self) -> tuple[object, ...]:
        """All of it but the row: equal for queries with the same answer."""
        return self.gallery.name, self.attribute, self.occupations, self.k

    def pool(self) -> np.ndarray:
        """Return the numbers of the images that the occupation shown ranks."""
        pools = self.gallery.own_pools(self.occupations)
        return np.arange(len(self.gallery.images)) if pools is None else np.flatnonzero(pools[self.row])

    def texts(self, session: Session, model: Model, ablate: HeadSet = NO_HEADS) -> np.ndarray:
        """Return unit text embeddings [occupations, d], templates averaged, kept for the next click.

        Args:
            session: the visitor's.
            model: the model.
            ablate: heads, of which those of the text encoder matter.
        """
        heads = ablate.of_encoder(TEXT)
        key = ("occupations", model.weights_hash, self.occupations, self.gallery.templates, heads)
        return session.memory.get(key, lambda: embed_occupations(model, self.gallery, heads))

    def mean_skew(self, images: np.ndarray, texts: np.ndarray) -> float:
        """Return the mean MaxSkew over texts.

        Args:
            images: unit embeddings [n, d] of the gallery.
            texts: unit embeddings [occupations, d].
        """
        return bias.means(images, rank_gallery(self.gallery, self.attribute, texts))["MaxSkew"]


def bias_lines(screen: Screen, query: BiasQuery, metrics: Sequence[MetricName]) -> str:
    """Return a program that prints metrics, and each group's share of the top for the occupation shown."""
    spec = "" if query.gallery.name.startswith(OWN) else query.gallery.name
    first = program("model", model=screen.state.model, ablate=screen.state.ablate)
    return first + program("bias", query=query, spec=spec, names=metrics)


def top(images: np.ndarray, prompt: np.ndarray, n: int) -> np.ndarray:
    """Return the numbers of the `n` images nearest to a prompt, best first.

    Args:
        images: embeddings [images, d].
        prompt: embedding [d].
        n: at most as many as there are images.
    """
    return np.asarray(ranking.top(ranking.cosines(prompt[None], images), n)[0])


def embedded(
    screen: Screen, query: BiasQuery, complete: bool = True
) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    """Return embeddings of the gallery [n, d] and of the occupations, each before and after ablation.

    Args:
        screen: names the model and the ablated heads.
        query: names the gallery and the occupations.
        complete: False for None if the gallery isn't embedded yet.
    """
    model, galleries, name = screen.model, screen.app.galleries, query.gallery.name
    if not complete and not galleries.ready(model, name, screen.state.ablate):
        return None
    sets = HeadSet(), screen.state.ablate
    texts = [query.texts(screen.session, model, heads) for heads in sets]
    return [galleries.embeddings(model, name, heads) for heads in sets], texts


# -- forms ---------------------------------------------------------------------------------------------------


class QueryForm(Form):
    occupations: Long = ""
    gallery: Name = ""
    attribute: Name = ""
    k: Name = ""


@post("bias")
def set_query(screen: Screen, form: QueryForm) -> None:
    """Rank a gallery for occupations."""
    galleries, current = screen.app.galleries, BiasQuery.gallery_name(screen.app, screen.state)
    gallery = current if form.gallery == OWN and current.startswith(OWN) else form.gallery
    attribute, k = form.attribute, parse_int(form.k or "0", "K") if gallery == current else 0
    if galleries.has(gallery) or gallery not in galleries.names(screen.state.model):
        people = galleries.get(gallery)
        attribute = attribute if attribute in people.groups else next(iter(people.groups))
        k = 0 if k == people.k.get(attribute) else k
    occupations = split_texts(form.occupations)
    screen.change(gallery=gallery, attribute=attribute, k=k, occupations=occupations, row=0)
    if galleries.has(gallery):
        BiasQuery.of(screen.app, screen.state)  # K may be more than every occupation has images


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
    screen.session.notify(*(f"{note[:1].upper()}{note[1:]}." for note in gallery.notes))


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
