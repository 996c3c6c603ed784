"""The caches of slow calls stay within their limits."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

import ccs
from ccs.heads import HeadSet
from ccs.model.offer import Offer
from ccs.ui.service import model_cache
from ccs.ui.service.cache import Cache, one
from ccs.ui.service.model_cache import ModelCache


def test_one_thread_works_and_the_others_see_how_far_it_is() -> None:
    cache, begun, go, worked = Cache(9, one), threading.Event(), threading.Event(), []

    def work() -> Generator[float, None, str]:
        worked.append(1)
        yield 0.25
        begun.set()
        go.wait(60)
        yield 1.0
        return "done"

    thread = threading.Thread(target=lambda: list(cache.fill("key", work)))
    thread.start()
    begun.wait(60)
    waiting = cache.fill("key", work)
    assert next(waiting) == 0.25
    go.set()
    thread.join()
    assert set(waiting) <= {0.25, 1.0}
    assert (cache.find("key"), len(worked)) == ("done", 1)


@dataclass
class FakeModel:
    """What the cache asks of a model."""

    name: str
    heads: HeadSet = field(default_factory=HeadSet)
    weights_hash: str = ""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models by any name, which cost nothing."""
    monkeypatch.setattr(model_cache, "look", lambda place: Offer(place, 0, True, HeadSet()))


def test_at_most_two_models_are_kept(monkeypatch: pytest.MonkeyPatch, free: None) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ccs, "load", lambda name, **_: loaded.append(name) or FakeModel(name))
    cache = ModelCache({name: name for name in "abc"})
    for name in ("a", "b", "a", "c", "b"):
        assert cache.get(name).name == name
    assert loaded == ["a", "b", "c", "b"]
    assert set(cache.loaded()) == {"b", "c"}
