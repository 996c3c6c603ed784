"""A run's plans: which there are, on which sets, and that figures of equal plans are measured once."""

from dataclasses import replace

import numpy as np
import pytest

from ccs import Head, HeadSet, max_skew
from ccs.analysis.ablation_sets import AblationSet
from ccs.batch.compute import Settings, measure, run
from ccs.batch.compute.embed import Embedder
from ccs.data.open import open_dataset
from ccs.metrics import group_gaps
from ccs.texts.score import HeadScore
from tests.support.compute_sample import figures


def test_further_k_have_high_low_and_random_plans(tiny_model):
    heads = list(tiny_model.heads)
    high = {5: HeadSet(heads[::3]), 7: HeadSet(heads[::6]), 9: HeadSet(heads[:1])}
    scores = {
        k: {head: HeadScore(k if head in own else n % 2, "Colors") for n, head in enumerate(heads)}
        for k, own in high.items()
    }
    about = Settings(ks=tuple(high), random_sets=2).for_model("organism")
    found = run.make_plans(tiny_model, about, scores, {head: 1.0 + head.head for head in heads}, print)
    names = [f"{name}@{k}" for k in (7, 9) for name in ("high", "low", "random", "random")]
    assert [plan.name for plan in found.further] == names
    plans = {plan.name: plan.heads for plan in (*found.main, *found.further)}
    assert [plans[name] for name in ("high", "high@7", "high@9")] == list(high.values())
    assert found.main[0].name == "none"
    assert [plan.heads for plan in found.singles] == [HeadSet([head]) for head in heads]


@pytest.mark.parametrize("name", ["world/letters", "world/faces"])
def test_plans_of_the_same_heads_have_the_figures_of_each_alone(tiny_model, few_draws, name):
    data = open_dataset(name, max_images=30)
    rng = np.random.default_rng(0)
    off, other = HeadSet([Head(5, 0)]), HeadSet([Head(5, 1)])
    embedded = {o: rng.normal(size=(len(data.images), tiny_model.dim)) for o in (HeadSet(), off, other)}
    kinds = (("none", None, HeadSet()), ("high", None, off), ("random", 0, off), ("random@7", 1, off))
    some, asked = [AblationSet(*kind, "") for kind in kinds], []

    def shown(heads):
        asked.append(heads)
        return embedded[heads]

    texts = measure.embed_texts(tiny_model, data)
    _, together = figures(texts, data, some, shown, 0)
    assert len(asked) == len(set(asked))  # once, for three plans and all attributes
    more = [*some, AblationSet("low", None, other, "")]
    dealt = measure.shares(more, 3)  # plans as several processes have them, to the last digit
    found = [measure.of_plans(texts, data, share, embedded.get, 0)[1] for share in dealt]
    _, whole = measure.of_plans(texts, data, more, embedded.get, 0)
    assert repr(measure.joined(found, more)) == repr(whole)
    for plan in some[1:]:
        _, alone = figures(texts, data, [some[0], plan], embedded.get, 0)
        by_name = {named(row): row for row in together if row["ablation"] in ("none", plan.name)}
        assert len(by_name) == len(alone)
        for row in alone:
            assert by_name[named(row)] == pytest.approx(row, nan_ok=True)


def test_people_are_ranked_within_their_occupation_and_in_one_pool_beside_it(tiny_model):
    data = open_dataset("world/counterfactuals")
    few = np.flatnonzero(np.isin(data.pools, data.occupations[:2]))
    part = {"pools": data.pools[few], "units": data.units[few], "occupations": data.occupations[:2]}
    data = replace(data, groups={"gender": data.groups["gender"][few]}, **part)
    embedded = np.random.default_rng(0).normal(size=(len(few), tiny_model.dim))
    texts = measure.embed_texts(tiny_model, data)
    _, found = figures(texts, data, [AblationSet("none", None, HeadSet(), "")], lambda _: embedded, 0)
    rows = {(row["dataset"], row["occupation"]): row for row in found if row["metric"] == "MaxSkew"}
    for place, name in enumerate(data.occupations):
        own = np.flatnonzero(data.pools == name)
        ranked = sorted(own, key=lambda i: -(embedded[i] @ texts[place]) / np.linalg.norm(embedded[i]))
        groups = [data.groups["gender"][i] for i in ranked]
        value = max_skew(groups, {g: groups.count(g) for g in set(groups)}, 10)
        assert rows["world/counterfactuals", name]["value"] == pytest.approx(value)
        assert (len(groups), rows["world/counterfactuals", name]["n"]) == (40, 40)
        assert rows["world/counterfactuals (one-pool)", name]["n"] == 80
    assert {row["k"] for row in rows.values()} == {10}
    # Measures of whole rankings are of an occupation's own images alone.
    of = {row["dataset"]: {r["metric"] for r in found if r["dataset"] == row["dataset"]} for row in found}
    assert {f"{name} mean" for name in group_gaps.PREFERENCES} <= of["world/counterfactuals"]
    assert not [name for name in of["world/counterfactuals (one-pool)"] if name.startswith(("AUC", "logit"))]


def test_clips_are_also_scaled_as_the_study_scales_them(tiny_model):
    clips = open_dataset("world/clips", max_images=10)
    pixels, off = tiny_model.preprocess(clips.clips[0][:2]), HeadSet([Head(5, 0)])
    about = Settings(as_published=True).for_model("tiny")
    found = Embedder(tiny_model, None, about).embed(clips, [HeadSet(), off], pixels)
    expected = tiny_model.embed_images(tiny_model.openai_scaled(pixels), [HeadSet(), off])
    np.testing.assert_allclose(found["published"], expected, atol=1e-6)
    assert np.abs(found["published"] - found["plans"]).max() > 1e-3
    usual = Embedder(tiny_model, None, replace(about, as_published=False))
    assert set(usual.embed(clips, [off], pixels)) == {"plans"}

    rng, texts = np.random.default_rng(0), measure.embed_texts(tiny_model, clips)
    ours, theirs = rng.normal(size=(2, 10, tiny_model.dim))
    plans, read = [AblationSet("none", None, HeadSet(), ""), AblationSet("high", None, off, "")], []
    asked = {"as_published": True, "published": lambda off: read.append(off) or theirs}
    _, rows = figures(texts, clips, plans, lambda off: read.append(off) or ours, 0, **asked)
    assert read == [HeadSet(), HeadSet(), off, off]  # no plan twice
    rows = [row for row in rows if row["ablation"] == "none"]
    shown = {row["dataset"]: row["value"] for row in rows if row["metric"] == "R@5"}
    for name, embedded in ("world/clips", ours), ("world/clips (as-published)", theirs):
        scores = (embedded / (1 if "as" in name else np.linalg.norm(embedded, axis=1)[:, None])) @ texts.T
        ranks = np.array([(row >= row[clip]).sum() for clip, row in enumerate(scores)])
        assert shown[name] == pytest.approx((ranks <= 5).mean())


def named(row):
    return (*(value for value in row.values() if isinstance(value, str)), row["seed"])
