"""Evaluations of ablation sets: equal sets, shares of processes, rankings, head effects, and clips."""

from dataclasses import replace

import numpy as np
import pytest

from ccs import Head, HeadSet, max_skew
from ccs.analysis.ablation_sets import AblationSet
from ccs.batch.compute import Settings, measure
from ccs.batch.compute.ablations import make_ablations
from ccs.batch.compute.embed import Embedder, read_embeddings
from ccs.batch.compute.stages import Processes, Store
from ccs.data.open import open_dataset
from ccs.metrics import group_gaps, preference, ranking
from ccs.texts.score import HeadScore
from tests.support.compute_sample import measure_evaluation

NONE = AblationSet("none", None, HeadSet())


def test_every_k_has_high_low_and_random_sets(tiny_model):
    heads = list(tiny_model.heads)
    high = {5: HeadSet(heads[::3]), 7: HeadSet(heads[::6]), 9: HeadSet(heads[:1])}
    low_scores = {head: HeadScore(n % 2, "Colors") for n, head in enumerate(heads)}
    scores = {k: low_scores | dict.fromkeys(high[k], HeadScore(k, "Colors")) for k in high}
    settings = Settings(ks=tuple(high), random_sets=2).for_model("organism")
    variance = {head: 1.0 + head.head for head in heads}
    ablations = make_ablations(tiny_model, settings, scores, variance, print)
    names = [f"{name}@{k}" for k in (7, 9) for name in ("high", "low", "random", "random")]
    assert [ablation.name for ablation in ablations if "@" in ablation.name] == names
    heads_by_name = {ablation.name: ablation.heads for ablation in ablations}
    assert [heads_by_name[name] for name in ("high", "high@7", "high@9")] == list(high.values())
    assert ablations[0].name == "none"
    singles = [ablation.heads for ablation in ablations if ablation.kind == "single"]
    assert singles == [HeadSet([head]) for head in heads]


def row_key(row):
    return (*(value for value in row.values() if isinstance(value, str)), row["seed"])


@pytest.mark.parametrize("name", ["world/letters", "world/faces"])
def test_equal_ablation_sets_are_measured_once(tiny_model, few_bias_draws, name):
    data = open_dataset(name, max_images=30)
    if name == "world/faces":
        data = replace(data, occupations=data.occupations[:3])
    rng = np.random.default_rng(0)
    ablated, other = HeadSet([Head(5, 0)]), HeadSet([Head(5, 1)])
    head_sets = (HeadSet(), ablated, other)
    embeddings = {heads: rng.normal(size=(len(data.images), tiny_model.dim)) for heads in head_sets}
    names = (("high", None), ("random", 0), ("random@7", 1))
    ablations, requests = [NONE, *(AblationSet(*name, ablated) for name in names)], []
    texts = measure.embed_texts(tiny_model, data)

    def read(heads):
        requests.append(heads)
        return embeddings[heads]

    together = measure_evaluation(data, ablations, texts, read)
    assert requests == [HeadSet(), ablated, ablated]  # high, and both random sets at once

    def evaluate(ablations):
        return measure.Evaluation(
            data=data, ablations=ablations, texts=texts, embeddings=embeddings.get
        ).rows()

    with_low = [*ablations, AblationSet("low", None, other)]
    shares = [evaluate(measure.share_of(with_low, rank, 3)) for rank in range(3)]
    assert repr(measure.join_shares(shares, with_low)) == repr(evaluate(with_low))
    for ablation in ablations[1:]:
        alone = measure_evaluation(data, [NONE, ablation], texts, embeddings.get)
        row_by_key = {row_key(row): row for row in together if row["ablation"] in ("none", ablation.name)}
        assert len(row_by_key) == len(alone)
        for row in alone:
            assert row_by_key[row_key(row)] == pytest.approx(row, nan_ok=True)


