"""The views without a browser: whole pages, plans, charts, endpoints."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccs.errors import InputError
from ccs.heads import Head
from ccs.model.model import Model
from ccs.ui import links
from ccs.ui.api import Endpoints
from ccs.ui.clicks import regions
from ccs.ui.service.examples import load_example
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views import VIEWS, charts, classify, paradox, points
from research.photographs import photograph_captions as captions
from tests.support.ui_page import SMALL, app, check, model, one_thread, session

__all__ = ["app", "model", "one_thread", "session"]  # fixtures


@pytest.mark.parametrize("tab", ["start", "heads", "classify", "bias", "paradox", "judges", "about"])
@pytest.mark.parametrize("off", ["", "L4.H5 L7.H5"])
def test_every_view_is_whole(app: App, tab: str, off: str) -> None:
    query = {
        "tab": tab,
        "off": off,
        "gallery": SMALL,
    }
    session = links.open_link(app, query)
    for html in regions(app, session).values():
        check(html)
        for figure in re.findall(r'<section class="fig.*?</header>(.*?)<summary>', html, re.S):
            assert re.search(r'<p class="meaning">[^<>]*\S.*</p>\s*<details class="what">', figure, re.S)
        assert "nan" not in re.sub(r'data-\w+="[^"]*"|base64,[^"]*', "", html).split()


def test_paradox_joins_plans_with_themselves(app: App) -> None:
    axes = points.Axes.of(app)
    found = points.measured(*axes.chosen("world/subjects||top1", "world/faces|gender|pool|correct"))
    assert len(found) == 2 * (3 + 3 + 6)
    pruning = app.collection.models["organism"].table("pruning")
    bias_rows = app.collection.models["organism"].table("bias")
    for one in found:
        if one.model != "organism":
            continue
        seed = pruning["seed"].isna() if one.seed is None else pruning["seed"] == one.seed
        row = pruning[(pruning["plan"] == str(one.plan)) & seed & (pruning["dataset"] == "world/subjects")]
        assert one.x.value == float(row["difference"].item())
        same = bias_rows["heads"] == one.heads
        row = bias_rows[same & (bias_rows["plan"] == str(one.plan)) & (bias_rows["metric"] == "MaxSkew mean")]
        assert one.y.value in set(row[row["attribute"] == "gender"]["difference"])


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [("organism", ["organism"]), ("organism-planted", ["organism", "organism-planted"])],
)
def test_models_with_planted_heads_are_in_the_plot_while_chosen_only(
    app: App, monkeypatch: pytest.MonkeyPatch, chosen: str, shown: list[str]
) -> None:
    x, y = points.Axes.of(app).chosen("world/subjects||top1", "world/faces|gender|pool|correct")
    (one, *_) = points.measured(x, y)
    both = [replace(one, model=name) for name in ("organism", "organism-planted")]
    monkeypatch.setattr(paradox, "measured", lambda *_: both)
    ours, _ = paradox._measured(app, State(model=chosen), x, y)
    assert [one.model for one in ours] == shown


def test_published_points_are_the_printed_differences() -> None:
    found = {(one.model, str(one.plan)): one for one in points.published("gender")}
    one = found["ViT-B-32-OpenAI (published)", "high"]
    assert one.x.value == pytest.approx(
        (ccs_table("table5", "cifar100/high") - ccs_table("table5", "cifar100/original")) / 100
    )
    assert one.y.value == pytest.approx(
        (ccs_table("table8", "gender/high") - ccs_table("table8", "gender/original")) / 104
    )
    assert points.published("skin tone") == []


def test_the_studys_points_are_named_and_told_apart() -> None:
    axes = (
        points.Choice("cifar100||top1", "accuracy"),
        points.Choice("fairface|gender|pool|correct", "gender"),
    )
    printed = points.published("gender")
    html = paradox.plot([], printed, *axes, State()).__html__()
    check(html)
    assert len(re.findall('class="point printed kind-(?:high|low)"', html)) == len(printed) == 12
    for one in printed:
        assert f'data-tip="{one.words}: ' in html
        name = one.model.removesuffix(" (published)")
        assert html.count(f">{name}</text>") == 1  # beside the mark of its high set
    for kind in ("high", "low"):
        assert f"the study’s {kind} sets</span>" in html
    shapes = {
        kind: re.findall(f'class="shape point [^"]*{kind}".*?d="([^"]*)"', html) for kind in ("high", "low")
    }
    assert {charts.PRINTED} == {*shapes["high"], *shapes["low"]}
    assert charts.PRINTED not in charts.SHAPES.values()


def ccs_table(key: str, column: str) -> float:
    from ccs.paper import figures as paper

    value = paper.table(key).value("ViT-B-32-OpenAI", column)
    assert value is not None
    return value


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.3, 0.21), (-25, 1.5), (0, 1e-6), (0, 1000)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0])


def test_endpoints_agree_with_the_views(app: App, model: Model, tmp_path: Path) -> None:
    ends = Endpoints(lambda: app)
    assert ends.models()[0] == "organism"
    table = {row["head"]: row for row in ends.heads()}
    assert len(table) == 24
    assert table["L5.H3"]["CCS"] is None
    card = ends.head("L7.H5")
    assert len(card["texts"]["rows"]) == 7
    answer = ends.classify(None, off="L6.H1 L7.H2")
    session = links.open_link(app, {"off": "L6.H1 L7.H2"})
    after = [row["after"] for row in answer["classify"]["rows"]]
    np.testing.assert_allclose(after, classify.measure(session, model)[1].after.ravel(), atol=2e-6)
    file = tmp_path / "a.png"
    load_example("").images[0].pixels.save(file)
    own = ends.classify([str(file)], classes="judge, cook", template="a {}")
    assert [row["class"] for row in own["classify"]["rows"]] == ["judge", "cook"]
    for k in (100_000, -5):  # never another K than was asked for
        with pytest.raises(InputError, match=str(k)):
            ends.bias("judge", gallery=SMALL, k=k)
    with pytest.raises(InputError, match="At most 16 pictures are taken, not 20"):
        ends.classify([str(file)] * 20)
    skew = ends.bias("judge, poet", off="L6.H1", gallery=SMALL)
    assert {row["metric"] for row in skew["maxskew"]["rows"]} == {"MaxSkew", "NDKL", "AUC"}
    fairer = ends.fairer("judge, artist, teacher", gallery=SMALL, loss=10)
    assert fairer["rows"][0]["set"] == "none"
    assert fairer["off"] in {row["heads"] for row in fairer["rows"]}
    with pytest.raises(InputError, match="two occupations or more"):
        ends.fairer("judge", gallery=SMALL)
    for value in (card, answer, skew, fairer, ends.paradox(), ends.judges(), ends.about()):
        json.dumps(value, allow_nan=False)
    with pytest.raises(InputError):
        ends.heads("nothing")
    with pytest.raises(InputError):
        ends.classify(None, off="L0.H0")


def test_several_k_are_named_and_the_main_one_decides(app: App) -> None:
    records = app.records("organism")
    card = records.head(Head(7, 5))
    assert (card.k, card.ccs, card.level, card.others) == (5, 5, "high", ((7, 5),))
    assert records.k == 5
    page = regions(app, links.open_link(app, {"head": "L7.H5"}))["main"]
    assert "2 further texts; CCS with them: 5 of 7" in " ".join(page.split())
    assert (len(card.texts), len(card.further)) == (5, 2)
    plots = [
        regions(app, links.open_link(app, {"tab": "paradox", "sets": sets}))["main"] for sets in ("", "all")
    ]
    assert ["high-CCS heads at K = 7" in plot for plot in plots] == [False, True]


def test_photo_says_what_it_is_and_is_asked_in_words_that_it_was_taught(app: App) -> None:
    about = " ".join(regions(app, links.open_link(app, {"tab": "about", "model": "photo"}))["main"].split())
    assert "photo: nine convolutions, ViT 4x192, 64 px, 24 heads." in about
    assert "stand-in" not in about  # of a run that there is not
    state = links.open_link(app, {"tab": "classify", "model": "photo"}).state
    taught = {word for one in captions.classes() for word in (*one.words, *one.kinds)}
    assert set(classify.asked(state)[0]) <= taught
    assert "astronaut" not in taught
    assert "astronaut" in classify.asked(replace(state, model="ViT-B-32/openai"))[0]


def test_fields_that_a_link_leaves_open_are_worked_examples(app: App) -> None:
    for tab in VIEWS:
        page = regions(app, links.open_link(app, {"tab": tab, "gallery": SMALL}))["main"]
        assert 'class="empty"' not in page, tab
