"""What cards show by pixel, and how maps are judged."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score
from torch.nn import functional as F

import ccs
from ccs.data import ImageSet
from ccs.heads import HeadSet
from ccs.metrics.accuracy import class_weights
from ccs.model.maps import heatmap
from ccs.synthetic import draw
from research.maps import __main__ as command
from research.maps import judged_maps, photographs
from research.maps.judged_maps import BEST, LOOKS, OWN, RANDOM, WHOLE, Judged, cards, judge, mask
from research.world.head_lessons import CONCEPTS, factor_of


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_mask_is_what_changes_when_the_thing_is_left_out(concept):
    for one in cards(concept, 5):
        own = mask(one, concept)
        without = np.asarray(draw(replace(one, **{factor_of(concept): ""})))
        mended = np.where(own[..., None], np.asarray(draw(one)), without)
        assert (mended == np.asarray(draw(one))).all()
        assert 0.005 < own.mean() < 0.6


def test_maps_are_judged_as_by_counting():
    rng = np.random.default_rng(0)
    maps, masks = rng.random((3, 4, 4)), [rng.random((4, 4)) < 0.3 for _ in range(3)]
    found = judge([maps], masks)
    for i, own in enumerate(masks):
        order = np.argsort(-maps[i].ravel())
        hits = own.ravel()[order]
        precision = [hits[: k + 1].mean() for k in range(16) if hits[k]]
        assert found.precision[i] == pytest.approx(np.mean(precision))
        above = maps[i] > maps[i].astype(np.float32).mean()
        assert found.cut[i].tolist() == [(above & own).sum(), (~above & ~own).sum()]
        assert found.union[i].tolist() == [(above | own).sum(), (~above | ~own).sum()]
    one = np.ones((1, 3))
    expected = (found.cut.sum(0) / found.union.sum(0)).mean()
    np.testing.assert_allclose(found.figures(one)[:, 0], [found.precision.mean(), expected])


def test_the_truth_is_found_and_means_are_over_concepts():
    model = ccs.load("organism")
    head = next(iter(model.heads))
    found = {name: judged_maps.run(model, {head: "Letters"}, 4, name) for name in ("Letters", "Colors")}
    assert set(found["Letters"]) == set(judged_maps.METHODS)
    assert OWN not in found["Colors"]
    figures = judged_maps.figures(found)
    assert figures[WHOLE, "mean"][0].value == figures[WHOLE, "Letters"][0].value  # Colors have no head
    assert figures[BEST, "mean"][0].value > figures[LOOKS, "mean"][0].value + 0.2
    assert isinstance(found["Letters"][RANDOM], Judged)
    text = command.summary(figures, {head: "Letters"})
    assert "| Colors (heads: 0) |" in text
    assert text.count("–") == 3


def test_photographs_are_judged_as_by_the_authors_of_textspan():
    """Against their figures for one image at a time, in torch as they compute them."""
    model, shown = ccs.load("organism"), cards("Letters", 3)
    images, masks = [draw(s) for s in shown], [mask(s, "Letters") for s in shown]
    white = [Image.fromarray(np.uint8(255) * own) for own in masks]
    data = ImageSet(name="cards", images=images, masks=white, fingerprint="", source="")
    classes, prompt = ("the letter A", "the letter B", "a cat"), "a picture of {}"
    found = photographs.run(model, data, classes, [prompt])
    weights = class_weights(model, classes, [prompt])
    answers = (model.embed_images(images) @ weights.T).argmax(1)
    maps = heatmap(model, images, weights, HeadSet(model.encoder.all_heads))
    cut, union, correct, precision = np.zeros(2), np.zeros(2), 0, []
    for own, every, answer in zip(masks, maps, answers, strict=True):
        one = torch.from_numpy(every[answer] - every.mean(0))[None, None]
        one = F.interpolate(one, own.shape, mode="bilinear")[0, 0].clip(0)
        one = ((one - one.min()) / (one.max() - one.min())).numpy()
        said, truth = one > one.mean(), own
        correct += (said == truth).sum()
        for side, value in enumerate((True, False)):
            cut[side] += ((said == value) & (truth == value)).sum()
            union[side] += ((said == value) | (truth == value)).sum()
        ends = np.stack([1 - one, one]).ravel(), np.stack([~truth, truth]).ravel()
        precision.append(average_precision_score(ends[1], ends[0]))
    text = photographs.summary(found)
    line = next(line for line in text.splitlines() if judged_maps.CONTRAST in line)
    expected = correct / sum(own.size for own in masks), (cut / union).mean(), np.mean(precision)
    assert [cell.split("[")[0].strip() for cell in line.split("|")[2:5]] == [f"{one:.3f}" for one in expected]
    assert found[LOOKS].cut.sum() != found[judged_maps.CONTRAST].cut.sum()
