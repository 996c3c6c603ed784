"""Ablation sets: their heads and names, even and reproducible draws, and sets that are left out; names."""

from collections import Counter

import pytest

from ccs import Head, HeadSet
from ccs.analysis import ablation_sets
from ccs.analysis.ablation_sets import AblationName
from ccs.texts.score import HeadScore

HEADS = HeadSet(Head(layer, head) for layer in (4, 5) for head in range(6))
# Five high, two moderate, three low, one between the levels, one unknown.
CCS = [5, 5, 5, 3, 0, 1, 5, 5, 3, 4, None, 1]
LABELS = ["Colors", "Places", "Colors", "Colors", None, "Animals", "Animals", "Colors", "Places", "Colors"]
SCORES = dict(zip(HEADS, map(HeadScore, CCS, [*LABELS, None, None]), strict=True))


def test_a_name_is_parsed_and_printed():
    assert AblationName.parse("concept:Skin tones@13") == AblationName("concept", 13, "Skin tones")
    for text in ("none", "high@7", "concept:Skin tones@13", "published-concept:Colors", "random:layers"):
        assert str(AblationName.parse(text)) == text


def make_sets(seed=0, n_random=5, scores=SCORES, heads=HEADS, **settings):
    """Plans by name (random ones by name and seed), and the notices."""
    notices = []
    options = {"notice": notices.append, **settings}
    plans = ablation_sets.make_ablation_sets(scores, 5, heads, seed, n_random, **options)
    return {p.name if p.name != "random" else f"random {p.seed}": p for p in plans}, notices


def test_with_many_unscored_heads_none_are_ablated_by_level():
    for unscored, sentence in ((3, ""), (4, "4 of 12 heads have no CCS at K = 5, more than 25%")):
        scores = {Head(0, n): HeadScore(None if n < unscored else 5, "x") for n in range(12)}
        assert ablation_sets.too_many_unscored(scores, 5).startswith(sentence)
        assert bool(ablation_sets.too_many_unscored(scores, 5)) == bool(sentence)


def test_levels_and_concepts():
    plans, notices = make_sets()
    assert str(plans["high"].heads) == "L4.H0 L4.H1 L4.H2 L5.H0 L5.H1"
    assert (str(plans["moderate"].heads), str(plans["low"].heads)) == ("L4.H3 L5.H2", "L4.H4 L4.H5 L5.H5")
    assert str(plans["concept:Colors"].heads) == "L4.H0 L4.H2 L5.H1"  # of the high heads only
    concepts = [name.removeprefix("concept:") for name in plans if name.startswith("concept:")]
    assert sorted(concepts) == ["Animals", "Colors", "Places"]
    spelled = {**SCORES, Head(4, 0): HeadScore(5, "colours")}
    concepts = {name: str(plan.heads) for name, plan in make_sets(scores=spelled)[0].items() if "olo" in name}
    wanted = {"concept:Colors": "L4.H2 L5.H1", "concept:colours": "L4.H0"}
    assert concepts == wanted | {"concept:Colors (all spellings)": "L4.H0 L4.H2 L5.H1"}
    assert next(iter(plans)) == "none"
    assert plans["none"].heads == HeadSet()
    assert notices == []
    # Equal numbers are the smaller level's, drawn from both.
    assert (plans["equal-low"].heads, len(plans["equal-high"].heads)) == (plans["low"].heads, 3)
    assert plans["equal-high"].heads < plans["high"].heads


def test_random_sets_are_numbered_and_named_by_what_they_have_in_common_with_high():
    variance = dict.fromkeys(HEADS, 1.0)
    kinds = ["high", "random"]
    plans = ablation_sets.make_ablation_sets(SCORES, 5, HEADS, 7, 4, kinds=kinds, variance=variance)
    names = [(plan.name, plan.seed) for plan in plans[2:]]
    kinds = [str(AblationName.random(alike)) for alike in ablation_sets.ALIKE]
    assert names == [(kind, seed) for kind in kinds for seed in range(7, 11)]
    assert all(len(plan.heads) == 5 for plan in plans[2:])
    assert make_sets(seed=3)[0] == make_sets(seed=3)[0] != make_sets(seed=4)[0]


HIGH = HeadSet.parse("L4.H0 L4.H1 L5.H0")
VARIANCE = {head: 1.0 + 10 * head.head + head.layer for head in HEADS}


@pytest.mark.parametrize("alike", ablation_sets.ALIKE)
def test_random_sets_are_different_and_like_the_high_heads(alike):
    sets = ablation_sets.matched(HIGH, HEADS, 20, 0, alike, VARIANCE)
    assert len(set(sets)) == 20
    assert HIGH not in sets
    assert all(off <= HEADS and len(off) == 3 for off in sets)
    layers = [head.layer for head in HIGH]
    assert all([head.layer for head in off] == layers for off in sets) == (alike != "number")
    if alike != "variance":  # more sets begin with the fewer
        assert ablation_sets.matched(HIGH, HEADS, 50, 0, alike)[:20] == sets


def test_the_nearest_in_variance_are_those_of_a_plain_search():
    nearest_sets = ablation_sets.matched(HIGH, HEADS, 10, 0, "variance", VARIANCE)
    target = sum(VARIANCE[head] for head in HIGH)

    def ratio(off):
        variance = sum(VARIANCE[head] for head in off)
        return max(variance / target, target / variance)

    others = set(ablation_sets.matched(HIGH, HEADS, 500, 0, "layers")) - set(nearest_sets)
    assert max(map(ratio, nearest_sets)) <= min(map(ratio, others))


@pytest.mark.parametrize("n_layers", [2, 10])
def test_random_draws_are_even(n_layers):
    """Also where there are too many sets to list them, as among 60 heads."""
    heads = HeadSet(Head(layer, head) for layer in range(n_layers) for head in range(6))
    sets = ablation_sets.matched(HeadSet(list(heads)[:6]), heads, 500, 0)
    counts = Counter(head for off in sets for head in off)
    expected = 500 * 6 / len(heads)
    assert len(counts) == len(heads)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())


def test_empty_plans_are_left_out_with_a_notice():
    between = {head: HeadScore(2, "Colors") for head in HEADS}
    plans, notices = make_sets(scores=between, kinds=["high", "low", "random"])
    assert list(plans) == ["none"]
    assert len(notices) == 3
    assert any("set high has no heads" in notice for notice in notices)


def test_plans_of_the_study():
    sets_by_name = {plan.name: plan for plan in ablation_sets.published_sets("ViT-L-14/laion2b_s32b_b82k")}
    assert str(sets_by_name["published-concept:Objects"].heads) == "L23.H3"
    assert {"published-high", "published-random", "published-equal-low"} < set(sets_by_name)
    five = [plan for plan in ablation_sets.published_sets("ViT-L-14/laion2b_s32b_b82k") if plan.is_random]
    assert len({plan.heads for plan in five}) == 5
    assert {len(plan.heads - sets_by_name["published-high"].heads) for plan in five} == {21}
