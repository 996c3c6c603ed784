"""The caches of slow calls stay within their limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import ccs
from ccs.heads import HeadSet
from ccs.model.footprint import Footprint
from ccs.ui.service import model_cache
from ccs.ui.service.model_cache import ModelCache


@dataclass
class FakeModel:
    """What the cache asks of a model."""

    name: str
    heads: HeadSet = field(default_factory=HeadSet)
    weights_hash: str = ""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models by any name, which cost nothing."""
    monkeypatch.setattr(model_cache, "footprint", lambda place: Footprint(place, 0, True, 0))


def test_at_most_two_models_are_kept(monkeypatch: pytest.MonkeyPatch, free: None) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ccs, "load", lambda name, **_: loaded.append(name) or FakeModel(name))
    cache = ModelCache({name: name for name in "abc"})
    for name in ("a", "b", "a", "c", "b"):
        assert cache.get(name).name == name
    assert loaded == ["a", "b", "c", "b"]
    assert set(cache.loaded()) == {"b", "c"}
