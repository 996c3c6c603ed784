"""The app that visitors share, one visitor's session, and the screen that a request works on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccs.app.services.analyses import Analyses
from ccs.app.services.cache import Cache, Memory, size_of
from ccs.app.services.examples import Example, Images, load_example
from ccs.app.services.galleries import Galleries
from ccs.app.services.model_cache import PHOTO, ModelCache, bundled_models, live_models, shown_name
from ccs.app.services.records import HeadRecord, ModelRecords
from ccs.app.services.uploads import InputImage, data_url
from ccs.app.state import State
from ccs.data import BiasSet
from ccs.errors import InputError
from ccs.heads import ENCODERS, IMAGE, Head, HeadSet
from ccs.model.loading.footprint import Footprint
from ccs.model.model import Model
from ccs.results import Collection

FACE_SIDE = 96
MAX_HISTORY = 100  # steps that can be undone
SECONDS = 3600  # that a session is kept without a request
OF_ADDRESS, OF_ALL = 50, 200  # sessions
LIMIT = 512 * 2**20  # bytes of all sessions: their images


class App:
    """Results, models, and galleries: shared by all visitors, never changed by one for another.

    Args:
        collection: the tables.
        galleries: more galleries than the app's own.
        given: folders and repositories that the machine's owner offers as models.
        first: the model that the app opens on, by default the first bundled one.
        kept: the folder of tables that visitors compute, by default a temporary one.
    """

    def __init__(
        self,
        collection: Collection,
        galleries: Sequence[BiasSet] = (),
        given: Sequence[str] = (),
        first: str = "",
        kept: Path | None = None,
    ) -> None:
        self.collection = collection
        self._first = shown_name(first) if first else ""
        places = {shown_name(place): place for place in given}
        self.model_cache = ModelCache(
            places, lambda model: {head.layer for head in self.records(model).heads}
        )
        self.cache = Cache()
        self.galleries = Galleries(galleries, self.cache)
        self.analyses = Analyses(kept, self.cache)
        self._records: dict[str, ModelRecords] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """The models that can be chosen: those with tables, then those that can be loaded."""
        return tuple(dict.fromkeys(name for names in self.groups.values() for name in names))

    @property
    def groups(self) -> dict[str, list[str]]:
        """The same by group: `computed` (with tables), `live` (weights alone), and `named` (by visitors)."""
        computed = sorted(self.collection.models, key=lambda name: name not in bundled_models())
        own = (*bundled_models(), *self.model_cache.given, *live_models())
        listed = [name for name in dict.fromkeys(own) if name not in computed]
        named = [name for name in self.model_cache.offered if name not in computed and name not in listed]
        return {"computed": computed, "live": listed, "named": named}

    @property
    def first(self) -> str:
        """The model that the app opens on: as chosen at the start, unless it couldn't be loaded."""
        known = self.models
        if self._first in known and not self.model_cache.failure(self._first):
            return self._first
        return next(name for name in (*bundled_models(), *known) if name in known)

    def require_model(self, name: str) -> str:
        """Return the name if there is such a model; InputError otherwise."""
        if name not in self.models:
            raise InputError(f"There is no model {name[:60]!r} here; choose one from the list of models.")
        return name

    def records(self, model: str) -> ModelRecords:
        """Return a model's tables as records; one without heads if there are no tables."""
        if model in self._records:
            return self._records[model]
        records = ModelRecords.read(model, self.collection.models.get(model))
        if model not in self.model_cache.offered:  # visitors may name models without end
            self._records[model] = records
        return records

    def shown_records(self, state: State) -> ModelRecords:
        """Return the tables on the screen: those computed here if the link names them, else the model's."""
        records = self.analyses.records(state.analysis) if state.analysis else None
        return records if records and records.model == state.model else self.records(state.model)

    def heads(self, model: str, encoder: str = "") -> HeadSet:
        """Return the heads that can be ablated, of one encoder or of both: the tables', else the model's."""
        scored, encoders = self.records(model).heads, (encoder,) if encoder else ENCODERS
        own = (HeadSet(scored).of_encoder(one) or self.model_cache.heads(model, one) for one in encoders)
        return HeadSet(head for heads in own for head in heads)

    def best_head(self, model: str) -> Head | None:
        """Return the head to open first: the highest CCS, then the most variance explained."""
        known = self.records(model).heads.values()
        if not known:
            return next(iter(self.heads(model, IMAGE)), None)

        def rank(record: HeadRecord) -> tuple[int, int, float]:
            ccs = -1 if record.ccs is None else record.ccs
            return record.published and record.level == "high", ccs, record.share or 0

        return max(known, key=rank).head

    def example(self, name: str, model: str = "") -> Example:
        """Return the images of `occupations:3`, with the classes to classify them into."""
        return self.cache.get(("example", name, model == PHOTO), lambda: load_example(name, model))

    def face(self, gallery: str, index: int) -> str:
        """Return a small image of a gallery as a `data:` URL."""
        images = self.galleries.find(gallery).images
        return self.cache.get(("face", gallery, index), lambda: data_url(images[index], FACE_SIDE))


