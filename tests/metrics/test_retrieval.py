"""Retrieval figures against loops over queries."""

import numpy as np
import pytest

from ccs import InputError
from ccs.metrics import retrieval


def example(n=70, d=10, max_captions=3, seed=0, noise=1.0):
    """Clips, one to `max_captions` captions each in mixed order, and whose they are."""
    rng = np.random.default_rng(seed)
    clips = rng.standard_normal((n, d)).astype(np.float32)
    owner = rng.permutation(np.repeat(np.arange(n), rng.integers(1, max_captions + 1, n)))
    captions = clips[owner] + noise * rng.standard_normal((len(owner), d)).astype(np.float32)
    return clips, captions, owner


def plain_ranks(clips, captions, owner):
    """Both directions from the whole matrix with Python's sort."""
    clips, captions = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (clips, captions))
    scores = np.array([[caption @ clip for clip in clips] for caption in captions])
    to_clip, to_text = [], []
    for row, own_clip in zip(scores, owner, strict=True):
        to_clip.append(sorted(range(len(clips)), key=lambda clip: -row[clip]).index(own_clip) + 1)
    for clip in range(len(clips)):
        ranked = sorted(range(len(owner)), key=lambda m: -scores[m, clip])
        to_text.append(min(ranked.index(m) for m in np.flatnonzero(owner == clip)) + 1)
    return to_clip, to_text


@pytest.mark.parametrize("batch", [1, 7, retrieval.BATCH])
def test_ranks_equal_plain_ones_both_ways(batch, monkeypatch):
    monkeypatch.setattr(retrieval, "BATCH", batch)
    clips, captions, owner = example(n=150)
    clips[[3, 80]] = clips[140]  # identical clips: only the order decides
    to_clip, to_text = retrieval.measure_recall(clips, captions, owner, draws=40)
    expected = plain_ranks(clips, captions, owner)
    assert (to_clip.ranks.tolist(), to_text.ranks.tolist()) == expected
    assert (to_clip.n, to_text.n) == (len(owner), 150)
    for direction in (to_clip, to_text):
        for depth in retrieval.DEPTHS:
            assert direction.metrics[f"R@{depth}"].value == pytest.approx((direction.ranks <= depth).mean())
    assert 0 < to_clip.metrics["R@1"].value < to_clip.metrics["R@5"].value < 1


def test_the_studys_variant_takes_first_captions_and_keeps_the_length():
    clips, captions, owner = example()
    _, first = np.unique(owner, return_index=True)
    to_clip, _ = retrieval.measure_recall(clips, captions, owner, as_published=True, draws=40)
    unit = captions / np.linalg.norm(captions, axis=1, keepdims=True)
    scores = unit[first] @ clips.T
    assert to_clip.ranks.tolist() == [int((row > row[i]).sum()) + 1 for i, row in enumerate(scores)]
    renormalized, _ = retrieval.measure_recall(clips, captions[first], np.arange(70), draws=40)
    assert to_clip.ranks.tolist() != renormalized.ranks.tolist()


def test_intervals_equal_those_of_clips_drawn_by_hand():
    to_clip, _ = retrieval.measure_recall(*example(noise=1.5), draws=4000)
    rng, draws, depths = np.random.default_rng(3), [], (1, 5, 50)
    rows = [np.flatnonzero(to_clip.clips == clip) for clip in range(70)]
    for _ in range(4000):
        ranks = to_clip.ranks[np.concatenate([rows[clip] for clip in rng.integers(0, 70, 70)])]
        draws.append([(ranks <= depth).mean() for depth in depths])
    intervals = [to_clip.metrics[f"R@{depth}"] for depth in depths]
    ends = np.array([[interval.low for interval in intervals], [interval.high for interval in intervals]])
    assert ends == pytest.approx(np.quantile(draws, [0.025, 0.975], axis=0), rel=0.08, abs=0.02)


def test_a_paired_difference():
    clips, captions, owner = example()
    base, _ = retrieval.measure_recall(clips, captions, owner)
    noise = np.random.default_rng(1).standard_normal(clips.shape)
    worse, _ = retrieval.measure_recall(clips + noise, captions, owner)
    effect = retrieval.compare_recall(worse, base, "R@1")
    assert effect.value == pytest.approx(worse.metrics["R@1"].value - base.metrics["R@1"].value)
    assert effect.high < 0
    assert retrieval.compare_recall(base, base, "R@5").p_value == 1
    with pytest.raises(InputError, match="'R@2'"):
        retrieval.compare_recall(base, base, "R@2")
    other = retrieval.measure_recall(clips, captions, owner, as_published=True)
    with pytest.raises(InputError, match="same queries"):
        retrieval.compare_recall(other[0], base, "R@1")
