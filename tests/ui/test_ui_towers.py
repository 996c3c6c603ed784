"""The page on models whose towers are no plain ViTs: small ones of random weights, without a browser."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from ccs.ui.actions import ACTIONS
from ccs.ui.app import App
from ccs.ui.page import opening
from ccs.ui.page.page import regions
from ccs.ui.views import classify
from tests.support import shrunk
from tests.support.ui_page import app, model, one_thread

__all__ = ["app", "model", "one_thread"]  # fixtures


@pytest.mark.parametrize("name", ["ViT-B-16-SigLIP2", "PE-Core-B-16"])
def test_heads_of_a_pooled_tower_are_switched_off(app: App, tmp_path: Path, name: str) -> None:
    app.model_cache.given = MappingProxyType({"pooled": str(shrunk.write_model(tmp_path, name))})
    app.model_cache._models.pop("pooled", None)
    with shrunk.narrow():
        found = app.model_cache.get("pooled")
    session = opening.open_link(app, {"tab": "classify", "model": "pooled", "off": "none"})
    pool = found.n_layers - 1
    for layer in (pool, pool - 1):
        ACTIONS["preset"](app, session, {"value": f"layer:{layer}"})
        assert session.state.off == {head for head in found.heads if head.layer == layer}
        _, shares, similarity = classify.measure(session, found)
        assert np.abs(shares.before - shares.after).max() > 1e-5
        assert (similarity < 0.9999).all()
        shown = "".join(regions(app, session).values())
        assert "sigmoid of" in shown
        assert str(session.state.off) in shown
