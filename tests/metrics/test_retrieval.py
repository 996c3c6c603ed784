"""Text-to-image and image-to-text recall against loops over queries."""

import numpy as np
import pytest

from ccs import InputError
from ccs.metrics import retrieval


def make_clips(n=70, noise=1.0):
    """Draw clips with one to three captions each in mixed order, and the index of each caption's clip."""
    rng = np.random.default_rng(0)
    clips = rng.standard_normal((n, 10)).astype(np.float32)
    clip_of = rng.permutation(np.repeat(np.arange(n), rng.integers(1, 4, n)))
    captions = clips[clip_of] + noise * rng.standard_normal((len(clip_of), 10)).astype(np.float32)
    return clips, captions, clip_of


def plain_ranks(clips, captions, clip_of):
    """Rank in both directions with Python's sort."""
    clips, captions = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (clips, captions))
    scores = np.array([[caption @ clip for clip in clips] for caption in captions])
    to_clip, to_text = [], []
    for row, target in zip(scores, clip_of, strict=True):
        to_clip.append(sorted(range(len(clips)), key=lambda clip: -row[clip]).index(target) + 1)
    for clip in range(len(clips)):
        ranked = sorted(range(len(clip_of)), key=lambda m: -scores[m, clip])
        to_text.append(min(ranked.index(m) for m in np.flatnonzero(clip_of == clip)) + 1)
    return to_clip, to_text


@pytest.mark.parametrize("batch", [1, 7, retrieval.BATCH])
def test_ranks_match_sorted_scores_in_both_directions(batch, monkeypatch):
    monkeypatch.setattr(retrieval, "BATCH", batch)
    clips, captions, clip_of = make_clips(n=150)
    clips[[3, 80]] = clips[140]  # ties, which the order decides
    to_clip, to_text = retrieval.measure_recall(clips, captions, clip_of, draws=40)
    assert (to_clip.ranks.tolist(), to_text.ranks.tolist()) == plain_ranks(clips, captions, clip_of)
    assert (to_clip.n, to_text.n) == (len(clip_of), 150)
    for direction in (to_clip, to_text):
        for depth in retrieval.DEPTHS:
            assert direction.metrics[f"R@{depth}"].value == pytest.approx((direction.ranks <= depth).mean())
    assert 0 < to_clip.metrics["R@1"].value < to_clip.metrics["R@5"].value < 1


def test_as_published_uses_first_captions_and_unnormalized_clips():
    clips, captions, clip_of = make_clips()
    _, first = np.unique(clip_of, return_index=True)
    to_clip, _ = retrieval.measure_recall(clips, captions, clip_of, as_published=True, draws=40)
    unit = captions / np.linalg.norm(captions, axis=1, keepdims=True)
    scores = unit[first] @ clips.T
    assert to_clip.ranks.tolist() == [int((row > row[i]).sum()) + 1 for i, row in enumerate(scores)]
    normalized, _ = retrieval.measure_recall(clips, captions[first], np.arange(70), draws=40)
    assert to_clip.ranks.tolist() != normalized.ranks.tolist()


def test_intervals_match_resampled_clips():
    to_clip, _ = retrieval.measure_recall(*make_clips(noise=1.5), draws=1500)
    rng, draws, depths = np.random.default_rng(3), [], (1, 5, 50)
    rows = [np.flatnonzero(to_clip.clips == clip) for clip in range(70)]
    for _ in range(1500):
        ranks = to_clip.ranks[np.concatenate([rows[clip] for clip in rng.integers(0, 70, 70)])]
        draws.append([(ranks <= depth).mean() for depth in depths])
    intervals = [to_clip.metrics[f"R@{depth}"] for depth in depths]
    ends = np.array([[interval.low for interval in intervals], [interval.high for interval in intervals]])
    assert ends == pytest.approx(np.quantile(draws, [0.025, 0.975], axis=0), rel=0.08, abs=0.02)


def test_recall_difference_is_paired():
    clips, captions, clip_of = make_clips()
    before, _ = retrieval.measure_recall(clips, captions, clip_of)
    noise = np.random.default_rng(1).standard_normal(clips.shape)
    after, _ = retrieval.measure_recall(clips + noise, captions, clip_of)
    effect = retrieval.compare_recall(after, before, "R@1")
    assert effect.value == pytest.approx(after.metrics["R@1"].value - before.metrics["R@1"].value)
    assert effect.high < 0
    assert retrieval.compare_recall(before, before, "R@5").p_value == 1
    with pytest.raises(InputError, match="'R@2'"):
        retrieval.compare_recall(before, before, "R@2")
    as_published, _ = retrieval.measure_recall(clips, captions, clip_of, as_published=True)
    with pytest.raises(InputError, match="same queries"):
        retrieval.compare_recall(as_published, before, "R@1")
