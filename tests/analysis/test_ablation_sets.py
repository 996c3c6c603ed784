"""Ablation sets: their names and heads, matched random sets, and sets that are left out."""

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
HIGH = HeadSet.parse("L4.H0 L4.H1 L5.H0")
VARIANCE = {head: 1.0 + 10 * head.head + head.layer for head in HEADS}


def make_sets(seed=0, scores=SCORES, **options):
    """Make sets by name (random ones by name and seed), and the notices."""
    notices = []
    sets = ablation_sets.make_ablation_sets(scores, 5, HEADS, seed, 5, notice=notices.append, **options)
    return {s.name if s.name != "random" else f"random {s.seed}": s for s in sets}, notices


def test_ablation_name_is_parsed_and_printed():
    assert AblationName.parse("concept:Skin tones@13") == AblationName("concept", 13, "Skin tones")
    for text in ("none", "high@7", "concept:Skin tones@13", "published-concept:Colors", "random:layers"):
        assert str(AblationName.parse(text)) == text


def test_too_many_unscored_heads_are_reported():
    scores = {Head(0, n): HeadScore(None if n < 3 else 5, "x") for n in range(12)}
    assert ablation_sets.too_many_unscored(scores, 5) == ""
    scores[Head(0, 3)] = HeadScore(None, "x")
    message = "4 of 12 heads have no CCS at K = 5, more than 25%"
    assert ablation_sets.too_many_unscored(scores, 5).startswith(message)


def test_sets_are_made_by_level_and_concept():
    sets, notices = make_sets()
    assert str(sets["high"].heads) == "L4.H0 L4.H1 L4.H2 L5.H0 L5.H1"
    assert (str(sets["moderate"].heads), str(sets["low"].heads)) == ("L4.H3 L5.H2", "L4.H4 L4.H5 L5.H5")
    assert str(sets["concept:Colors"].heads) == "L4.H0 L4.H2 L5.H1"  # of the high heads only
    concepts = [name.removeprefix("concept:") for name in sets if name.startswith("concept:")]
    assert sorted(concepts) == ["Animals", "Colors", "Places"]
    assert next(iter(sets)) == "none"
    assert sets["none"].heads == HeadSet()
    assert notices == []
    # Equal numbers are the smaller level's, drawn from both.
    assert (sets["equal-low"].heads, len(sets["equal-high"].heads)) == (sets["low"].heads, 3)
    assert sets["equal-high"].heads < sets["high"].heads


def test_spellings_of_a_concept_form_one_more_set():
    sets, _ = make_sets(scores={**SCORES, Head(4, 0): HeadScore(5, "colours")})
    assert {name: str(ablation_set.heads) for name, ablation_set in sets.items() if "olo" in name} == {
        "concept:Colors": "L4.H2 L5.H1",
        "concept:colours": "L4.H0",
        "concept:Colors (all spellings)": "L4.H0 L4.H2 L5.H1",
    }


def test_random_sets_are_named_by_similarity_and_numbered_by_seed():
    kinds, variance = ["high", "random"], dict.fromkeys(HEADS, 1.0)
    sets = ablation_sets.make_ablation_sets(SCORES, 5, HEADS, 7, 4, kinds=kinds, variance=variance)[2:]
    names = [str(AblationName.random(alike)) for alike in ablation_sets.ALIKE]
    assert [(s.name, s.seed) for s in sets] == [(name, seed) for name in names for seed in range(7, 11)]
    assert all(len(ablation_set.heads) == 5 for ablation_set in sets)
    assert make_sets(seed=3)[0] == make_sets(seed=3)[0] != make_sets(seed=4)[0]


@pytest.mark.parametrize("alike", ablation_sets.ALIKE)
def test_random_sets_are_distinct_and_match_high_heads(alike):
    sets = ablation_sets.matched(HIGH, HEADS, 20, 0, alike, VARIANCE)
    assert len(set(sets)) == 20
    assert HIGH not in sets
    assert all(heads <= HEADS and len(heads) == 3 for heads in sets)
    layers = [head.layer for head in HIGH]
    assert all([head.layer for head in heads] == layers for heads in sets) == (alike != "number")
    if alike != "variance":  # a larger number of sets begins with the same ones
        assert ablation_sets.matched(HIGH, HEADS, 50, 0, alike)[:20] == sets


def test_variance_matched_sets_are_the_nearest():
    nearest_sets = ablation_sets.matched(HIGH, HEADS, 10, 0, "variance", VARIANCE)
    target = sum(VARIANCE[head] for head in HIGH)

    def ratio(heads):
        variance = sum(VARIANCE[head] for head in heads)
        return max(variance / target, target / variance)

    others = set(ablation_sets.matched(HIGH, HEADS, 500, 0, "layers")) - set(nearest_sets)
    assert max(map(ratio, nearest_sets)) <= min(map(ratio, others))


@pytest.mark.parametrize("n_layers", [2, 10])  # with 60 heads there are too many sets to list
def test_random_sets_are_drawn_evenly(n_layers):
    heads = HeadSet(Head(layer, head) for layer in range(n_layers) for head in range(6))
    sets = ablation_sets.matched(HeadSet(list(heads)[:6]), heads, 500, 0)
    counts = Counter(head for drawn in sets for head in drawn)
    expected = 500 * 6 / len(heads)
    assert len(counts) == len(heads)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())


def test_empty_sets_are_left_out_with_notice():
    between = {head: HeadScore(2, "Colors") for head in HEADS}
    sets, notices = make_sets(scores=between, kinds=["high", "low", "random"])
    assert list(sets) == ["none"]
    assert len(notices) == 3
    assert any("set high has no heads" in notice for notice in notices)


def test_published_sets_of_paper():
    sets = ablation_sets.published_sets("ViT-L-14/laion2b_s32b_b82k")
    by_name = {ablation_set.name: ablation_set for ablation_set in sets}
    assert str(by_name["published-concept:Objects"].heads) == "L23.H3"
    assert {"published-high", "published-random", "published-equal-low"} < set(by_name)
    random = [ablation_set.heads for ablation_set in sets if ablation_set.is_random]
    assert len(random) == len(set(random)) == 5
    assert {len(heads - by_name["published-high"].heads) for heads in random} == {21}
