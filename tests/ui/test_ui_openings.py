"""The opening screens that are kept: what they hold, when they are shown, how a click goes on from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from ccs.ui.clicks import act, regions
from ccs.ui.links import open_link
from ccs.ui.openings import Openings
from ccs.ui.server import LazyApp, page
from ccs.ui.shared import App
from ccs.ui.views import claims
from tests.support.browser_page import MARKS
from tests.support.ui_page import app, model, one_thread
from tests.support.visitor import Visitor

pytestmark = MARKS
__all__ = ["app", "model", "one_thread"]  # fixtures


@pytest.fixture
def kept(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Openings:
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    found = Openings(app.collection, (), "organism")
    assert found.find({}) is None
    found.make(app)
    return found


def test_the_next_start_shows_what_this_one_computed(app: App, kept: Openings) -> None:
    again = Openings(app.collection, (), "organism")
    found = again.find({"__theme": "dark"})
    assert found is not None
    for name, html in regions(app, open_link(app, {})).items():
        assert found[name] == html
    assert 'data-state="done"' in found["status"]
    assert "MaxSkew@" in (again.find({"tab": "bias"}) or {})["main"]
    claim = claims.of(app.records("organism"))
    assert claim is not None
    # The button of Start is answered ahead too.
    assert app.galleries.ready(app.model_cache.get("organism"), "world/faces", claim.off)
    assert again.find({"off": "L7.H1"}) is None  # a link's screen is its own
    assert again.find({"tab": "about"}) is None
    assert Openings(app.collection, ("hf-hub:some/model",), "organism").find({}) is None


def test_a_click_on_a_kept_screen_begins_its_session(app: App, kept: Openings) -> None:
    status = (kept.find({"tab": "heads"}) or {})["status"]
    query = status.partition('data-query="')[2].partition('"')[0].replace("&amp;", "&")
    asked: dict[str, Any] = {"do": "toggle", "head": "L7.H1", "page": f"?{query}", "turn": "1"}
    *_, (session, html) = act(app, None, asked)
    assert session is not None
    before = open_link(app, dict(parse_qsl(query))).state
    assert session.state.off == before.off ^ session.state.off.parse("L7.H1")
    assert session.state.tab == "heads"
    assert session.notices == []
    assert 'data-turn="2"' in html["status"]  # newer than the screen that the page has
    *_, (session, html) = act(app, None, {**asked, "turn": "9"})
    assert "idle too long" in html["top"]
    assert session is not None
    assert session.state.tab == "heads"


def test_a_kept_screen_is_shown_although_the_app_is_made(app: App) -> None:
    source = LazyApp(lambda: app, lambda query: {"main": f"kept: {query['tab']}"})
    assert source() is app
    demo, settings = page(source)
    _, url, _ = demo.launch(prevent_thread_lock=True, **settings)
    with Visitor(url) as visitor:
        assert visitor.open(tab="heads")["main"] == "kept: heads"
    demo.close(verbose=False)