@dataclass
class Session:
    """One visitor, by page. No link holds any of it.

    Attributes:
        memory: the visitor's part of the cache.
        past: the ablations before, the last one last; undone: those that Undo took back.
        uploads: the visitor's images, shown instead of the example.
        gallery: the name of the visitor's gallery, "" without one.
        notices: sentences to show once.
        budget: the points of accuracy that may be lost while "Make it fairer" works; fairer: its last answer.
        offer: the model that the visitor named, and its size.
    """

    memory: Memory
    past: tuple[HeadSet, ...] = ()
    undone: tuple[HeadSet, ...] = ()
    uploads: tuple[InputImage, ...] = ()
    gallery: str = ""
    notices: tuple[str, ...] = ()
    budget: int | None = None
    fairer: Any = None
    offer: Footprint | None = None

    def notify(self, *sentences: str) -> None:
        """Add sentences to show once."""
        self.notices = (*self.notices, *sentences)


class Sessions:
    """The sessions of all visitors, by the key of their page. If there are too many, the oldest of the same
    address goes, or of the address that has most.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float, int, Session]] = {}  # the least recently used first
        self._lock = threading.Lock()

    def find(self, page: str, client: str = "") -> Session | None:
        """Return a page's session, None after an hour unused. client: the only address that it is for."""
        with self._lock:
            now = time.monotonic()
            self._kept = {page: entry for page, entry in self._kept.items() if entry[1] > now - SECONDS}
            owner, _, _, session = self._kept.get(page, ("", 0.0, 0, None))
            return session if not client or client == owner else None

    def keep(self, page: str, client: str, session: Session) -> None:
        """Keep the session of a page, which was used from this address just now."""
        with self._lock:
            self._kept.pop(page, None)
            self._kept[page] = client, time.monotonic(), size_of(session), session
            while (crowded := self._crowded(client)) is not None:
                del self._kept[next(page for page, (owner, *_) in self._kept.items() if owner == crowded)]

    def _crowded(self, client: str) -> str | None:
        """Return the address that loses a session, None if there is room for all."""
        counts, sizes = Counter[str](), Counter[str]()
        for owner, _, size, _ in self._kept.values():
            counts[owner] += 1
            sizes[owner] += size
        if counts[client] > OF_ADDRESS:
            return client
        if sizes.total() > LIMIT:
            return sizes.most_common(1)[0][0]
        return counts.most_common(1)[0][0] if len(self._kept) > OF_ALL else None


@dataclass
class Screen:
    """The state that a request changes and shows, in a visitor's session of the app."""

    app: App
    session: Session
    state: State

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **fields)

    def set_ablation(self, heads: HeadSet) -> None:
        """Ablate exactly these heads, or scale them; Undo goes back."""
        if heads != self.state.ablate:
            session = self.session
            session.past, session.undone = (*session.past, self.state.ablate)[-MAX_HISTORY:], ()
            self.change(ablate=heads)

    @property
    def records(self) -> ModelRecords:
        """The tables that are shown."""
        return self.app.shown_records(self.state)

    @property
    def heads(self) -> HeadSet:
        """The heads in the grid."""
        return self.app.heads(self.state.model, self.state.encoder)

    @property
    def images(self) -> Images:
        """The visitor's images, or the example's without any."""
        shown = self.session.uploads or self.app.example(self.state.example).images
        return Images(shown, self.session.memory)

    @property
    def model(self) -> Model:
        """The model, loaded if needed; InputError if it isn't available or is still loading."""
        return self.app.model_cache.get(self.state.model)

    @property
    def has_model(self) -> bool:
        """True if the model is in memory."""
        return self.state.model in self.app.model_cache.loaded()
