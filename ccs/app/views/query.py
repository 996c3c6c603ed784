"""The query of the view Bias, the embeddings that answer it, and its program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ccs.analysis.bias import BiasTable, measure_people, own_pools, rank_gallery
from ccs.analysis.inputs import fewest_ranked, in_prompts, set_question
from ccs.app.html import program
from ccs.app.jobs import Tell, wait_for_nothing
from ccs.app.session import App, Screen
from ccs.app.state import NO_HEADS, OWN, State
from ccs.data import BiasSet
from ccs.metrics import ranking
from ccs.metrics.bias import means
from ccs.metrics.skew import MetricName
from ccs.texts.prompts import NEUTRAL

DEFAULT_OCCUPATIONS = ("judge", "artist", "teacher")
SHOWN_METRICS: tuple[MetricName, ...] = ("MaxSkew", "AUC", "NDKL", "logit gap")
DRAWS = 400  # resamples of an interval
TONES = "very light,light,medium-light,intermediate,medium,tan,medium-dark,brown,dark"
AGES = "child,young,adult,middle-aged,old"
_PLACES = {name: place for place, name in enumerate(f"{TONES},{AGES}".split(","))}


def natural_order(groups: Iterable[str]) -> list[str]:
    """Return groups from light to dark and from young to old, numbers by size, others by name."""
    first = {name: (re.findall(r"\d+", name) or [1e9])[0] for name in groups}  # "0-2" before "10-19"
    return sorted(first, key=lambda name: (_PLACES.get(name.casefold(), float(first[name])), name))


@dataclass(frozen=True)
class BiasQuery:
    """Every choice that the numbers of the view Bias depend on.

    Attributes:
        gallery: The gallery, with the occupations and the K in use.
        attribute: The column of groups.
        listed: All occupations of the gallery.
        row: Number of the occupation whose images are shown.
    """

    gallery: BiasSet
    attribute: str
    listed: tuple[str, ...]
    row: int = 0

    @classmethod
    def from_state(cls, app: App, state: State, tell: Tell = wait_for_nothing) -> BiasQuery:
        """Return the query of a state. The gallery fills in what the visitor left open.

        Args:
            app: The app, with the galleries.
            state: The state of the screen.
            tell: Publishes the progress of a download. By default nothing is downloaded.

        Raises:
            InputError: For K above half of the images that every occupation ranks, and without the gallery.
            NotReady: If the gallery has to be downloaded and `tell` is `wait_for_nothing`.
        """
        gallery = app.galleries.people(app.gallery_name(state), tell)
        opening = tuple(o for o in DEFAULT_OCCUPATIONS if o in gallery.occupations) or gallery.occupations[:3]
        people = set_question(gallery, state.occupations or opening, top=state.k or None)
        row = min(state.row, len(people.occupations) - 1)
        return cls(people, app.attribute(state), gallery.occupations, row)

    @property
    def occupation(self) -> str:
        """The occupation whose images are shown."""
        return self.gallery.occupations[self.row]

    @property
    def k(self) -> int:
        """Number of images at the top of a ranking."""
        return self.gallery.k[self.attribute]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a figure. The name of a visitor's gallery, which gives access, is left out."""
        name = "own" if self.gallery.name.startswith(OWN) else self.gallery.name
        template = " | ".join(self.gallery.templates)
        return {"gallery": name, "template": template, "attribute": self.attribute, "k": self.k}

    @property
    def most_k(self) -> int:
        """Half of the images that an occupation ranks, the fewest."""
        return max(1, fewest_ranked(self.gallery) // 2)

    @property
    def key(self) -> tuple[object, ...]:
        """All fields except the row. Queries with equal keys have the same answer."""
        return self.gallery.name, self.attribute, self.gallery.occupations, self.k

    def pool(self) -> np.ndarray:
        """Return the numbers of the images that the occupation shown ranks."""
        pools = own_pools(self.gallery)
        return np.arange(len(self.gallery.images)) if pools is None else np.flatnonzero(pools[self.row])


def top(images: np.ndarray, prompt: np.ndarray, n: int) -> np.ndarray:
    """Return the numbers of the `n` images nearest to a prompt, best first.

    Args:
        images: Embeddings [images, d].
        prompt: Embedding [d].
        n: Number of images to return, at most all.
    """
    return np.asarray(ranking.top(ranking.cosines(prompt[None], images), n)[0])


class Embedded(NamedTuple):
    """Embeddings that answer a query, each before and after ablation.

    Attributes:
        query: The query.
        images: Unit embeddings [n, d] of the gallery.
        texts: Unit embeddings [occupations, d], means over the templates.
    """

    query: BiasQuery
    images: list[np.ndarray]
    texts: list[np.ndarray]

    def first(self, n: int) -> list[list[int]]:
        """Return the numbers of the first `n` images, or fewer, for the occupation, before and after."""
        pool, row = self.query.pool(), self.query.row
        pairs = zip(self.images, self.texts, strict=True)
        return [pool[top(images[pool], texts[row], min(n, len(pool)))].tolist() for images, texts in pairs]

    def mean_skews(self) -> list[float]:
        """Return the mean MaxSkew over occupations, before and after."""
        tasks = [rank_gallery(self.query.gallery, self.query.attribute, texts) for texts in self.texts]
        return [means(*side)["MaxSkew"] for side in zip(self.images, tasks, strict=True)]

    def measure(self, screen: Screen) -> BiasTable:
        """Return the bias before and after the screen's ablation."""
        model, ablate, query = screen.model, screen.state.ablate, self.query
        ends = list(zip(self.images, self.texts, strict=True))[: 2 if ablate else 1]
        neutral = screen.embed_texts(NEUTRAL, query.gallery.templates, ablate)
        settings: dict[str, Any] = {"ablate": ablate, "metrics": SHOWN_METRICS, "draws": DRAWS}
        measure = partial(measure_people, model, query.gallery, query.attribute, ends, neutral, **settings)
        return screen.app.cache.get(("bias", model.weights_hash, query.key, ablate), measure)


def embed_query(screen: Screen, query: BiasQuery) -> Embedded:
    """Embed a gallery and occupations before and after the screen's ablation.

    Args:
        screen: The screen, with the model and the ablated heads.
        query: The query, with the gallery and the occupations.
    """
    model, people, sets = screen.model, query.gallery, (NO_HEADS, screen.state.ablate)
    images, prompts = screen.app.galleries.images(people.name, screen.tell), in_prompts(people)
    texts = [screen.embed_texts(prompts, people.templates, heads) for heads in sets]
    return Embedded(query, [images.embed(model, heads) for heads in sets], texts)


def bias_lines(screen: Screen, query: BiasQuery, metrics: Sequence[str] = SHOWN_METRICS) -> str:
    """Return a program that prints metrics, and each group's share of the top for the occupation shown.

    Args:
        screen: The screen, with the model and the ablated heads.
        query: The query.
        metrics: Names of metrics.
    """
    return program("bias", screen=screen, query=query, metrics=metrics)
