"""The views without a browser: whole pages, plans, charts, endpoints."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccs.errors import InputError
from ccs.model.model import Model
from ccs.ui import links
from ccs.ui.api import Endpoints
from ccs.ui.clicks import regions
from ccs.ui.service.examples import load_example
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views import VIEWS, charts, classify, paradox
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
    axes = paradox.Axes.of(app, "gender")
    assert (axes.gallery, axes.attribute) == ("world/faces", "gender")
    assert len(axes.points) == 2 * (2 + 3 + 6)  # of two models; what was measured at another K is left out
    pruning = app.collection.models["organism"].table("pruning")
    bias_rows = app.collection.models["organism"].table("bias")
    for one in axes.points:
        if one.model != "organism":
            continue
        seed = pruning["seed"].isna() if one.seed is None else pruning["seed"] == one.seed
        row = pruning[(pruning["plan"] == str(one.plan)) & seed & (pruning["dataset"] == axes.quality)]
        assert one.x.value == float(row["difference"].item())
        same = bias_rows["heads"] == one.heads
        row = bias_rows[same & (bias_rows["plan"] == str(one.plan)) & (bias_rows["metric"] == "MaxSkew mean")]
        assert one.y.value in set(row[row["attribute"] == "gender"]["difference"])
    other = replace(axes, points=tuple(replace(axes.points[0], model="organism-planted") for _ in range(2)))
    assert [len(paradox.shown(other, State(model=name))) for name in ("organism", "organism-planted")] == [
        0,
        2,
    ]


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
    assert {row["metric"] for row in skew["by-occupation"]["rows"]} == {"MaxSkew", "NDKL", "AUC", "logit gap"}
    fairer = ends.fairer("judge, artist, teacher", gallery=SMALL, loss=10)
    assert fairer["rows"][0]["set"] == "none"
    assert fairer["off"] in {row["heads"] for row in fairer["rows"]}
    with pytest.raises(InputError, match="two occupations or more"):
        ends.fairer("judge", gallery=SMALL)
    for value in (answer, skew, fairer):
        json.dumps(value, allow_nan=False)
    with pytest.raises(InputError):
        ends.heads("nothing")
    with pytest.raises(InputError):
        ends.classify(None, off="L0.H0")


def test_fields_that_a_link_leaves_open_are_worked_examples(app: App) -> None:
    for tab in VIEWS:
        page = regions(app, links.open_link(app, {"tab": tab, "gallery": SMALL}))["main"]
        assert 'class="empty"' not in page, tab
