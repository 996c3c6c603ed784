"""The query of the view Bias, the embeddings that answer it, and the forms that change it."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from fastapi import UploadFile
from pydantic import Field

from ccs.analysis.bias import embed_occupations, fewest_ranked, rank_gallery, set_question
from ccs.analysis.sample_size import SMALLEST
from ccs.app.html import count, program
from ccs.app.routes import Form, Long, Name, post
from ccs.app.services.uploads import MAX_BYTES
from ccs.app.session import App, Screen, Session
from ccs.app.state import NO_HEADS, OWN, State, parse_int, split_texts
from ccs.data import BiasSet
from ccs.data.open import open_upload
from ccs.errors import InputError
from ccs.heads import ERASE, IMAGE, TEXT, Head, HeadChange, HeadSet, Intervention, changes
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
        gallery = app.galleries.get(app.gallery_name(state))
        opening = tuple(o for o in OPENING if o in gallery.occupations) or gallery.occupations[:3]
        people = set_question(gallery, state.occupations or opening, top=state.k or None)
        return cls(
            people, app.attribute(state), gallery.occupations, min(state.row, len(people.occupations) - 1)
        )

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
    def notices(self) -> list[str]:
        """What a visitor should know about how the gallery was read."""
        skipped, smallest = self.gallery.skipped, min(Counter(self.gallery.groups[self.attribute]).values())
        notices = [f"{count(len(skipped), 'image')} left out: {skipped[0]}"] if skipped else []
        if smallest < SMALLEST["bias"][0]:
            notices.append(
                f"The smallest group has {count(smallest, 'image')}; results mean little below "
                f"{SMALLEST['bias'][0]}"
            )
        return [
            f"{note[:1].upper()}{note[1:].removesuffix('.')}." for note in (*notices, *self.gallery.notes)
        ]

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


def shareable(gallery: str) -> str:
    """Return the name of a gallery in programs; a visitor's own gallery is their file."""
    return "faces.zip" if gallery.startswith(OWN) else gallery


def head_states(screen: Screen, head: Head) -> list[tuple[str, HeadSet, bool]]:
    """Return the states that a head can have: its label, the ablation that sets it, and whether it is set."""
    ablate, others = screen.state.ablate, Intervention(screen.state.ablate - {head})
    choices: dict[str, HeadSet] = {"On": others, "Off": others.with_changes({head: 0.0})}
    if head.encoder == IMAGE:
        set_now = {change.attribute for at, change in changes(ablate) if at == head} - {""}
        for attribute in sorted({screen.app.attribute(screen.state), *set_now}):
            edit = HeadChange.of(f"{ERASE}{attribute}")
            choices[f"Erase {attribute}"] = others.with_changes({head: edit})
    return [(label, heads, heads == ablate) for label, heads in choices.items()]


def bias_lines(screen: Screen, query: BiasQuery, metrics: Sequence[MetricName]) -> str:
    """Return a program that prints metrics, and each group's share of the top for the occupation shown."""
    first = program("model", model=screen.state.model, ablate=screen.state.ablate)
    return first + program("bias", query=query, spec=shareable(query.gallery.name), names=metrics)


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
    galleries, current = screen.app.galleries, screen.gallery
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
