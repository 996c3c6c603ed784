"""The app that visitors share, one visitor's session, and the screen that a request works on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from ccs.analysis.inputs import embed_names
from ccs.app.jobs import Job, Tell, keep_quiet
from ccs.app.services.analyses import Analyses
from ccs.app.services.examples import Example, load_example
from ccs.app.services.galleries import Galleries
from ccs.app.services.images import Images, has_edits
from ccs.app.services.model_cache import PHOTO, Cache, ModelCache, size_of
from ccs.app.services.records import ModelRecords
from ccs.app.services.uploads import InputImage, data_url
from ccs.app.state import NO_HEADS, State, Texts, describe_problem
from ccs.data import BiasSet
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, Head, HeadSet
from ccs.model.handle import ModelHandle
from ccs.results import PRECOMPUTED, Collection, Results

UNUSED_SECONDS = 3600  # after which a session ends
MAX_SESSIONS, MAX_BYTES = 200, 512 * 2**20  # bytes of all their images
BYTES_OF_ADDRESS = MAX_BYTES // 4


class App:
    """Results, models, and galleries, shared by all visitors.

    Args:
        collection: The results, or a future of them.
        galleries: Galleries besides the app's own.
        places: Folders and repositories offered as models; the app opens on the first.
        folder: The folder for results that visitors compute, by default a temporary one.
    """

    def __init__(
        self,
        collection: Collection | Future[Collection],
        galleries: Sequence[BiasSet] = (),
        places: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        self._results = collection
        self.cache, self._records = Cache(), dict[str, ModelRecords]()
        self.galleries, self.analyses = Galleries(galleries, self.cache), Analyses(folder, self.cache)
        self.model_cache = ModelCache(places, lambda model: HeadSet(self.records(model).heads).layers)

    @property
    def collection(self) -> Collection:
        """The results; waits until they are loaded. Raises an error of loading."""
        return self._results.result() if isinstance(self._results, Future) else self._results

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models to choose from: those that can be loaded, and those with results."""
        return tuple(dict.fromkeys((*self.model_cache.names, *self.collection.models)))

    def require_model(self, name: str) -> str:
        """Return the name. Raises InputError if there is no such model."""
        if name not in self.models:
            raise InputError(f"There is no model {name[:60]!r} here; choose one from the list of models.")
        return name

    def require_heads(self, model: str, heads: HeadSet) -> HeadSet:
        """Return the heads if the model has all of them.

        Args:
            model: The model's name.
            heads: The heads.

        Raises:
            InputError: If the model doesn't have one of them.
        """
        if unknown := heads - self.heads_of_model(model):
            raise InputError(f"{str(HeadSet(unknown))[:60]} isn't in {model}.")
        return heads

    def records(self, model: str) -> ModelRecords:
        """Return a model's results as records, or the paper's if there are none."""
        tables = self.collection.models.get(model) or Results(model, PRECOMPUTED, {}, {})
        return self._records.setdefault(model, ModelRecords(**vars(tables)))

    def heads_of_model(self, model: str) -> HeadSet:
        """Return the heads of both encoders that can be ablated, from the results or else the model."""
        return self.model_cache.heads_of(model, HeadSet(self.records(model).heads))

    def best_head(self, model: str) -> Head | None:
        """Return the head to open first: the highest CCS, then the most variance explained."""
        records = self.records(model).heads.values()
        if not records:
            return next(iter(self.heads_of_model(model).of_encoder(IMAGE)), None)
        ccs = {r.head: -1 if r.ccs is None else r.ccs for r in records}
        return max(records, key=lambda r: (r.published and r.level == "high", ccs[r.head], r.share or 0)).head

    def example(self, name: str, model: str = "") -> Example:
        """Return the images of an example, with the classes to classify them into.

        Args:
            name: A dataset and page, such as `occupations:3`; "" for the first.
            model: The model, because `photo` has other words for the photographs' classes.

        Raises:
            InputError: If there is no such example.
        """
        return self.cache.get(("example", name, model == PHOTO), lambda: load_example(name, model))

    def images(self, originals: tuple[InputImage, ...]) -> Images:
        """Return uploaded or example images, for models to embed."""
        key, pixels = tuple(image.key for image in originals), [image.pixels for image in originals]
        return Images(key, pixels, self.cache, originals=originals)

    def gallery_name(self, state: State) -> str:
        """Return the current gallery: the link's, else the model's first."""
        return state.gallery or self.galleries.names(state.model)[0]

    def attribute(self, state: State) -> str:
        """Return the current attribute of the gallery: the link's, the claim's, or the first."""
        name = self.gallery_name(state)
        groups = self.galleries.people(name).groups if self.galleries.has(name) else {"gender": ()}
        claim = self.records(state.model).claim
        names: tuple[str, ...] = (state.attribute, claim.attribute if claim else "", *groups)
        return next(name for name in names if name in groups)

    def face(self, gallery: str, index: int) -> str:
        """Return a small image of a gallery as a `data:` URL.

        Args:
            gallery: The gallery's name.
            index: The image's number in the gallery.

        Raises:
            InputError: If there is no such gallery, or it hasn't been fetched.
        """
        images = self.galleries.find(gallery).images
        return self.cache.get(("face", gallery, index), lambda: data_url(images[index], 96))


