"""The tree of concepts, the labeler and judge `tags`; CCS, levels and CCR against plain references."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs.errors import InputError
from ccs.texts import labels, score
from ccs.texts import pools as descriptions

TREE = labels.tree()
POOL = descriptions.make_pool(
    "small",
    [
        ("red", "Colors"),
        ("blue", "Colors"),
        ("stripes", "Patterns"),
        ("Paris", "Cities"),
        ("a nurse", "Professions"),
        ("a woman", "Women"),
        ("an owl", "Birds"),
        ("a fox", "Wild animals"),
        ("an animal", "Animals"),
        ("no tag", None),
        ("a widget", "Widgets"),
    ],
)


tags = st.lists(
    st.one_of(st.none(), st.sampled_from(TREE.concepts), st.just("Widgets")), min_size=1, max_size=7
)


def paths(tagged):
    return [() if tag is None else TREE.path(tag) for tag in tagged]


@given(tags, st.randoms(use_true_random=False))
def test_cover_against_every_concept_tried(tagged, random):
    shares = [random.choice([0.0, 0.1, 0.25]) for _ in tagged]
    found = labels.cover(paths(tagged), shares)
    best = None
    for concept in (*TREE.concepts, "Widgets"):
        ranks = [i for i, tag in enumerate(tagged) if tag is not None and TREE.is_under(tag, concept)]
        if not ranks:
            continue
        explained = round(sum(shares[i] for i in ranks), 9)
        merit = (len(ranks), explained, *(-i for i in ranks), len(TREE.path(concept)))
        if best is None or merit > best[0]:
            best = merit, concept
    assert found == (best[1] if best else None)
    assert found != TREE.root


def test_normalize():
    assert labels.normalize("COLOUR") == "Colors"
    assert labels.normalize("varied") == labels.normalize("Variety") == "Diversity"
    assert labels.normalize("dog  breeds.") == labels.normalize("Dog breed") == "Dog breed"
    with pytest.raises(InputError, match="not a name of a concept"):
        labels.normalize(" ?! ")


def test_chance_against_every_pair():
    """With k = 2 all pairs can be counted."""
    texts = range(len(POOL))
    pairs = [(i, j) for i in texts for j in texts if i != j]
    counts = [0, 0, 0]
    for i, j in pairs:
        tagged = [POOL.concepts[i], POOL.concepts[j]]
        best = labels.cover(paths(tagged), [0.0, 0.0])
        counts[sum(t is not None and best is not None and TREE.is_under(t, best) for t in tagged)] += 1
    chance = labels.chance_by_tags(POOL, 2, draws=4000)
    assert sum(chance) == pytest.approx(1)
    assert chance == pytest.approx([n / len(pairs) for n in counts], abs=0.03)
    assert chance == labels.chance_by_tags(POOL, 2, draws=4000)
    with pytest.raises(InputError, match="not 12"):
        labels.chance_by_tags(POOL, 12)


@pytest.mark.parametrize(
    ("name", "concept"),
    [
        ("color", "Colors"),
        ("  COLOURS. ", "Colors"),
        ("body-parts", "Body parts"),
        ("wildlife", "Animals"),
        ("'Dishes'", "Dishes"),
        ("spaceships", None),
        ("", None),
    ],
)
def test_names_of_concepts(name, concept):
    assert TREE.find(name) == concept


# [judges][texts], 1 to 5 judges, 1 to 7 texts.
panels = st.integers(1, 7).flatmap(
    lambda k: st.lists(
        st.lists(st.one_of(st.none(), st.booleans()), min_size=k, max_size=k), min_size=1, max_size=5
    )
)


@given(panels, st.sampled_from(score.RULES))
def test_ccs_against_a_plain_count(panel, rule):
    count = 0
    for text in range(len(panel[0])):
        said = [judge[text] for judge in panel]
        if None in said:
            count = None
            break
        yes, no = said.count(True), said.count(False)
        if (no == 0) if rule == "unanimous" else (yes > no):
            count += 1
    assert score.ccs(panel, rule) == count


def test_levels_of_the_study():
    assert [score.level(n, 5) for n in range(6)] == ["low", "low", "", "moderate", "", "high"]
    assert score.level(None, 5) == "unknown"
    with pytest.raises(InputError, match="6 with k = 5"):
        score.level(6, 5)


@pytest.mark.parametrize(
    ("k", "low", "moderate"), [(1, 0, None), (3, 0, 2), (7, 1, 4), (9, 1, 5), (11, 2, 6), (13, 2, 7)]
)
def test_levels_of_other_k(k, low, moderate):
    named = {n: score.level(n, k) for n in range(k + 1)}
    assert named.pop(k) == "high"
    assert [n for n, name in named.items() if name == "low"] == list(range(low + 1))
    assert [n for n, name in named.items() if name == "moderate"] == ([] if moderate is None else [moderate])


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_ccr_against_a_plain_count(given_labels):
    assert score.ccr([None, None, "Birds"]) == 0
    ratio = score.ccr(given_labels)
    if not given_labels:
        assert ratio is None
        return
    shared = [c for c in "abcd" if given_labels.count(c) > 1]
    assert ratio == len(shared) / len(given_labels)
