"""Skews against fairlearn, and CLIP_benchmark's own loop with ours in its place."""

import numpy as np
import pytest
import torch
from fairlearn.metrics import MetricFrame, selection_rate

from ccs.measures import adapters, bias
from ccs.measures.accuracy import class_weights
from ccs.measures.ranking import Ranking
from tests.support.bias_sample import example

K = 40


def test_skew_is_the_logarithm_of_fairlearns_selection_rates():
    """A group's skew is its selection rate over everybody's: (top_g/K) / (n_g/n) = (top_g/n_g) / (K/n)."""
    images, texts, groups = example(n=300, tilt=1.0)
    found = bias.measure(images, Ranking(texts, groups, K), draws=40)
    for row, text in enumerate(texts):
        chosen = adapters.in_top(images @ text / np.linalg.norm(images, axis=1), K)
        frame = MetricFrame(metrics=selection_rate, y_true=chosen, y_pred=chosen, sensitive_features=groups)
        rates = frame.by_group / frame.overall
        assert adapters.of_metric_frame(frame) == pytest.approx(found.max_skew.values[row], abs=1e-12)
        shares = dict(zip(found.groups, found.top_shares[row], strict=True))
        sizes = {group: (groups == group).mean() for group in found.groups}
        assert shares == pytest.approx({group: rates[group] * sizes[group] for group in shares})


def test_a_task_of_clip_benchmark_gives_our_skews(tiny_model):
    pixels, groups = torch.rand(40, 3, *tiny_model.tower.image_size), np.arange(40) % 3
    names, templates = ["judge", "nurse"], ["a photo of a {c}", "a {c}"]
    loader = [(pixels[:16], groups[:16]), (pixels[16:], groups[16:])]
    asked = (tiny_model.clip, loader, tiny_model.tokenize, names, templates, "cpu")
    theirs = adapters.evaluate(*asked, k=10, amp=False)
    weights = class_weights(tiny_model, names, [each.replace("{c}", "{}") for each in templates])
    question = Ranking(weights, groups.astype(str), 10)
    ours = bias.measure(tiny_model.embed_images(pixels), question, draws=40).max_skew.values
    assert list(theirs.values()) == pytest.approx([*ours, ours.mean()], abs=1e-12)