@dataclass
class Session:
    """One visitor's session on one page. It isn't part of links.

    Attributes:
        client: The visitor's address.
        past: Previous ablations, oldest first.
        uploads: The visitor's images, shown instead of the example.
        gallery: The visitor's gallery.
        notices: Messages to show once.
        budget: Points of accuracy that may be lost, from a click on "Make it fairer" until its work begins.
        fairer: The last result of "Make it fairer".
        jobs: The page's latest work of each kind: "view" and "analysis".
        used: When the page was last used.
        size: Its size in bytes.
    """

    client: str = ""
    past: list[HeadSet] = field(default_factory=list)
    uploads: tuple[InputImage, ...] = ()
    gallery: BiasSet | None = None
    notices: tuple[str, ...] = ()
    budget: int | None = None
    fairer: Any = None
    jobs: dict[str, Job] = field(default_factory=dict)
    used: float = 0.0
    size: int = 0

    def notify(self, *sentences: str) -> None:
        """Add messages to show once."""
        self.notices = (*self.notices, *sentences)


class Sessions:
    """The sessions of all visitors, by the key of their page. Use it only in the event loop.

    At most `MAX_SESSIONS` sessions and `MAX_BYTES` are kept, and `BYTES_OF_ADDRESS` per address. Beyond that,
    the address with the most loses its oldest sessions.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}  # the least recently used first

    def find(self, page: str) -> Session | None:
        """Return the page's session, or None if it doesn't exist or has expired."""
        session = self._sessions.get(page)
        return session if session and time.monotonic() - session.used < UNUSED_SECONDS else None

    def keep(self, page: str, session: Session) -> None:
        """Keep the session of a page that was just used. Beyond the limits, the oldest sessions are removed.

        Args:
            page: The page's key.
            session: The session.
        """
        session.used, session.size = time.monotonic(), max(size_of(session), MAX_BYTES // MAX_SESSIONS)
        self._sessions.pop(page, None)
        self._sessions[page], sizes = session, Counter[str]()
        for other in self._sessions.values():
            sizes[other.client] += other.size
        while sizes.total() > MAX_BYTES or max(sizes.values()) > BYTES_OF_ADDRESS:
            largest = max(sizes, key=sizes.__getitem__)
            oldest = next(key for key, other in self._sessions.items() if other.client == largest)
            sizes[largest] -= self._sessions.pop(oldest).size


@dataclass
class Screen:
    """The state that a request changes and shows, in a visitor's session of the app.

    Attributes:
        app: The app.
        session: The visitor's session.
        state: The state that the screen shows.
        tell: Publishes the progress of long work.
    """

    app: App
    session: Session
    state: State
    tell: Tell = keep_quiet

    def change(self, **fields: Any) -> None:
        """Change fields of the state, read from text. Raises InputError if one can't be read."""
        try:
            self.state = replace(self.state, **fields)
        except ValidationError as error:
            raise InputError(describe_problem(error)) from None

    @property
    def records(self) -> ModelRecords:
        """The shown records: those computed here if the link names them, else the model's."""
        key = self.state.analysis
        return self.app.analyses.records(key) if key else self.app.records(self.state.model)

    @property
    def grid_heads(self) -> HeadSet:
        """The heads in the grid."""
        return self.app.heads_of_model(self.state.model).of_encoder(self.state.encoder)

    @property
    def images(self) -> Images:
        """The visitor's images, or the example's if there are none."""
        return self.app.images(self.session.uploads or self.app.example(self.state.example).images)

    @property
    def gallery(self) -> str:
        """The name of the current gallery (`App.gallery_name`)."""
        return self.app.gallery_name(self.state)

    @property
    def fitted(self) -> HeadSet:
        """The ablated heads, with edits fitted on the current gallery, which is downloaded if needed."""
        if not has_edits(self.state.ablate):
            return self.state.ablate
        return self.app.galleries.images(self.gallery, self.tell).fit(self.model, self.state.ablate)

    @property
    def model(self) -> ModelHandle:
        """The model's handle (`ModelCache.get`). Raises InputError if the model isn't available."""
        return self.app.model_cache.get(self.state.model, self.tell)

    def embed_texts(self, texts: Texts, templates: Texts = ("{}",), ablate: HeadSet = NO_HEADS) -> np.ndarray:
        """Return unit embeddings [texts, d], means over the templates, and cache them.

        Args:
            texts: The texts.
            templates: The prompts, with `{}` where the text goes.
            ablate: Heads to ablate. Only those of the text encoder count.

        Raises:
            InputError: If the model isn't available.
        """
        model, heads = self.model, ablate.of_encoder(TEXT)
        key = ("texts", model.weights_hash, texts, templates, heads)
        return self.app.cache.get(key, lambda: embed_names(model.load(), texts, templates, heads))

    @property
    def weights(self) -> str:
        """The hash of the model's weights, from memory or else from its tables."""
        in_memory = self.state.model in self.app.model_cache.loaded
        return self.model.weights_hash if in_memory else self.records.weights

    @property
    def settings(self) -> dict[str, str]:
        """The settings of all figures; figures with a gallery or a template add these."""
        settings = {"model": self.state.model, "weights": self.weights[:16], "gallery": "", "template": ""}
        return {**settings, "ablated heads": str(self.state.ablate)}
