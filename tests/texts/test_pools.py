"""The pools of texts that ship, what they cover, and files of the user's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ccs.errors import InputError
from ccs.paper import figures
from ccs.texts import concepts
from ccs.texts import pools as descriptions
from ccs.world import vocabulary
from ccs.world.vocabulary import article

WORLD = descriptions.load_pool("world")
PHOTOGRAPHS = descriptions.load_pool("photographs")


@pytest.mark.parametrize(
    ("pool", "texts", "tags"), [(WORLD, 380, 14), (PHOTOGRAPHS, 3500, 40)], ids=["world", "photographs"]
)
def test_a_pool_is_large_without_duplicates_and_tagged_from_the_tree(
    pool: descriptions.Pool, texts: int, tags: int
) -> None:
    assert len(pool) >= texts
    assert len(set(pool.concepts)) >= tags
    assert set(pool.concepts) <= set(concepts.tree().concepts)
    assert pool.dropped == 0
    assert len({text.casefold() for text in pool.texts}) == len(pool)


def test_every_value_of_the_world_is_in_two_wordings_of_one_concept() -> None:
    groups = [
        (t.concept, article(t.word)) for t in (*vocabulary.ANIMALS, *vocabulary.VEHICLES, *vocabulary.FOODS)
    ]
    groups += [("Weather", t.word) for t in vocabulary.WEATHERS]
    groups += [("Flags", f"the flag of {t.word}") for t in vocabulary.FLAGS]
    groups += [("Letters", f"the letter {letter}") for letter in vocabulary.LETTERS]
    groups += [("Colors", article(f"{color} frame")) for color in vocabulary.COLORS]
    groups += [("Professions", article(n)) for names in vocabulary.OCCUPATIONS.values() for n in names]
    for concept, phrase in groups:
        same = [
            text for text in WORLD.texts if text == phrase or text.endswith((f" of {phrase}", f" {phrase}"))
        ]
        assert len(same) >= 2, phrase
        assert {WORLD.concept_of(text) for text in same} == {concept}


def test_photographs_cover_the_labels_of_the_study() -> None:
    tree = concepts.tree()
    tags = Counter(PHOTOGRAPHS.concepts)
    levels = [level for model in figures.models() for level in figures.head_labels(model.name).values()]
    for label in {label for level in levels for label in level.values()}:
        concept = tree.find(label)
        under = sum(n for tag, n in tags.items() if tag is not None and tree.is_under(tag, concept))
        assert under >= 24, (label, concept, under)


def test_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("\ufeffa  red wall \n\nA RED WALL\nan owl, at night\r\n", "utf-8")
    pool = descriptions.load_pool(path)
    assert pool.name == "mine"
    assert pool.texts == ("a red wall", "an owl, at night")
    assert pool.concepts == (None, None)
    assert pool.dropped == 1
    assert pool.concept_of("a red wall") is None


def test_a_csv_with_tags(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('concept,text\nColors,a red wall\n,"an owl, at night"\nBirds,A red wall\n', "utf-8")
    pool = descriptions.load_pool(str(path))
    assert pool.texts == ("a red wall", "an owl, at night")
    assert pool.concepts == ("Colors", None)
    assert pool.dropped == 1
    assert pool.concept_of("a red wall") == "Colors"
    assert pool.concept_of("not in it") is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.txt", None, "no pool of texts.*world, photographs"),
        ("empty.txt", b"\n \n", "holds no text"),
        ("latin.txt", "un caf\xe9".encode("latin-1"), "not a text file in UTF-8"),
        ("table.csv", b"label,words\na,b\n", "no column `text`.*label, words"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        descriptions.load_pool(tmp_path / name)
