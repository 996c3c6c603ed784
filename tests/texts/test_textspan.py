"""TEXTSPAN on head statistics against a plain version on the full matrix of contributions; `find_heads`."""

import logging

import numpy as np
import pandas as pd
import pytest

import ccs
from benchmarks.textspan import plain
from ccs import Head, HeadSet, InputError, Moments
from ccs.metrics.stats import benjamini_hochberg
from tests.support.reference_encoder import record_layers

NAMES = [f"text {i}" for i in range(150)]


def draw_units(rng, n, dim):
    x = rng.standard_normal((n, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def draw_statistics(seed, n=200):
    """Return a generator, statistics of two synthetic heads, and their contributions [2, n, 64]."""
    rng, head_dim, dim = np.random.default_rng(seed), 30, 64
    z = rng.standard_normal((2, n, head_dim + 3)) * np.linspace(1, 0.05, head_dim + 3)
    z += rng.standard_normal((2, 1, head_dim + 3))
    basis = rng.standard_normal((2, head_dim + 3, dim)).astype(np.float32)
    sums = z.sum(1), z.transpose(0, 2, 1) @ z
    moments = Moments("made", HeadSet.parse("L0.H0 L0.H1"), head_dim, n, *sums, basis)
    return rng, moments, z @ basis.astype(np.float64)


@pytest.mark.parametrize("rank", [None, 12])
def test_textspan_matches_plain_version_on_full_matrix(rank):
    rng, moments, matrices = draw_statistics(0)
    embeddings = draw_units(rng, 150, 64)
    spans = ccs.textspan(moments, NAMES, embeddings, k=12 if rank else 20, rank=rank)
    for head, matrix in zip(moments.heads, matrices, strict=True):
        expected = plain(matrix, embeddings.astype(np.float64), len(spans[head]), rank or 30)
        assert [span.index for span in spans[head]] == [index for index, _ in expected]
        np.testing.assert_allclose([span.share for span in spans[head]], [s for _, s in expected], atol=1e-6)
        assert [span.text for span in spans[head]] == [f"text {index}" for index, _ in expected]


def test_ties_are_broken_by_pool_order():
    rng, moments, _ = draw_statistics(3)
    vectors = draw_units(rng, 5, 64)
    spans = ccs.textspan(moments, NAMES[:15], np.concatenate([vectors, vectors + 1e-12, vectors]), k=5)
    for chosen in spans.values():
        assert sorted(span.index for span in chosen) == [0, 1, 2, 3, 4]


def test_texts_that_differ_by_rounding_count_once():
    rng, moments, _ = draw_statistics(3)
    embeddings = np.repeat(draw_units(rng, 1, 64), 4, axis=0)
    embeddings[2, ::2] += np.float32(6e-8)  # as if it came from another batch
    for chosen in ccs.textspan(moments, NAMES[:4], embeddings, k=4).values():
        assert [span.index for span in chosen] == [0, 1, 2, 3]
        assert [span.share > 0 for span in chosen] == [True, False, False, False]


def test_repeated_texts_are_dropped_with_warning(caplog):
    rng, moments, _ = draw_statistics(3)
    embeddings = draw_units(rng, 6, 64)
    pool = ["A dog", "a cat", " a DOG ", "A bird", "a cat", "Straße"]
    with caplog.at_level(logging.WARNING):
        spans = ccs.textspan(moments, pool, embeddings, k=4)
    assert "2 of 6 texts repeat another one" in caplog.text
    for chosen in spans.values():
        assert sorted(span.index for span in chosen) == [0, 1, 3, 5]
        assert all(span.text == pool[span.index] for span in chosen)
    with pytest.raises(InputError, match="5 texts per head can't be chosen from a pool of 4 different ones"):
        ccs.textspan(moments, pool, embeddings, k=5)


def test_texts_beyond_rank_of_head_explain_nothing():
    rng, moments, _ = draw_statistics(8, n=4)  # four images span four directions
    spans = ccs.textspan(moments, NAMES[:10], draw_units(rng, 10, 64), k=10)
    for chosen in spans.values():
        assert [span.share > 0 for span in chosen] == [True] * 4 + [False] * 6
        assert sum(span.share for span in chosen) == pytest.approx(1)
        rest = [span.index for span in chosen[4:]]
        assert rest == sorted(rest)
        assert len({span.index for span in chosen}) == 10


def test_constant_head_explains_nothing():
    rng = np.random.default_rng(2)
    z = np.repeat(rng.standard_normal((1, 1, 11)), 6, axis=1)
    basis = rng.standard_normal((1, 11, 20)).astype(np.float32)
    heads = HeadSet.parse("L0.H0")
    moments = Moments("constant", heads, 8, 6, z.sum(1), z.transpose(0, 2, 1) @ z, basis)
    spans = ccs.textspan(moments, NAMES[:7], draw_units(rng, 7, 20))
    assert [(span.index, span.share) for span in spans[Head(0, 0)]] == [(i, 0.0) for i in range(5)]
    empty = Moments("constant", heads, 8, 6, z.sum(1) * 0, z.transpose(0, 2, 1) @ z * 0, basis)
    assert ccs.textspan(empty, NAMES[:7], draw_units(rng, 7, 20)) == spans


def test_invalid_input_is_rejected():
    rng, moments, _ = draw_statistics(1, n=3)
    embeddings = draw_units(rng, 6, 64)
    with_nan = np.where(np.eye(6, 64), np.nan, embeddings)
    for statistics, n, vectors, options, message in (
        (moments, 6, embeddings, {"k": 7}, "7 texts per head can't be chosen from a pool of 6"),
        (moments, 5, embeddings, {}, r"must be \[5, 64\], not \[6, 64\]"),
        (moments, 6, with_nan, {}, "not all finite"),
        (draw_statistics(1, n=1)[1], 6, embeddings, {}, "At least 2 images are needed"),
    ):
        with pytest.raises(InputError, match=message):
            ccs.textspan(statistics, NAMES[:n], vectors, **options)


def test_find_heads_matches_variance_of_contributions(tiny_model, tmp_path, monkeypatch):
    """Along the text's difference from the mean of the pool."""
    pool = [f"a {thing}" for thing in ("cat", "house", "lake", "car", "flag", "red wall", "tree")]
    (tmp_path / "pool.txt").write_text("\n".join(pool))
    images = ccs.open_images("world", 40)

    def find_dogs():
        return ccs.find_heads(tiny_model, "dogs", images, pool=str(tmp_path / "pool.txt"))

    ranked = find_dogs()
    table = ranked.rows.set_index("head")
    units = tiny_model.embed_texts(["dogs", *pool]).astype(np.float64)
    units -= units[1:].mean(0)
    direct = tiny_model.contributions(list(images.images), tiny_model.heads).direct.astype(np.float64)
    for place, head in enumerate(tiny_model.heads):
        varied = direct[:, place] - direct[:, place].mean(0)
        rows = np.linalg.svd(direct[:, place], full_matrices=False)[2][: tiny_model.head_dim]
        along = units @ rows.T @ rows
        scores = (varied @ along.T).var(0)
        assert table.loc[str(head), "rank"] == 1 + (scores[1:] > scores[0]).sum()
        share = scores[0] / (along[0] ** 2).sum() / varied.var(0).sum()
        assert table.loc[str(head), "share"] == pytest.approx(share, rel=1e-3)
        assert table.loc[str(head), "best"] == pool[scores[1:].argmax()]
    with pytest.raises(InputError, match="Give a text to look for"):
        ccs.find_heads(tiny_model, " ")
    layers_run = record_layers(tiny_model, monkeypatch)
    pd.testing.assert_frame_equal(find_dogs().rows, ranked.rows)
    assert not layers_run  # the head statistics of the last images are cached
    with ccs.ablate(tiny_model, tiny_model.heads):  # but not used while heads are ablated
        assert not find_dogs().rows["share"].equals(ranked.rows["share"])
    assert find_dogs().rows.equals(ranked.rows)
    # A rank among seven texts is no evidence, however high.
    assert table["p_value"].tolist() == pytest.approx((table["rank"] / 8).tolist())
    assert table["adjusted"].tolist() == pytest.approx(benjamini_hochberg(table["rank"] / 8).tolist())
    assert not table["encodes"].any()
