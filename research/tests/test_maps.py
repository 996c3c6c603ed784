"""Masks of objects in scenes, and scores of heatmaps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score
from torch.nn import functional as F

import ccs
from ccs.analysis.inputs import embed_names
from ccs.heads import HeadSet
from ccs.model.maps import heatmap
from ccs.synthetic import draw
from research.maps import __main__ as command
from research.maps import judged_maps, photographs
from research.maps.judged_maps import BEST, LOOKS, OWN, RANDOM, WHOLE, Judged, cards, judge, mask
from research.world.head_lessons import CONCEPTS, factor_of


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_mask_covers_the_pixels_that_change_without_the_object(concept):
    for card in cards(concept, 5):
        pixels = mask(card, concept)
        without_concept = np.asarray(draw(replace(card, **{factor_of(concept): ""})))
        mended = np.where(pixels[..., None], np.asarray(draw(card)), without_concept)
        assert (mended == np.asarray(draw(card))).all()
        assert 0.005 < pixels.mean() < 0.6


def test_map_scores_equal_plain_counting():
    rng = np.random.default_rng(0)
    maps, masks = rng.random((3, 4, 4)), [rng.random((4, 4)) < 0.3 for _ in range(3)]
    judged = judge([maps], masks)
    for i, object_pixels in enumerate(masks):
        order = np.argsort(-maps[i].ravel())
        hits = object_pixels.ravel()[order]
        precision = [hits[: k + 1].mean() for k in range(16) if hits[k]]
        assert judged.precision[i] == pytest.approx(np.mean(precision))
        above = maps[i] > maps[i].astype(np.float32).mean()
        assert judged.cut[i].tolist() == [(above & object_pixels).sum(), (~above & ~object_pixels).sum()]
        assert judged.union[i].tolist() == [(above | object_pixels).sum(), (~above | ~object_pixels).sum()]
    weights = np.ones((1, 3))
    expected = (judged.cut.sum(0) / judged.union.sum(0)).mean()
    np.testing.assert_allclose(judged.figures(weights)[:, 0], [judged.precision.mean(), expected])


def test_the_true_head_ranks_first_and_means_are_over_concepts():
    model = ccs.load("organism")
    head = next(iter(model.heads))
    judged_by_concept = {
        name: judged_maps.run(model, {head: "Letters"}, 4, name) for name in ("Letters", "Colors")
    }
    assert set(judged_by_concept["Letters"]) == set(judged_maps.METHODS)
    assert OWN not in judged_by_concept["Colors"]
    figures = judged_maps.figures(judged_by_concept)
    assert figures[WHOLE, "mean"][0].value == figures[WHOLE, "Letters"][0].value  # Colors have no head
    assert figures[BEST, "mean"][0].value > figures[LOOKS, "mean"][0].value + 0.2
    assert isinstance(judged_by_concept["Letters"][RANDOM], Judged)
    text = command.summary(figures, {head: "Letters"})
    assert "| Colors (heads: 0) |" in text
    assert text.count("–") == 3


def test_photographs_are_scored_as_by_the_authors_of_textspan():
    """Compare with their scores, computed for one image at a time in torch."""
    model, scenes = ccs.load("organism"), cards("Letters", 3)
    images, masks = [draw(s) for s in scenes], [mask(s, "Letters") for s in scenes]
    white = [Image.fromarray(np.uint8(255) * pixels) for pixels in masks]
    classes, prompt = ("the letter A", "the letter B", "a cat"), "a picture of {}"
    judged_by_method = photographs.run(model, images, white, classes, [prompt])
    weights = embed_names(model, classes, [prompt])
    answers = (model.embed_images(images) @ weights.T).argmax(1)
    maps = heatmap(model, images, weights, HeadSet(model.encoder.all_heads))
    cut, union, correct, precision = np.zeros(2), np.zeros(2), 0, []
    for object_pixels, class_maps, answer in zip(masks, maps, answers, strict=True):
        heat = torch.from_numpy(class_maps[answer] - class_maps.mean(0))[None, None]
        heat = F.interpolate(heat, object_pixels.shape, mode="bilinear")[0, 0].clip(0)
        heat = ((heat - heat.min()) / (heat.max() - heat.min())).numpy()
        predicted, truth = heat > heat.mean(), object_pixels
        correct += (predicted == truth).sum()
        for side, value in enumerate((True, False)):
            cut[side] += ((predicted == value) & (truth == value)).sum()
            union[side] += ((predicted == value) | (truth == value)).sum()
        ends = np.stack([1 - heat, heat]).ravel(), np.stack([~truth, truth]).ravel()
        precision.append(average_precision_score(ends[1], ends[0]))
    text = photographs.summary(judged_by_method)
    line = next(line for line in text.splitlines() if judged_maps.CONTRAST in line)
    expected = correct / sum(pixels.size for pixels in masks), (cut / union).mean(), np.mean(precision)
    assert [cell.split("[")[0].strip() for cell in line.split("|")[2:5]] == [
        f"{value:.3f}" for value in expected
    ]
    assert judged_by_method[LOOKS].cut.sum() != judged_by_method[judged_maps.CONTRAST].cut.sum()
