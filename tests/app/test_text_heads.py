"""Heads of the text encoder."""

import numpy as np
import pytest

import ccs
from ccs.app.page import regions
from ccs.app.views import VIEWS, classify
from ccs.heads import HeadSet
from ccs.metrics.accuracy import class_weights
from tests.support.app_page import do, opened, printed, rows

BOTH = "L7.H2 T2.H0 T3.H1"


def test_a_click_on_a_text_head_changes_what_prompts_say(app, model):
    screen = opened(app, {"tab": "classify", "ablate": "L7.H2"})
    do(screen, "heads/encoder", encoder="T")
    assert [row["head"] for row in rows("heads", screen)] == [str(head) for head in model.text_heads]
    for head in ("T3.H1", "T2.H0"):
        do(screen, "heads/toggle", head=head)
    assert screen.state.ablate == HeadSet.parse(BOTH)
    measured = classify.measure_answers(screen)
    example = classify.shown_example(screen)
    classes, templates = example.classes, example.templates
    shown = {side: measured.rows[side].to_numpy().reshape(-1, len(classes)) for side in ("before", "after")}
    images = [image.pixels for image in screen.images.originals]
    for off, ours in (("", shown["before"]), (BOTH, shown["after"])):
        with ccs.ablate(model, HeadSet.parse(off)):  # the slow way: both encoders' modules, head by head
            texts = class_weights(model, classes, templates)
            cosines = model.embed_images(images, HeadSet.parse(off).of_encoder("L")) @ texts.T
        assert ours == pytest.approx(model.probabilities(cosines), abs=2e-5)
    assert np.abs(shown["after"] - shown["before"]).max() > 1e-3
    after_lines = [line for line in printed(VIEWS["classify"].program(screen)) if "after" in line]
    for row, shares in zip(after_lines, shown["after"], strict=True):
        assert row.split(", ")[0] == f"after {classes[shares.argmax()]} {shares.max():.4f}"
    do(screen, "heads/undo")
    assert screen.state.ablate == HeadSet.parse("L7.H2 T3.H1")
    again = opened(app, {"tab": "classify", "encoder": "T", "ablate": str(screen.state.ablate)})
    assert (again.state, again.session.notices) == (screen.state, ())


def test_a_link_to_a_head_opens_the_grid_that_it_is_in(app, model):
    for head, heads in (("T3.H1", model.text_heads), ("L7.H2", model.heads)):
        screen = opened(app, {"tab": "heads", "head": head})
        grid = regions(screen)["left"]
        assert [row["head"] for row in rows("heads", screen)] == [str(grid_head) for grid_head in heads]
        assert 'aria-selected="true"' in grid
    do(screen, "heads/inspect", head="T2.H0")
    assert screen.state.encoder == "T"
