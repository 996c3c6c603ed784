"""The list of models, those that visitors name, which one the page opens on, and its first screens."""

import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import yaml

from ccs import paper, results
from ccs.files import endpoint
from ccs.heads import Head
from ccs.model.loading.sources import find, known_tower
from ccs.ui import __main__ as entry
from ccs.ui import clicks
from ccs.ui.clicks import act, cancel, regions, update
from ccs.ui.links import open_link
from ccs.ui.server import LazyApp, Openings, page
from ccs.ui.service.model_cache import live
from ccs.ui.session import App
from ccs.ui.views import claims
from tests.support import ui_sample
from tests.support.browser_page import MARKS
from tests.support.hub_server import Fault
from tests.support.ui_page import beside, check
from tests.support.visitor import Visitor

pytestmark = MARKS


@pytest.fixture
def own(app):
    """An app of the same tables with models of its own."""
    return beside(app, app.collection)


def done(screen, do, **fields):
    """The top of the page after an action."""
    list(act(screen.app, screen.session, {"do": do, **fields}))
    return regions(screen)["top"]


def test_the_list_has_what_is_computed_and_what_is_live(own):
    assert own.groups["computed"] == ["organism", "organism-control"]
    assert own.groups["live"] == ["organism-planted", "photo", *live()]
    screen = open_link(own, {"model": "ViT-B-32/openai", "off": "none"})
    shown = regions(screen, complete=False)
    assert shown["top"].count("<optgroup") == 2
    assert "ViT-L-14/openai · 1.7 GB" in shown["top"]
    assert "is being loaded" in shown["main"]
    check(shown["top"])
    # Without tables the grid is what the study printed, before anything is fetched.
    assert shown["left"].count('class="cell') == 48
    assert len(re.findall('class="cell[^"]* published', shown["left"])) == 25
    update(screen, "preset", {"value": "high"})
    assert screen.state.off == paper.head_sets("ViT-B-32/openai")["high"]


def test_with_tables_heads_of_another_level_than_printed_are_outlined(tmp_path, monkeypatch):
    name = "ViT-B-32/openai"
    monkeypatch.setattr(ui_sample, "HEADS", list(paper.model(name).heads)[24:])
    ui_sample.write(tmp_path, name, "0" * 64)
    found = App(results.load(tmp_path), tmp_path)
    printed = {head: level for level, heads in paper.head_sets(name).items() for head in heads}
    scores = found.collection.models[name].table("scores").query("k == 5 and level != 'unknown'")
    levels = {Head(row.layer, row.head): row.level for row in scores.itertuples()}
    other = {str(head) for head, level in levels.items() if level != printed.get(head, "")}
    shown = regions(open_link(found, {"model": name, "off": "none"}), complete=False)["left"]
    assert set(re.findall(r'class="cell[^"]* differs[^"]*" data-head="([^"]+)"', shown)) == other
    assert 0 < len(other) < len(levels)
    assert f"the study prints another level ({len(other)} heads)" in shown
    assert "published" not in shown


def test_what_is_listed_is_what_open_clip_has_and_a_space_fetches_the_first_before_it_starts():
    import open_clip

    homes = {name: open_clip.get_pretrained_cfg(*name.split("/"))["hf_hub"] for name in live()}
    assert all(homes.values())
    assert all(len(known_tower(find(name)).heads) >= 48 for name in homes)
    assert homes[entry.PHOTOGRAPHIC].rstrip("/") == entry.WEIGHTS[0]
    front = (Path(__file__).parents[2] / "README.md").read_text("utf-8").split("---")[1]
    assert yaml.safe_load(front)["preload_from_hub"] == [" ".join(entry.WEIGHTS)]


def test_a_visitor_names_a_model_and_loads_it(own, hub, tiny_folder):
    hub.put("models", "user/tiny", tiny_folder)
    screen = open_link(own, {"tab": "classify", "off": "none"})
    assert 'name="name"' in done(screen, "model", value="another")
    assert screen.state.model == "organism"
    top = done(screen, "name-model", name="<img src=x>")
    assert "There is no model" in top
    assert "<img src=x" not in top
    top = done(screen, "name-model", name="hf-hub:user/tiny")
    assert "MB to fetch, and" in top
    check(top)
    done(screen, "model", value="hf-hub:user/tiny")
    assert screen.state.model == "hf-hub:user/tiny"
    assert len(own.model_cache.get("hf-hub:user/tiny").heads) == 16
    assert own.groups["named"] == ["hf-hub:user/tiny"]
    assert "before" in regions(screen)["main"]


