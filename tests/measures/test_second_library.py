"""Skews and recalls against libraries with the same quantities: fairlearn and torchmetrics.

Other measures are compared with plain loops in their own tests: NDKL (against SciPy's
relative entropy, prefix by prefix), the as-published faults.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fairlearn.metrics import MetricFrame, selection_rate
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_recall

from ccs.measures import adapters, bias, retrieval
from ccs.measures.accuracy import class_weights
from ccs.measures.ranking import Ranking
from ccs.model.model import Model

K = 40


def people(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Uneven groups, rankings that favor one of them."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], 300, p=[0.6, 0.3, 0.1])
    images = rng.standard_normal((300, 8))
    images[groups == "b", 0] += 1
    return images, rng.standard_normal((5, 8)) + np.eye(8)[0], groups


@pytest.mark.parametrize("seed", [0, 1])
def test_skew_is_the_logarithm_of_fairlearns_selection_rates(seed: int) -> None:
    """A group's skew is its selection rate over everybody's: (top_g/K) / (n_g/n) = (top_g/n_g) / (K/n)."""
    images, texts, groups = people(seed)
    found = bias.measure(images, Ranking(texts, groups, K), draws=40)
    for row, text in enumerate(texts):
        chosen = adapters.in_top(images @ text / np.linalg.norm(images, axis=1), K)
        frame = MetricFrame(metrics=selection_rate, y_true=chosen, y_pred=chosen, sensitive_features=groups)
        rates = frame.by_group / frame.overall
        assert adapters.of_metric_frame(frame) == pytest.approx(found.max_skew.values[row], abs=1e-12)
        shares = dict(zip(found.groups, found.top_shares[row], strict=True))
        sizes = {group: (groups == group).mean() for group in found.groups}
        assert shares == pytest.approx({group: rates[group] * sizes[group] for group in shares})


def test_a_task_of_clip_benchmark_gives_our_skews(tiny_model: Model) -> None:
    pixels, groups = torch.rand(40, 3, *tiny_model.tower.image_size), np.arange(40) % 3
    names, templates = ["judge", "nurse"], ["a photo of a {c}", "a {c}"]
    loader = [(pixels[:16], groups[:16]), (pixels[16:], groups[16:])]
    asked = (tiny_model.clip, loader, tiny_model.tokenize, names, templates, "cpu")
    theirs = adapters.evaluate(*asked, k=10, amp=False)
    weights = class_weights(tiny_model, names, [each.replace("{c}", "{}") for each in templates])
    question = Ranking(weights, groups.astype(str), 10)
    ours = bias.measure(tiny_model.embed_images(pixels), question, draws=40).max_skew.values
    assert list(theirs.values()) == pytest.approx([*ours, ours.mean()], abs=1e-12)


def clips_and_captions(most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Clips, captions, whose they are, and scores that are all positive and put in the same order."""
    rng = np.random.default_rng(3)
    clips = rng.standard_normal((60, 10))
    clips /= np.linalg.norm(clips, axis=1, keepdims=True)
    owner = rng.permutation(np.repeat(np.arange(60), rng.integers(1, most + 1, 60)))
    captions = clips[owner] + 0.4 * rng.standard_normal((len(owner), 10))
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    # torchmetrics takes a score at or below 0 for an item that is not there.
    return clips, captions, owner, captions @ clips.T + 2


@pytest.mark.parametrize("depth", [1, 5, 10])
def test_retrieval_recall_is_torchmetrics(depth: int) -> None:
    """Text to clip has one right clip: recall. Clip to text counts any caption of the clip: hit rate."""
    clips, captions, owner, scores = clips_and_captions(most=3)
    to_clip, to_text = retrieval.measure(clips, captions, owner, draws=40)
    recalls = [
        retrieval_recall(torch.tensor(row), torch.arange(60) == int(whose), top_k=depth)
        for row, whose in zip(scores, owner, strict=True)
    ]
    assert to_clip.metrics[f"R@{depth}"].value == pytest.approx(float(torch.stack(recalls).mean()))
    hits = [
        retrieval_hit_rate(torch.tensor(scores[:, clip]), torch.tensor(owner == clip), top_k=depth)
        for clip in range(60)
    ]
    assert to_text.metrics[f"R@{depth}"].value == pytest.approx(float(torch.stack(hits).mean()))
