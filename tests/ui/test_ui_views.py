"""The views without a browser: whole pages with and without results, plans, charts."""

import re
from dataclasses import replace

import pytest

from ccs import results
from ccs.ui import links
from ccs.ui.clicks import open_page, regions
from ccs.ui.service.cache import Cache, size_of
from ccs.ui.state import State
from ccs.ui.views import classify, paradox
from tests.support import ui_sample
from tests.support.ui_page import SMALL, beside, check


@pytest.mark.parametrize("tab", ["start", "heads", "classify", "bias", "paradox", "about"])
@pytest.mark.parametrize("off", ["", "L4.H5 L7.H5"])
def test_every_view_is_whole(app, tab, off):
    screen = links.open_link(app, {"tab": tab, "off": off, "gallery": SMALL})
    for html in regions(screen).values():
        check(html)
        for figure in re.findall(r'<section class="fig.*?</header>(.*?)<summary>', html, re.S):
            assert re.search(r'<p class="meaning">[^<>]*\S.*</p>\s*<details class="what">', figure, re.S)
        assert "nan" not in re.sub(r'data-\w+="[^"]*"|base64,[^"]*', "", html).split()


def test_the_first_screen_is_about_a_head_whose_texts_all_fit(app, monkeypatch):
    """Unless another head loses four times as much; without that weight it is the one that loses most."""
    told, weight = classify.story(links.open_link(app, {})), classify.LOWER
    monkeypatch.setattr(app, "cache", Cache(2**24))
    monkeypatch.setattr(classify, "LOWER", 1.0)
    most = classify.story(links.open_link(app, {}))
    lost = [one.before.max() - one.after[one.before.argmax()] for one in (told, most)]
    assert app.records("organism").head(told.head).level == "high"
    assert app.records("organism").head(most.head).level != "high"
    assert lost[0] < lost[1] < lost[0] / weight


@pytest.mark.parametrize("tab", ["start", "heads", "bias"])
def test_a_session_keeps_no_page(app, tab):
    page = {}
    for one, html in open_page(app, {"tab": tab, "gallery": SMALL}):
        kept, page = one, page | html
    assert kept.view == tab
    assert 2 * size_of(kept.shown) < len(page["main"])


def test_paradox_joins_plans_with_themselves(app):
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
    page = regions(links.open_link(app, {"tab": "paradox", "model": "photo"}))["main"]
    assert "No run has measured photo yet" in page
    assert "drawings alone" in page
    other = replace(axes, points=(replace(axes.points[0], model="organism-planted"),) * 2)
    shown = [len(paradox.shown(other, State(model=name))) for name in ("organism", "organism-planted")]
    assert shown == [0, 2]


@pytest.mark.parametrize("tab", ["heads", "classify", "bias", "paradox", "about"])
def test_views_without_results(app, tmp_path, tab):
    bare = beside(app, results.load(tmp_path))
    page = regions(links.open_link(bare, {"tab": tab, "gallery": SMALL}))
    assert "There are no tables for organism" in page["top"]
    assert page["left"].count('class="cell') == 24
    check(page["main"])


def test_tables_of_other_weights_are_told(app, tmp_path):
    ui_sample.write(tmp_path, "organism", "0" * 64)
    other = beside(app, results.load(tmp_path))
    assert "computed from other weights" in regions(links.open_link(other, {"tab": "about"}))["top"]
    assert "other weights" not in regions(links.open_link(app, {"tab": "about"}))["top"]