def test_a_hub_that_is_slow_keeps_nobody_from_the_other_models(own, hub, tiny_folder, monkeypatch):
    monkeypatch.setattr(clicks, "TURN", 0.2)
    hub.put("models", "user/tiny", tiny_folder)
    screen = open_link(own, {"tab": "classify", "off": "none"})
    done(screen, "name-model", name="hf-hub:user/tiny")
    hub.faults.append(Fault("resolve/main/open_clip_model", seconds=20))
    ask = {"do": "model", "value": "hf-hub:user/tiny"}
    answers = [html for _, html in act(own, screen.session, ask)]
    assert 'data-state="done"' in answers[-1]["status"]
    assert "hf-hub:user/tiny" in answers[-1]["status"]
    assert "is being loaded" in [html["main"] for html in answers if "main" in html][-1]
    _, shown = cancel(own, screen.session)
    assert screen.state.model == "organism"
    assert "probability" in shown["main"]
    assert "is still being loaded" in shown["top"]
    assert any("is being loaded" in html.get("main", "") for _, html in act(own, screen.session, ask))


def test_the_opening_model_is_decided_by_the_hub(hub, monkeypatch):
    assert entry.opening_model("some/model") == ("some/model", "as chosen")
    assert entry.opening_model() == (
        "ViT-B-32/openai",
        f"{hub.url} answers, its weights come from there; choose another with --model or CCS_MODEL",
    )
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    name, why = entry.opening_model()
    assert (name, "did not answer within 2 seconds" in why) == ("organism", True)
    assert endpoint() == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--port", "0"], "--port is 0, but must be 1 to 65535."),
        (["--model", "photos"], "Did you mean photo?"),
        (["--model", "organism", "--host", "192.0.2.1"], "served at 192.0.2.1, port 7860: Cannot assign"),
    ],
)
def test_why_there_is_no_page(asked, why, capsys):
    assert entry.main(asked) == 2
    assert why in capsys.readouterr().err


def test_an_interrupted_start_ends_without_a_traceback(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "serve", interrupted)
    assert entry.main(["--model", "organism"]) == 130


def test_the_next_start_shows_what_this_one_computed(app, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    kept, again = (Openings(app.collection, (), "organism") for _ in range(2))
    assert kept.find({}) is None
    kept.make(app)
    found = again.find({"__theme": "dark"})
    assert found | regions(open_link(app, {})) == found
    assert 'data-state="done"' in found["status"]
    assert "MaxSkew@" in again.find({"tab": "bias"})["main"]
    claim = claims.of(app.records("organism"))
    # The button of Start is answered ahead too.
    assert app.galleries.ready(app.model_cache.get("organism"), "world/faces", claim.off)
    assert again.find({"off": "L7.H1"}) is None  # a link's screen is its own
    assert Openings(app.collection, ("hf-hub:some/model",), "organism").find({}) is None
    # A click on a kept screen begins its session.
    status = kept.find({"tab": "heads"})["status"]
    query = status.partition('data-query="')[2].partition('"')[0].replace("&amp;", "&")
    asked = {"do": "toggle", "head": "L7.H1", "page": f"?{query}"}
    before = open_link(app, dict(parse_qsl(query))).state
    for turn in ("1", "9"):  # the next one of the page, or one of a session that is gone
        *_, (session, html) = act(app, None, {**asked, "turn": turn})
        assert session.state.tab == "heads"
        assert ("idle too long" in html["top"]) == (turn == "9")
        assert session.state.off == before.off ^ before.off.parse("L7.H1")
        assert 'data-turn="2"' in html["status"]  # newer than the first page's screen


def test_a_kept_screen_is_shown_although_the_app_is_made(app):
    source = LazyApp(lambda: app)
    assert source() is app
    demo, settings = page(source, lambda query: {"main": f"kept: {query['tab']}"})
    _, url, _ = demo.launch(prevent_thread_lock=True, **settings)
    with Visitor(url) as visitor:
        assert visitor.open(tab="heads")["main"] == "kept: heads"
    demo.close(verbose=False)
