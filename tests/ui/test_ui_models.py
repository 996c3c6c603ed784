"""The list of models: its groups, models that visitors name, and which one the page opens on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ccs import results
from ccs.files import endpoint
from ccs.heads import Head
from ccs.model.loading.sources import find, known_tower
from ccs.model.model import Model
from ccs.paper import figures
from ccs.ui import __main__ as entry
from ccs.ui import clicks
from ccs.ui.clicks import act, cancel, regions, update
from ccs.ui.links import open_link
from ccs.ui.service.model_cache import live
from ccs.ui.session import Session
from ccs.ui.shared import App
from tests.support import ui_sample
from tests.support.hub_server import Fault, Hub
from tests.support.ui_page import app, check, model, one_thread

__all__ = ["app", "model", "one_thread"]  # fixtures
Own = Callable[..., App]


@pytest.fixture
def own(app: App, model: Model) -> Own:
    """An app of the same tables with models of its own."""

    def make(first: str = "") -> App:
        made = App(app.collection, app.uploads, first=first)
        made.model_cache.keep("organism", model)
        return made

    return make


def done(app: App, session: Session, do: str, **fields: str) -> str:
    """The top of the page after an action."""
    for _ in act(app, session, {"do": do, **fields}):
        pass
    return clicks.regions(app, session)["top"]


def put(hub: Hub, name: str, folder: Path) -> None:
    hub.put("models", name, {path.name: path.read_bytes() for path in folder.iterdir()})


def test_the_list_has_what_is_computed_and_what_is_live(own: Own) -> None:
    found = own()
    assert found.groups["computed"] == ["organism", "organism-control"]
    assert found.groups["live"] == ["organism-planted", "photo", *live()]
    shown = regions(found, open_link(found, {"model": "ViT-L-14/openai"}), complete=False)
    assert shown["top"].count("<optgroup") == 2
    assert "ViT-L-14/openai · 1.7 GB" in shown["top"]
    assert shown["left"].count('class="cell') == 64  # known before anything is fetched
    assert "is being loaded" in shown["main"]
    check(shown["top"])


def test_without_tables_the_grid_is_what_the_study_printed(own: Own) -> None:
    found = own()
    session = open_link(found, {"model": "ViT-B-32/openai", "off": "none"})
    shown = regions(found, session, complete=False)["left"]
    assert (shown.count('class="cell'), len(re.findall('class="cell[^"]* published', shown))) == (48, 25)
    update(found, session, "preset", {"value": "high"})
    assert session.state.off == figures.head_sets("ViT-B-32/openai")["high"]


def test_with_tables_heads_of_another_level_than_printed_are_outlined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ViT-B-32/openai"
    monkeypatch.setattr(ui_sample, "HEADS", list(figures.model(name).heads)[24:])
    ui_sample.write(tmp_path, name, "0" * 64)
    found = App(results.load(tmp_path), tmp_path)
    printed = {head: level for level, heads in figures.head_sets(name).items() for head in heads}
    scores = found.collection.models[name].table("scores").query("k == 5 and level != 'unknown'")
    levels = {Head(row.layer, row.head): row.level for row in scores.itertuples()}
    other = {str(head) for head, level in levels.items() if level != printed.get(head, "")}
    shown = regions(found, open_link(found, {"model": name, "off": "none"}), complete=False)["left"]
    assert set(re.findall(r'class="cell[^"]* differs[^"]*" data-head="([^"]+)"', shown)) == other
    assert 0 < len(other) < len(levels)
    assert f"the study prints another level ({len(other)} heads)" in shown
    assert "published" not in shown


def test_what_is_listed_is_what_open_clip_has() -> None:
    import open_clip

    for name in live():
        assert open_clip.get_pretrained_cfg(*name.split("/"))["hf_hub"]
        assert len(known_tower(find(name)).heads) >= 48


def test_a_visitor_names_a_model_and_loads_it(own: Own, hub: Hub, tiny_folder: Path) -> None:
    found = own()
    put(hub, "user/tiny", tiny_folder)
    session = open_link(found, {"tab": "classify", "off": "none"})
    assert 'name="name"' in done(found, session, "model", value="another")
    assert session.state.model == "organism"
    top = done(found, session, "name-model", name="hf-hub:user/tiny")
    assert "MB to fetch, and" in top
    check(top)
    done(found, session, "model", value="hf-hub:user/tiny")
    assert session.state.model == "hf-hub:user/tiny"
    assert len(found.model_cache.get("hf-hub:user/tiny").heads) == 16
    assert found.groups["named"] == ["hf-hub:user/tiny"]
    assert "before" in regions(found, session)["main"]


def test_a_name_that_is_none_is_told(own: Own, hub: Hub) -> None:
    found, name = own(), "<img src=x onerror=alert(1)>"
    top = done(found, open_link(found, {"off": "none"}), "name-model", name=name)
    assert "There is no model" in top
    assert "<img" not in top
    assert name not in found.models


def test_a_hub_that_is_slow_keeps_nobody_from_the_other_models(
    own: Own, hub: Hub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clicks, "TURN", 0.2)
    found = own()
    put(hub, "user/tiny", tiny_folder)
    session = open_link(found, {"tab": "classify", "off": "none"})
    done(found, session, "name-model", name="hf-hub:user/tiny")
    hub.faults.append(Fault("resolve/main/open_clip_model", seconds=20))
    ask = {"do": "model", "value": "hf-hub:user/tiny"}
    answers = [html for _, html in act(found, session, ask)]
    assert 'data-state="done"' in answers[-1]["status"]
    assert "hf-hub:user/tiny" in answers[-1]["status"]
    assert "is being loaded" in [html["main"] for html in answers if "main" in html][-1]
    _, shown = cancel(found, session)
    assert session.state.model == "organism"
    assert "probability" in shown["main"]
    assert "is still being loaded" in shown["top"]
    assert any("is being loaded" in html.get("main", "") for _, html in act(found, session, ask))


def test_the_opening_model_is_decided_by_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_why_there_is_no_page(asked: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(asked) == 2
    assert why in capsys.readouterr().err


def test_a_space_has_the_first_models_weights_before_it_starts() -> None:
    import open_clip

    front = (Path(__file__).parents[2] / "README.md").read_text("utf-8").split("---")[1]
    assert yaml.safe_load(front)["preload_from_hub"] == [" ".join(entry.WEIGHTS)]
    architecture, tag = entry.PHOTOGRAPHIC.split("/")
    assert open_clip.get_pretrained_cfg(architecture, tag)["hf_hub"].rstrip("/") == entry.WEIGHTS[0]
