"""Inside a head on the page: heads of the text tower, and a second model beside the first."""

import numpy as np
import pytest

import ccs
from ccs.heads import Head, HeadSet
from ccs.locate.comparison import compare
from ccs.metrics.accuracy import class_weights
from ccs.ui import links
from ccs.ui.clicks import regions, update
from ccs.ui.service.galleries import world
from ccs.ui.views import VIEWS, classify, second
from tests.support.ui_page import beside, check, printed
from tests.support.visitor import rows

BOTH = "L7.H2 T2.H0 T3.H1"


def test_a_click_on_a_text_head_changes_what_prompts_say(app, model):
    screen = links.open_link(app, {"tab": "classify", "off": "L7.H2"})
    update(screen, "tower", {"value": "T"})
    grid = regions(screen)["left"]
    assert [row["head"] for row in rows("heads", grid)] == [str(head) for head in model.text_heads]
    for head in ("T3.H1", "T2.H0"):
        update(screen, "toggle", {"head": head})
    assert screen.state.off == HeadSet.parse(BOTH)
    found = classify.measure(screen)
    classes, templates = classify.asked(screen)
    assert found.classes == tuple(classes)
    images = [image.pixels for image in screen.images.shown]
    for off, ours in (("", found.before), (BOTH, found.after)):
        with ccs.ablate(model, HeadSet.parse(off)):  # the slow way: both towers' modules, head by head
            texts = class_weights(model, classes, templates)
            cosines = model.embed_images(images, HeadSet.parse(off).of_tower("L")) @ texts.T
        assert ours == pytest.approx(model.probabilities(cosines), abs=2e-5)
    assert np.abs(found.after - found.before).max() > 1e-3
    assert np.all(found.similarity < 1)
    said = [line for line in printed(VIEWS["classify"].snippet(screen)) if "after" in line]
    for row, shares in zip(said, found.after, strict=True):
        assert row.split(", ")[0] == f"after {classes[shares.argmax()]} {shares.max():.4f}"
    update(screen, "undo", {})
    assert screen.state.off == HeadSet.parse("L7.H2 T3.H1")
    again = links.open_link(app, {"tab": "classify", "tower": "T", "off": str(screen.state.off)})
    assert (again.state, again.session.notices) == (screen.state, [])


def test_a_link_to_a_head_opens_the_grid_that_it_is_in(app, model):
    for head, heads in (("T3.H1", model.text_heads), ("L7.H2", model.heads)):
        screen = links.open_link(app, {"tab": "heads", "head": head, "off": "none"})
        grid = regions(screen)["left"]
        assert [row["head"] for row in rows("heads", grid)] == [str(one) for one in heads]
        assert 'aria-selected="true"' in grid
    update(screen, "inspect", {"head": "T2.H0"})
    assert screen.state.tower == "T"


def test_the_card_of_a_text_head_shows_the_prompts_that_it_tells_apart(app, model):
    screen = links.open_link(app, {"tab": "heads", "head": "T3.H1", "tower": "T", "off": "none"})
    html = regions(screen)["main"]
    check(html)
    shown = rows("prompts-T3.H1", html)
    classes, templates = classify.asked(screen)
    prompts = [templates[0].replace("{}", name) for name in classes]
    direct = model.texts.contributions(prompts).direct[:, 3, 1]
    centered = direct - direct.mean(axis=0)
    far = centered @ np.linalg.svd(centered, full_matrices=False)[2][0]
    order = np.argsort(far * np.sign(far[np.abs(far).argmax()]))[::-1]
    assert [row["prompt"] for row in shown] == [prompts[i] for i in (*order[:6], *order[-6:])]
    assert "Where it looks" not in html
    assert ">similarity<" not in html  # of the image, which no text head changes
    asked = {"tab": "classify", "tower": "T", "off": "T3.H1", "classes": "a dog\nA Dog\na cat"}
    page = regions(links.open_link(app, asked))
    assert "similarity" not in page["main"]
    assert "cannot tell 2 of these 3 texts apart" in page["main"]
    assert 'aria-label="T3.H0, on"' in page["left"]


def test_cells_show_how_far_a_second_model_differs(app, model, monkeypatch):
    monkeypatch.setattr(second, "LOOKED_AT", 12)
    app, other = beside(app, app.collection), ccs.load("organism-control")
    app.model_cache.keep("organism-control", other)
    screen = links.open_link(app, {"tab": "heads", "head": "L7.H2", "off": "none"})
    update(screen, "second", {"value": "organism-control"})
    assert "is being compared" in regions(screen, complete=False)["main"]
    list(VIEWS["heads"].prepare(screen))
    pictures = app.galleries.find(world("organism").pictures).images
    images = [pictures[i] for i in range(0, len(pictures), len(pictures) // 12)]
    texts = [one.texts[0].text for one in app.records("organism").heads.values()]
    wanted = {pair.first: pair for pair in compare(model, other, images, texts)}
    page = regions(screen)
    check("".join(page.values()))
    grid = rows("heads", page["left"])
    assert [Head.parse(row["head"]) for row in grid] == list(model.heads)
    for row in grid:
        pair = wanted[Head.parse(row["head"])]
        assert (row["other model"], row["other head"]) == ("organism-control", str(pair.second))
        assert float(row["alike"]) == pytest.approx(pair.alike, abs=1e-4)
        changed = float(row["changed"]) if row["changed"] else None
        assert changed == (pair.changed if pair.changed is None else pytest.approx(pair.changed))
        assert f'aria-label="{pair.first}, {second.mark(pair)["words"]}, ' in page["left"]
        assert f"<b>{second.mark(pair)['shown']}</b>" in page["left"]
    one = next(row for row in rows("beside-L7.H2", page["main"]) if row["head"] == "L7.H2")
    assert one["other"] == str(wanted[Head(7, 2)].second)
    assert one["other CCS"] == app.records("organism-control").head(wanted[Head(7, 2)].second).score
    update(screen, "model", {"value": "organism-control"})
    assert screen.state.second == ""


def test_a_mark_says_how_much():
    pair = second.Pair(Head(4, 0), Head(4, 0), 0.7, 0.31)
    assert second.mark(pair) == {"step": 2, "shown": "31", "words": "changed by 31%"}
    strangers = second.Pair(Head(4, 0), Head(5, 1), 0.7)
    assert second.mark(strangers) == {"step": 2, "shown": "70", "words": "70% alike"}
