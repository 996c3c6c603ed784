"""The tree of concepts, and the labeler and judge `tags` against a plain version of their rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs.errors import InputError
from ccs.texts import labels
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


def paths(tagged: list[str | None]) -> list[tuple[str, ...]]:
    return [() if tag is None else TREE.path(tag) for tag in tagged]


@given(tags, st.randoms(use_true_random=False))
def test_cover_against_every_concept_tried(tagged, random):
    shares = [random.choice([0.0, 0.1, 0.25]) for _ in tagged]
    found = labels.cover(paths(tagged), shares)
    best: tuple[tuple[float, ...], str] | None = None
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


def test_every_concept_lies_under_itself_its_parent_and_the_root():
    assert TREE.root == "Everything"
    assert TREE.root not in TREE.concepts
    for concept in TREE.concepts:
        assert TREE.is_under(concept, concept)
        assert TREE.is_under(concept, TREE.parents[concept])
        assert TREE.is_under(concept, TREE.root)
        assert TREE.root not in TREE.path(concept)
        assert TREE.parents[TREE.path(concept)[-1]] == TREE.root


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
