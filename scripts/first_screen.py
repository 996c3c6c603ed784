"""Write what the app's first screen needs of a bundled model: `python -m scripts.first_screen`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import ccs
from ccs import bundled, results
from ccs.app.controls import open_screen
from ccs.app.page import work
from ccs.app.services.galleries import Galleries
from ccs.app.services.model_cache import Cache
from ccs.app.session import App, Session
from ccs.app.views.classify import find_story
from ccs.files import sha256

MODEL = "organism"  # the app opens on it
KINDS = ("story", "texts", "embedded", "contribution")  # of values that need the model


class Recorder(Cache):
    """A cache that computes all values, and keeps them."""

    def __init__(self) -> None:
        self.values = dict[Hashable, Any]()

    def get(self, key: Hashable, make: Callable[[], Any], tell: object = None) -> Any:
        """Return the value of a key.

        Args:
            key: The key.
            make: Function that computes the value.
            tell: Not used.
        """
        if key not in self.values:
            self.values[key] = make()
        return self.values[key]


def compute() -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return facts about the model, and the values that Start and Bias first take from the cache."""
    app, model, screen_cache = App(results.load()), ccs.load(MODEL), Recorder()
    without_tables = App(results.Collection({}, ""))  # so that each head has a story
    for recorded in (app, without_tables):
        recorded.model_cache.keep(MODEL, model)
        recorded.cache = Recorder()
    find_story(open_screen(without_tables, Session(), {"model": MODEL}))
    # The embeddings of all examples serve only the search for the story.
    searched = without_tables.cache.values.items()
    screen_cache.values = {key: value for key, value in searched if key[0] == "story"}
    app.cache, app.galleries = screen_cache, Galleries((), screen_cache)
    for tab in ("start", "bias"):
        work(open_screen(app, Session(), {"tab": tab, "model": MODEL}))
    facts = {"file": sha256(Path(bundled.__file__).parent / MODEL / bundled.WEIGHTS)}
    values = {repr(key): np.ascontiguousarray(v) for key, v in screen_cache.values.items() if key[0] in KINDS}
    facts |= {"weights": model.weights_hash, "logit_scale": repr(model.logit_scale)}
    return facts, values


if __name__ == "__main__":
    facts, values = compute()
    save_file(values, Path(bundled.__file__).parent / MODEL / bundled.FIRST_SCREEN, facts)