def test_occupation_pools_are_ranked_separately_and_as_one_pool(tiny_model):
    data = open_dataset("world/counterfactuals")
    rows_used = np.flatnonzero(np.isin(data.pools, data.occupations[:2]))
    subset = {"pools": data.pools[rows_used], "units": data.units[rows_used]}
    groups = {"gender": data.groups["gender"][rows_used]}
    data = replace(data, groups=groups, occupations=data.occupations[:2], **subset)
    embeddings = np.random.default_rng(0).normal(size=(len(rows_used), tiny_model.dim))
    texts = measure.embed_texts(tiny_model, data)
    table = measure_evaluation(data, [NONE], texts, lambda _: embeddings)
    rows = {(row["dataset"], row["occupation"]): row for row in table if row["metric"] == "MaxSkew"}
    cosines = texts @ (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).T
    for place, name in enumerate(data.occupations):
        pool = np.flatnonzero(data.pools == name)
        ranked = groups["gender"][pool[np.argsort(-cosines[place, pool])]].tolist()
        value = max_skew(ranked, {group: ranked.count(group) for group in set(ranked)}, 10)
        assert rows["world/counterfactuals", name]["value"] == pytest.approx(value)
        assert (len(ranked), rows["world/counterfactuals", name]["n"]) == (40, 40)
        assert rows["world/counterfactuals (one-pool)", name]["n"] == 80
    assert {row["k"] for row in rows.values()} == {10}
    metrics = {name: {row["metric"] for row in table if row["dataset"] == name} for name, _ in rows}
    assert {f"{name} mean" for name in group_gaps.PREFERENCES} <= metrics["world/counterfactuals"]
    one_pool = metrics["world/counterfactuals (one-pool)"]
    assert not [name for name in one_pool if name.startswith(("AUC", "logit"))]  # these rank only own images


def test_head_effects_have_general_and_specific_parts(tiny_model, few_bias_draws):
    data = open_dataset("world/faces")
    rng = np.random.default_rng(0)
    before, after = (rng.normal(size=(len(data.images), tiny_model.dim)) for _ in range(2))
    head, texts = HeadSet([Head(5, 0)]), measure.embed_texts(tiny_model, data)
    single = AblationSet("single:L5.H0", None, head)
    embeddings = {HeadSet(): before, head: after}
    rows = measure_evaluation(data, [NONE, single], texts, embeddings.get, logit_scale=3.0)
    head_rows = [row for row in rows if row["ablation"] == single.name and row["attribute"] == "gender"]
    metrics = {"MaxSkew", "MaxSkew mean", "MaxSkew sum", "general part", "specific part"}
    assert {row["metric"] for row in head_rows} == metrics
    scores = [3 * ranking.cosines(texts, images) for images in (before, after)]
    splits = [preference.split(group_scores, data.groups["gender"]) for group_scores in scores]
    effects = {row["metric"]: row for row in measure.head_effects(rows) if row["factor"] == "gender"}
    assert set(effects) == metrics - {"MaxSkew", "MaxSkew sum"}
    for name in ("general", "specific"):
        (row,) = (row for row in head_rows if row["metric"] == f"{name} part")
        old, new = (getattr(split, name) for split in splits)
        assert (row["baseline"], row["value"]) == pytest.approx((old.value, new.value), abs=1e-6)
        assert (row["low"], row["high"]) == pytest.approx((new.low, new.high), abs=1e-6)
        assert effects[row["metric"]]["value"] == pytest.approx(new.value - old.value, abs=1e-6)


def test_clips_are_means_of_frames_also_with_published_scaling(tiny_model, tmp_path):
    clips = open_dataset("world/clips", max_images=10)
    head_sets = [HeadSet(), HeadSet([Head(5, 0)])]
    embedder = Embedder(tiny_model, Store(tmp_path, Processes()), Settings().for_model("tiny"))
    stages = [embedder.embed_set(clips, head_sets, as_published=flag) for flag in (False, True)]
    embeddings, published = (read_embeddings(stage, head_sets) for stage in stages)
    frames = tiny_model.preprocess(clips.clips[0])
    for heads in head_sets:
        for read, pixels in ((embeddings, frames), (published, tiny_model.openai_scaled(frames))):
            expected = tiny_model.embed_images(pixels, heads).mean(axis=0)
            np.testing.assert_allclose(read(heads)[0], expected, atol=1e-6)
    assert np.abs(embeddings(HeadSet()) - published(HeadSet())).max() > 1e-3
    places = np.array([3, 1])
    assert (read_embeddings(stages[0], head_sets, places)(HeadSet()) == embeddings(HeadSet())[places]).all()

    normal, scaled = np.random.default_rng(0).normal(size=(2, 10, tiny_model.dim))
    texts = measure.embed_texts(tiny_model, clips)
    ablations = [NONE, AblationSet("high", None, head_sets[1])]
    table = measure_evaluation(clips, ablations, texts, lambda _: normal, published=lambda _: scaled)
    rows = [row for row in table if row["ablation"] == "none" and row["metric"] == "R@5"]
    recall = {row["dataset"]: row["value"] for row in rows}
    # Means of frames are normalized, but not by the released code.
    unit = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    for name, images in ("world/clips", unit), ("world/clips (as-published)", scaled):
        scores = images @ texts.T
        ranks = (scores >= np.diag(scores)[:, None]).sum(axis=1)
        assert recall[name] == pytest.approx((ranks <= 5).mean())
