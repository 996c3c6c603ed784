"""The tree of concepts: one root, no loops, names that mean one concept each."""

from __future__ import annotations

import pytest

from ccs.paper import figures
from ccs.texts import concepts

TREE = concepts.tree()


def test_every_concept_lies_under_itself_its_parent_and_the_root() -> None:
    assert TREE.root == "Everything"
    assert TREE.root not in TREE.concepts
    for concept in TREE.concepts:
        assert TREE.is_under(concept, concept)
        assert TREE.is_under(concept, TREE.parents[concept])
        assert TREE.is_under(concept, TREE.root)
        assert TREE.root not in TREE.path(concept)
        assert TREE.parents[TREE.path(concept)[-1]] == TREE.root


def test_every_published_label_has_its_place() -> None:
    """Tables 12 to 14 use 56 labels; each means a concept of the tree."""
    labels = {
        label
        for model in figures.models()
        for level in figures.head_labels(model.name).values()
        for label in level.values()
    }
    assert len(labels) == 56
    assert {label for label in labels if TREE.find(label) is None} == set()


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
def test_names_of_concepts(name: str, concept: str | None) -> None:
    assert TREE.find(name) == concept
