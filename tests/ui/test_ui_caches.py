"""The caches of slow calls stay within their limits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import ccs
from ccs.heads import HeadSet
from ccs.model.loading.footprint import Footprint
from ccs.ui.service import model_cache
from ccs.ui.service.model_cache import ModelCache


def test_at_most_two_models_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str, **_: object) -> SimpleNamespace:
        loaded.append(name)
        return SimpleNamespace(name=name, heads=HeadSet(), weights_hash="")

    monkeypatch.setattr(ccs, "load", load)
    monkeypatch.setattr(model_cache, "footprint", lambda place: Footprint(place, 0, True, 0))
    cache = ModelCache({name: name for name in "abc"})
    for name in ("a", "b", "a", "c", "b"):
        assert cache.get(name).name == name
    assert loaded == ["a", "b", "c", "b"]
    assert set(cache.loaded()) == {"b", "c"}
