"""The caches of slow calls stay within their limits."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace

import numpy as np
import pytest

import ccs
from ccs.heads import HeadSet
from ccs.model.loading.footprint import Footprint
from ccs.ui.service import model_cache
from ccs.ui.service.cache import Cache, result
from ccs.ui.service.galleries import Seen
from ccs.ui.service.model_cache import ModelCache


def test_at_most_two_models_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str, **_: object) -> SimpleNamespace:
        loaded.append(name)
        return SimpleNamespace(name=name, heads=HeadSet(), weights_hash="")

    monkeypatch.setattr(ccs, "load", load)
    monkeypatch.setattr(model_cache, "footprint", lambda place, token: Footprint(place, 0, True, 0))
    cache = ModelCache({name: name for name in "abc"})
    for name in ("a", "b", "a", "c", "b"):
        assert cache.get(name).name == name
    assert loaded == ["a", "b", "c", "b"]
    assert set(cache.loaded()) == {"b", "c"}


def test_what_is_kept_has_one_bound_in_bytes() -> None:
    cache, made = Cache(12_000), []

    def seen(number: int) -> Seen:
        def work() -> Generator[float, None, Seen]:
            made.append(number)
            yield 0.5
            return Seen(None, np.full(1000, number, np.float32))

        return result(cache.fill(("seen", number), work))

    assert [seen(number).base[0] for number in (1, 1, 2, 1, 3, 1, 2)] == [1, 1, 2, 1, 3, 1, 2]
    assert made == [1, 2, 3, 2]  # two fit: the one that was not used for longest goes
    large = np.zeros(12_000, np.uint8)
    assert cache.get(("large",), lambda: large) is large
    assert ("large",) not in cache
