"""What is kept of slow calls, and that all of it together stays within bounds."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import torch
from PIL import Image

import ccs
from ccs.errors import InputError
from ccs.model.tower import Trunk
from ccs.ui.service import models as shelf
from ccs.ui.service.cache import Budget, Memory, size_of
from ccs.ui.service.models import Shelf


def test_memory_is_bounded_and_a_failure_leaves_nothing() -> None:
    memory = Memory(2)
    assert [memory.get(key, lambda key=key: key) for key in (1, 2, 1, 3)] == [1, 2, 1, 3]
    assert (1 in memory, 2 in memory, 3 in memory) == (True, False, True)
    with pytest.raises(ZeroDivisionError):
        memory.get(9, lambda: 1 // 0)
    assert 9 not in memory


def test_all_memories_share_a_budget() -> None:
    budget = Budget(1000)
    one, two = Memory(10, budget), Memory(10, budget)
    for key in range(4):
        one.get(key, lambda: np.zeros(200, np.int8))
    two.get("a", lambda: np.zeros(200, np.int8))
    assert budget.total == 1000
    one.get(0, lambda: np.zeros(200, np.int8))  # used again, so it is not the oldest
    two.get("b", lambda: np.zeros(300, np.int8))
    assert [key in one for key in range(4)] == [True, False, False, True]
    assert budget.total == 900
    two.get("huge", lambda: np.zeros(5000, np.int8))  # what is in use is kept, and nothing beside it
    assert (len(one), len(two), budget.total) == (0, 1, 5000)


def test_a_memory_that_is_gone_counts_no_more() -> None:
    budget = Budget(1000)
    memory = Memory(10, budget)
    memory.get(1, lambda: np.zeros(100, np.int8))
    del memory
    gc.collect()
    assert budget.total == 0


def test_what_is_dropped_for_number_is_not_counted() -> None:
    budget = Budget(1000)
    memory = Memory(2, budget)
    for key in range(5):
        memory.get(key, lambda: np.zeros(100, np.int8))
    assert budget.total == 200


def test_threads_may_share_memories() -> None:
    budget, wrong = Budget(5_000), []
    memories = [Memory(5, budget) for _ in range(3)]

    def use(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for key in rng.integers(0, 12, 400).tolist():
            value = memories[key % 3].get(key, lambda key=key: np.full(200, key, np.uint8))
            wrong.extend([key] * int((value != key).sum()))

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert budget.total <= 5_000
    assert all(len(memory) <= 5 for memory in memories)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (np.zeros((3, 4), np.float32), 48),
        (torch.zeros(5), 20),
        (Trunk(torch.zeros(2, 3), 1), 24),
        ((Image.new("RGB", (4, 5)), "abc"), 63),
        (None, 0),
    ],
)
def test_sizes_are_those_of_the_data(value: object, size: int) -> None:
    assert size_of(value) == size


# -- models ------------------------------------------------------------------------


def test_at_most_two_models_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ccs, "load", lambda name: loaded.append(name) or name)
    shelf = Shelf()
    for name in ("a", "b", "a", "c", "b"):
        shelf.get(name)
    assert loaded == ["a", "b", "c", "b"]
    assert shelf.loaded() == ("c", "b")


def test_a_model_that_cannot_be_had_is_not_tried_at_every_click(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tried = [0.0], []

    def load(name: str) -> str:
        tried.append(name)
        raise InputError(f"{name} cannot be had.")

    monkeypatch.setattr(ccs, "load", load)
    monkeypatch.setattr(shelf.time, "monotonic", lambda: clock[0])
    models = Shelf()
    for seconds in (0.0, 1.0, shelf.RETRY - 1, shelf.RETRY + 1):
        clock[0] = seconds
        with pytest.raises(InputError, match="gone cannot be had"):
            models.get("gone")
    assert tried == ["gone", "gone"]
