"""The caches of models, embeddings, tables, and sessions, and their limits."""

import copy
import os
import platform
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import ccs
from ccs import Head, HeadSet, bundled, results
from ccs.app import session
from ccs.app.services import galleries
from ccs.app.services.analyses import Analyses
from ccs.app.services.images import Images
from ccs.app.services.model_cache import PHOTO, Cache, ModelCache, size_of
from ccs.app.services.records import ModelRecords
from ccs.data import synthetic
from ccs.model.handle import ModelHandle
from scripts import first_screen
from tests.support import app_sample, processes


def test_model_cache_holds_two_models(tiny_model, monkeypatch):
    monkeypatch.setattr(ccs, "load", lambda *_, **__: copy.copy(tiny_model))
    cache = ModelCache("abc", lambda name: ())
    first, second, first_again, _ = map(cache.get, "abac")
    assert first_again is first
    assert [name in cache.loaded for name in "abc"] == [True, False, True]
    assert cache.get("b") is not second


def test_cache_evicts_least_recently_used_entry():
    cache, computed = Cache(12_000), []

    def embed(number):
        def compute():
            computed.append(number)
            return np.full(1000, number, np.float32)

        return cache.get(("seen", number), compute)

    assert [embed(number)[0] for number in (1, 1, 2, 1, 3, 1, 2)] == [1, 1, 2, 1, 3, 1, 2]
    assert computed == [1, 2, 3, 2]  # two arrays fit
    large = np.zeros(12_000, np.uint8)
    assert cache.get(("large",), lambda: large) is large
    assert cache.get(("large",), list) == []  # too large to be cached


@pytest.mark.parametrize(("count", "character"), [(24, "x"), (1, "🎨")])
def test_cache_limit_includes_keys(count, character):
    """A key of heads or of wide characters may be larger than its value."""
    cache = Cache(limit := 2**19)
    cache.get(("first", HeadSet([Head(0, 0)])), int)  # imports what it needs
    tracemalloc.start()
    for first in range(1000):
        heads = HeadSet(Head(number // 16, number % 16) for number in range(first, first + count))
        cache.get(("pruned", f"{first}{1000 * character}", heads), int)
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert traced_bytes < limit


def test_cache_limit_includes_tables_and_examples(app, tmp_path):
    for key in (keys := ["0" * 16, "1" * 16]):
        app_sample.write_app_results(tmp_path / key, "organism", "f" * 64)
    tables = results.read_results(next((tmp_path / keys[0]).iterdir()))
    assert size_of(tables) > sum(table.memory_usage(deep=True).sum() for table in tables.tables.values())
    size = size_of(ModelRecords(**vars(tables)))
    analyses = Analyses(tmp_path, Cache(int(1.5 * size)))
    first, second = (analyses.records(key) for key in keys)  # only one fits
    assert analyses.records(keys[1]) is second
    assert analyses.records(keys[0]) is not first
    example = app.example("photographs:0", "organism")
    assert app.example("photographs:0", "any model that a visitor names") is example
    assert app.example("photographs:0", PHOTO) is not example


def test_stored_first_screen_matches_model_and_weights(monkeypatch):
    monkeypatch.setattr(galleries, "open_gallery", ccs.open_gallery)  # no smaller samples
    monkeypatch.setattr(galleries, "PICTURES", 300)
    (facts, computed), stored = first_screen.compute(), bundled.first_screen(first_screen.MODEL)
    assert (stored.weights, repr(stored.logit_scale)) == (facts["weights"], facts["logit_scale"])
    assert stored.values.keys() == computed.keys()
    for key, values in computed.items():
        np.testing.assert_allclose(stored.values[key], values, atol=2e-5)  # CPUs round differently
    handle = ModelCache((), lambda name: ()).get(first_screen.MODEL)
    trained = ModelHandle.from_model(handle.load())
    assert replace(handle, load=trained.load) == trained
    faces = synthetic.bias_set("faces")
    images = Images(("world/faces", faces.fingerprint), faces.images[:2], Cache())
    assert len(images.embed(trained, HeadSet())) == len(faces.images)  # stored
    changed = ccs.load(first_screen.MODEL)
    changed.clip.visual.proj.data *= 2
    assert len(images.embed(ModelHandle.from_model(changed), HeadSet())) == 2
    bundled.first_screen.cache_clear()
    monkeypatch.setattr(bundled, "sha256", lambda file: "")  # the weights differ
    assert bundled.first_screen(first_screen.MODEL) is None
    bundled.first_screen.cache_clear()


def test_session_eviction_starts_with_busiest_address(monkeypatch):
    monkeypatch.setattr(session, "MAX_SESSIONS", 20)
    sessions = session.Sessions()
    sessions.keep("single", single := session.Session("a"))
    for number in range(205):
        sessions.keep(f"page {number}", session.Session("b"))
    assert sessions.find("single") is single
    assert [sessions.find(f"page {number}") is None for number in (199, 200, 204)] == [True, False, False]
    sessions.keep("large", session.Session("c", fairer="x" * session.MAX_BYTES))  # over the limit in bytes
    assert sessions.find("large") is None
    assert sessions.find("single")
    monkeypatch.setattr(session, "UNUSED_SECONDS", 0)
    assert sessions.find("single") is None


HEAPS = """
import ctypes, threading
from ccs.app.__main__ import bound_memory

{bound}
libc, barrier = ctypes.CDLL(None), threading.Barrier(8)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
threads = [threading.Thread(target=lambda: (libc.malloc(1000), barrier.wait())) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
libc.free(libc.malloc(2**23))
for size in (0, 2**22):
    libc.malloc(size)
    libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout")); libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps are those of glibc")
@pytest.mark.parametrize("bound", ["", "bound_memory()"])
def test_bound_memory_shares_heaps_and_maps_large_blocks(bound):
    """By default each thread has a heap, and glibc raises its threshold for separate blocks after a free."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    output = processes.run_python("-c", HEAPS.replace("{bound}", bound), env=env)
    assert (output.count("<heap nr=") == 4) == bool(bound)
    before, after = re.findall('type="mmap" count="(.*?)"', output)
    assert (before != after) == bool(bound)
