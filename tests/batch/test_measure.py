"""A run's ablation sets: which there are, on which sets, and that equal ones are measured once."""

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


def test_further_k_have_high_low_and_random_sets(tiny_model):
    heads = list(tiny_model.heads)
    high = {5: HeadSet(heads[::3]), 7: HeadSet(heads[::6]), 9: HeadSet(heads[:1])}
    scores = {
        k: {head: HeadScore(k if head in of_k else n % 2, "Colors") for n, head in enumerate(heads)}
        for k, of_k in high.items()
    }
    settings = Settings(ks=tuple(high), random_sets=2).for_model("organism")
    variance = {head: 1.0 + head.head for head in heads}
    ablations = make_ablations(tiny_model, settings, scores, variance, print)
    names = [f"{name}@{k}" for k in (7, 9) for name in ("high", "low", "random", "random")]
    assert [ablation.name for ablation in ablations if "@" in ablation.name] == names
    by_name = {ablation.name: ablation.heads for ablation in ablations}
    assert [by_name[name] for name in ("high", "high@7", "high@9")] == list(high.values())
    assert ablations[0].name == "none"
    singles = [ablation.heads for ablation in ablations if ablation.kind == "single"]
    assert singles == [HeadSet([head]) for head in heads]


@pytest.mark.parametrize("name", ["world/letters", "world/faces"])
def test_sets_of_the_same_heads_have_the_results_of_each_alone(tiny_model, few_draws, name):
    data = open_dataset(name, max_images=30)
    rng = np.random.default_rng(0)
    ablated, other = HeadSet([Head(5, 0)]), HeadSet([Head(5, 1)])
    embedded = {
        heads: rng.normal(size=(len(data.images), tiny_model.dim)) for heads in (HeadSet(), ablated, other)
    }
    kinds = (("high", None, ablated), ("random", 0, ablated), ("random@7", 1, ablated))
    ablations, read = [NONE, *(AblationSet(*kind) for kind in kinds)], []
    texts = measure.embed_texts(tiny_model, data)
    together = measure_evaluation(data, ablations, texts, lambda heads: read.append(heads) or embedded[heads])
    assert read == [HeadSet(), ablated, ablated]  # once for both random sets, and for all attributes

    def evaluate(ablations):
        return measure.Evaluation(data=data, ablations=ablations, texts=texts, embeddings=embedded.get).rows()

    everything = [*ablations, AblationSet("low", None, other)]
    shares = [evaluate(measure.share_of(everything, rank, 3)) for rank in range(3)]
    assert repr(measure.join_shares(shares, everything)) == repr(evaluate(everything))  # to the last digit
    for ablation in ablations[1:]:
        alone = measure_evaluation(data, [NONE, ablation], texts, embedded.__getitem__)
        by_name = {names(row): row for row in together if row["ablation"] in ("none", ablation.name)}
        assert len(by_name) == len(alone)
        for row in alone:
            assert by_name[names(row)] == pytest.approx(row, nan_ok=True)


def test_people_are_ranked_within_their_occupation_and_in_one_pool(tiny_model):
    data = open_dataset("world/counterfactuals")
    few = np.flatnonzero(np.isin(data.pools, data.occupations[:2]))
    part = {"pools": data.pools[few], "units": data.units[few], "occupations": data.occupations[:2]}
    data = replace(data, groups={"gender": data.groups["gender"][few]}, **part)
    embedded = np.random.default_rng(0).normal(size=(len(few), tiny_model.dim))
    texts = measure.embed_texts(tiny_model, data)
    table = measure_evaluation(data, [NONE], texts, lambda _: embedded)
    rows = {(row["dataset"], row["occupation"]): row for row in table if row["metric"] == "MaxSkew"}
    for place, name in enumerate(data.occupations):
        pool = np.flatnonzero(data.pools == name)
        ranked = sorted(pool, key=lambda i: -(embedded[i] @ texts[place]) / np.linalg.norm(embedded[i]))
        groups = [data.groups["gender"][i] for i in ranked]
        value = max_skew(groups, {g: groups.count(g) for g in set(groups)}, 10)
        assert rows["world/counterfactuals", name]["value"] == pytest.approx(value)
        assert (len(groups), rows["world/counterfactuals", name]["n"]) == (40, 40)
        assert rows["world/counterfactuals (one-pool)", name]["n"] == 80
    assert {row["k"] for row in rows.values()} == {10}
    # Measures of whole rankings are of an occupation's own images alone.
    of = {row["dataset"]: {r["metric"] for r in table if r["dataset"] == row["dataset"]} for row in table}
    assert {f"{name} mean" for name in group_gaps.PREFERENCES} <= of["world/counterfactuals"]
    assert not [name for name in of["world/counterfactuals (one-pool)"] if name.startswith(("AUC", "logit"))]


def test_tables_split_the_group_scores_of_each_head(tiny_model, few_draws):
    data = open_dataset("world/faces")
    rng = np.random.default_rng(0)
    before, after = (rng.normal(size=(len(data.images), tiny_model.dim)) for _ in range(2))
    head, texts = HeadSet([Head(5, 0)]), measure.embed_texts(tiny_model, data)
    single = AblationSet("single:L5.H0", None, head)
    embedded = {HeadSet(): before, head: after}
    rows = measure_evaluation(data, [NONE, single], texts, embedded.__getitem__, logit_scale=3.0)
    of_head = [row for row in rows if row["ablation"] == single.name and row["attribute"] == "gender"]
    metrics = {"MaxSkew", "MaxSkew mean", "MaxSkew sum", "general part", "specific part"}
    assert {row["metric"] for row in of_head} == metrics
    scores = [3 * ranking.cosines(texts, images) for images in (before, after)]
    splits = [preference.split(of, data.groups["gender"]) for of in scores]
    effects = {row["metric"]: row for row in measure.head_effects(rows) if row["factor"] == "gender"}
    assert set(effects) == metrics - {"MaxSkew", "MaxSkew sum"}
    for name in ("general", "specific"):
        (row,) = (row for row in of_head if row["metric"] == f"{name} part")
        old, new = (getattr(split, name) for split in splits)
        assert (row["baseline"], row["value"]) == pytest.approx((old.value, new.value), abs=1e-6)
        assert (row["low"], row["high"]) == pytest.approx((new.low, new.high), abs=1e-6)
        assert effects[row["metric"]]["value"] == pytest.approx(new.value - old.value, abs=1e-6)


def test_clips_are_means_of_frames_scaled_as_published_too(tiny_model, tmp_path):
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
    rows = measure_evaluation(clips, ablations, texts, lambda _: normal, published=lambda _: scaled)
    rows = [row for row in rows if row["ablation"] == "none"]
    recall = {row["dataset"]: row["value"] for row in rows if row["metric"] == "R@5"}
    for name, embedded in ("world/clips", normal), ("world/clips (as-published)", scaled):
        length = 1 if "published" in name else np.linalg.norm(embedded, axis=1, keepdims=True)
        scores = embedded / length @ texts.T
        ranks = np.array([(row >= row[clip]).sum() for clip, row in enumerate(scores)])
        assert recall[name] == pytest.approx((ranks <= 5).mean())


def names(row):
    return (*(value for value in row.values() if isinstance(value, str)), row["seed"])
