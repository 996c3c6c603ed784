"""The tree of concepts, the judge `tags`, CCS, levels, and CCR against plain references."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs.errors import InputError
from ccs.texts import labels, pools, score

TREE = labels.tree()
TAGGED = {
    "Colors": ["red", "blue"], "Patterns": ["stripes"], "Cities": ["Paris"], "Professions": ["a nurse"],
    "Women": ["a woman"], "Birds": ["an owl"], "Wild animals": ["a fox"], "Animals": ["an animal"],
    None: ["no tag"], "Widgets": ["a widget"],
}  # fmt: skip
POOL = pools.make_pool("small", [(text, tag) for tag, texts in TAGGED.items() for text in texts])

tags = st.lists(st.sampled_from([None, *TREE.concepts, "Widgets"]), min_size=1, max_size=7)


def cover_tags(tagged, shares):
    return labels.cover([() if tag is None else TREE.path(tag) for tag in tagged], shares)


@given(tags, st.randoms(use_true_random=False))
def test_cover_matches_exhaustive_search(tagged, random):
    shares = [random.choice([0.0, 0.1, 0.25]) for _ in tagged]
    best = None
    for concept in (*TREE.concepts, "Widgets"):
        ranks = [i for i, tag in enumerate(tagged) if tag is not None and TREE.is_under(tag, concept)]
        if not ranks:
            continue
        explained = round(sum(shares[i] for i in ranks), 9)
        merit = (len(ranks), explained, *(-i for i in ranks), len(TREE.path(concept)))
        if best is None or merit > best[0]:
            best = merit, concept
    assert cover_tags(tagged, shares) == (best[1] if best else None)
    assert cover_tags(tagged, shares) != TREE.root


def test_concept_names_are_normalized():
    names = {"color": "Colors", "  COLOURS. ": "Colors", "body-parts": "Body parts", "wildlife": "Animals"}
    names |= {"'Dishes'": "Dishes", "spaceships": None, "": None}
    assert {name: TREE.find_concept(name) for name in names} == names
    assert labels.normalize("varied") == labels.normalize("Variety") == "Diversity"
    assert labels.normalize("dog  breeds.") == labels.normalize("Dog breed") == "Dog breed"
    with pytest.raises(InputError, match="not the name of a concept"):
        labels.normalize(" ?! ")


def test_chance_by_tags_matches_all_pairs():
    pairs, counts = list(permutations(POOL.concepts, 2)), [0, 0, 0]
    for tagged in pairs:
        best = cover_tags(tagged, [0.0, 0.0])
        counts[sum(t is not None and best is not None and TREE.is_under(t, best) for t in tagged)] += 1
    chance = labels.chance_by_tags(POOL, 2, draws=4000)
    assert sum(chance) == pytest.approx(1)
    assert chance == pytest.approx([n / len(pairs) for n in counts], abs=0.03)
    assert chance == labels.chance_by_tags(POOL, 2, draws=4000)
    with pytest.raises(InputError, match="not 12"):
        labels.chance_by_tags(POOL, 12)


# Verdicts of 1 to 5 judges on 1 to 7 texts.
verdict_lists = st.integers(1, 7).map(lambda k: st.lists(st.none() | st.booleans(), min_size=k, max_size=k))
panels = verdict_lists.flatmap(lambda verdicts: st.lists(verdicts, min_size=1, max_size=5))


@given(panels, st.sampled_from(score.RULES))
def test_ccs_matches_plain_count(panel, rule):
    by_text = list(zip(*panel, strict=True))
    votes = [(verdicts.count(True), verdicts.count(False)) for verdicts in by_text]
    fits = [no == 0 if rule == "unanimous" else yes > no for yes, no in votes]
    assert score.ccs(panel, rule) == (None if any(None in verdicts for verdicts in by_text) else sum(fits))


def test_levels_match_paper():
    for k, low, moderate in ((1, 0, ()), (3, 0, (2,)), (5, 1, (3,)), (7, 1, (4,)), (13, 2, (7,))):
        expected = dict.fromkeys(range(k), "") | dict.fromkeys(range(low + 1), "low")
        expected |= dict.fromkeys(moderate, "moderate") | {k: "high", None: "unknown"}
        assert {n: score.level(n, k) for n in expected} == expected
        with pytest.raises(InputError, match=f"{k + 1} with k = {k}"):
            score.level(k + 1, k)


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_ccr_matches_plain_count(head_labels):
    assert score.ccr([None, None, "Birds"]) == 0
    ratio = score.ccr(head_labels)
    repeated = [label for label in "abcd" if head_labels.count(label) > 1]
    assert ratio == (len(repeated) / len(head_labels) if head_labels else None)
