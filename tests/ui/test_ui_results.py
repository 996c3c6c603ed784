"""The app and its results: missing, half-written, of other weights, from the Hub; galleries of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccs import results
from ccs.model.model import Model
from ccs.ui import links
from ccs.ui.clicks import regions
from ccs.ui.shared import App
from tests.support import ui_sample
from tests.support.ui_page import SMALL, app, check, model, one_thread, session, small_gallery

__all__ = ["app", "model", "one_thread", "session"]  # fixtures


@pytest.mark.parametrize("tab", ["heads", "classify", "bias", "paradox", "about"])
def test_views_without_results(model: Model, tmp_path: Path, tab: str) -> None:
    empty = App(results.load(tmp_path), tmp_path, [small_gallery()])
    empty.model_cache.keep("organism", model)
    session = links.open_link(empty, {"tab": tab, "gallery": SMALL})
    page = regions(empty, session)
    assert "There are no tables for organism" in page["top"]
    assert page["left"].count('class="cell') == 24
    check(page["main"])


def test_tables_of_other_weights_are_told(app: App, model: Model, tmp_path: Path) -> None:
    ui_sample.write(tmp_path, "organism", "0" * 64)
    other = App(results.load(tmp_path), tmp_path)
    other.model_cache.keep("organism", model)
    assert "computed from other weights" in regions(other, links.open_link(other, {}))["top"]
    assert "other weights" not in regions(app, links.open_link(app, {}))["top"]
