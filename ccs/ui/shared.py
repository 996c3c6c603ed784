"""The part of the app that all visitors share: results, models, galleries and caches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, Head, HeadSet
from ccs.results import Collection
from ccs.sets.kinds import BiasSet
from ccs.ui.service.cache import Cache
from ccs.ui.service.galleries import Galleries
from ccs.ui.service.model_cache import ModelCache, live, shipped, shown_name
from ccs.ui.service.records import HeadRecord, ModelRecords
from ccs.ui.service.taking_apart import Kept
from ccs.ui.service.uploads import data_url
from ccs.ui.state import State

FACE_SIDE = 96


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
        self.kept = Kept(kept or uploads / "apart")
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
        if state.apart and (found := self.kept.results(state.apart)) and found.model == state.model:
            return self.cache.get(("apart", state.apart), lambda: ModelRecords.read(state.model, found))
        return self.records(state.model)

    def heads(self, model: str, tower: str = IMAGE) -> HeadSet:
        """A tower's heads that can be switched off: the tables', or the model's own where these have none."""
        return HeadSet(self.records(model).heads).of_tower(tower) or self.model_cache.heads(model, tower)

    def both(self, model: str) -> HeadSet:
        """Those of both towers."""
        return HeadSet(self.heads(model) | self.heads(model, TEXT))

    def best_head(self, model: str) -> Head | None:
        """The head to open first: the highest CCS, then the most variance explained."""
        known = self.records(model).heads.values()
        if not known:
            return next(iter(self.heads(model)), None)

        def rank(one: HeadRecord) -> tuple[int, int, float]:
            return one.published and one.level == "high", -1 if one.ccs is None else one.ccs, one.share or 0

        return max(known, key=rank).head

    def face(self, gallery: str, index: int) -> str:
        """A small image of a gallery as a `data:` URL."""
        return self.cache.get(
            ("face", gallery, index), lambda: data_url(self.galleries.image(gallery, index), FACE_SIDE)
        )
