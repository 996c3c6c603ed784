"""What a click works on: the app that visitors share, one visitor’s session, and the screen that is both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ccs.data import BiasSet
from ccs.errors import InputError
from ccs.heads import IMAGE, TOWERS, Head, HeadSet
from ccs.model.loading.footprint import Footprint
from ccs.model.model import Model
from ccs.results import Collection
from ccs.ui.service.cache import Cache, Memory
from ccs.ui.service.examples import Example, Images, load_example
from ccs.ui.service.galleries import Galleries
from ccs.ui.service.model_cache import PHOTO, ModelCache, live, shipped, shown_name
from ccs.ui.service.records import HeadRecord, ModelRecords
from ccs.ui.service.taking_apart import Kept
from ccs.ui.service.uploads import InputImage, data_url
from ccs.ui.state import State

FACE_SIDE = 96
MAX_HISTORY = 100  # steps that can be undone


class App:
    """Results, models and galleries: shared by all visitors, never changed by one for another.

    galleries: more of them, beside the page's own. given: folders and repositories that the machine's owner
    offers as models beside the tables'. first: the name of the model that the page opens on, the first one
    that ships where it is "". kept: the folder of tables made by taking models apart.
    """

    def __init__(
        self,
        collection: Collection,
        uploads: Path,
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
        self.uploads = uploads
        self.kept = Kept(kept or uploads / "apart", self.cache)
        self._records: dict[str, ModelRecords] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """The models that can be chosen: those with tables, then those that can be had live."""
        return tuple(dict.fromkeys(name for names in self.groups.values() for name in names))

    @property
    def groups(self) -> dict[str, list[str]]:
        """The same by group: `computed` (with tables), `live` (weights alone) and `named` (by visitors)."""
        computed = sorted(self.collection.models, key=lambda name: name not in shipped())
        own = (*shipped(), *self.model_cache.given, *live())
        listed = [name for name in dict.fromkeys(own) if name not in computed]
        named = [name for name in self.model_cache.offered if name not in computed and name not in listed]
        return {"computed": computed, "live": listed, "named": named}

    @property
    def first(self) -> str:
        """The model that the page opens on: as chosen at the start, unless that could not be had."""
        known = self.models
        if self._first in known and not self.model_cache.failure(self._first):
            return self._first
        return next(name for name in (*shipped(), *known) if name in known)

    def known_model(self, name: object) -> str:
        """The name, if there is such a model; InputError for any other."""
        if name not in self.models:
            raise InputError(
                f"There is no model {str(name)[:60]!r} here; choose one from the list of models."
            )
        return str(name)

    def records(self, model: str) -> ModelRecords:
        """A model's tables as records; one without heads where there are no tables."""
        if model in self._records:
            return self._records[model]
        found = ModelRecords.read(model, self.collection.models.get(model))
        if model not in self.model_cache.offered:  # visitors may name models without end
            self._records[model] = found
        return found

    def shown(self, state: State) -> ModelRecords:
        """The tables on the screen: those made here, where the link says so, else the model's own."""
        found = self.kept.records(state.apart) if state.apart else None
        return found if found and found.model == state.model else self.records(state.model)

    def heads(self, model: str, tower: str = "") -> HeadSet:
        """Heads that can be switched off, of a tower or of both: the tables', or the model's own where these
        have none.
        """
        scored, towers = self.records(model).heads, (tower,) if tower else TOWERS
        own = (HeadSet(scored).of_tower(one) or self.model_cache.heads(model, one) for one in towers)
        return HeadSet(head for heads in own for head in heads)

    def best_head(self, model: str) -> Head | None:
        """The head to open first: the highest CCS, then the most variance explained."""
        known = self.records(model).heads.values()
        if not known:
            return next(iter(self.heads(model, IMAGE)), None)

        def rank(one: HeadRecord) -> tuple[int, int, float]:
            return one.published and one.level == "high", -1 if one.ccs is None else one.ccs, one.share or 0

        return max(known, key=rank).head

    def example(self, name: str, model: str = "") -> Example:
        """The images of `occupations:3`, with what to ask a model about them."""
        return self.cache.get(("example", name, model == PHOTO), lambda: load_example(name, model))

    def face(self, gallery: str, index: int) -> str:
        """A small image of a gallery as a `data:` URL."""
        images = self.galleries.find(gallery).images
        return self.cache.get(("face", gallery, index), lambda: data_url(images[index], FACE_SIDE))


@dataclass
class Session:
    """One visitor. Never shared; `state` is the only part that a link holds.

    past: the sets of heads that were off before, the last one last; undone: those that Undo took back.
    uploads: images of the visitor's own, shown instead of the example. notices: sentences to show once.
    wanted: the points of accuracy that may be lost, where something fairer was asked for; found: the last
    answer (`views.fairer.Fairer`). code: a program that was asked for, sent once. revealed: the heads
    that something was planted in, or that were taught something, are shown. guesses: (model, head) -> what
    the visitor takes it to have been taught. naming, offer: a model that the visitor names, and what it would
    cost. turn: answers sent so far. shown: a digest of the HTML that the page has, by region: the HTML itself
    would be half a megabyte for every visitor. view: the tab that its main region shows.
    """

    state: State
    memory: Memory
    undone: tuple[HeadSet, ...] = ()
    past: tuple[HeadSet, ...] = ()
    uploads: tuple[InputImage, ...] = ()
    notices: list[str] = field(default_factory=list)
    wanted: int | None = None
    found: Any = None
    code: str = ""
    revealed: bool = False
    guesses: Mapping[tuple[str, Head], str] = field(default_factory=dict)
    turn: int = 0
    naming: bool = False
    offer: Footprint | None = None
    shown: dict[str, bytes] = field(default_factory=dict)
    view: str = ""

    def tell(self, *words: str) -> None:
        """More sentences to show once."""
        self.notices = [*self.notices, *words]  # a new list: an action that fails takes its own back


@dataclass(frozen=True)
class Screen:
    """A visitor's session in the app: made once for a click, changed by its action, and then shown."""

    app: App
    session: Session

    @property
    def state(self) -> State:
        return self.session.state

    def change(self, **fields: Any) -> None:
        """Change what is shown: fields of the state."""
        self.session.state = replace(self.state, **fields)

    def set_off(self, off: HeadSet) -> None:
        """Switch exactly these heads off, or scale them; Undo goes back."""
        if off != self.state.off:
            session = self.session
            session.past, session.undone = (*session.past, self.state.off)[-MAX_HISTORY:], ()
            self.change(off=off)

    @property
    def records(self) -> ModelRecords:
        """The tables that are shown."""
        return self.app.shown(self.state)

    @property
    def heads(self) -> HeadSet:
        """The heads in the grid, which can be switched off."""
        return self.app.heads(self.state.model, self.state.tower)

    @property
    def images(self) -> Images:
        """The visitor's own images, or the example where there are none."""
        shown = self.session.uploads or self.app.example(self.state.example).images
        return Images(shown, self.session.memory)

    @property
    def model(self) -> Model:
        """The model, loaded if need be; InputError where it cannot be had or is on its way."""
        return self.app.model_cache.get(self.state.model)

    @property
    def has_model(self) -> bool:
        """True if the model is in memory."""
        return self.state.model in self.app.model_cache.loaded()
