"""The pools of texts that ship and what they cover, files of the user's own, and the study's pool."""

import hashlib
from collections import Counter

import pytest
from huggingface_hub import constants

from ccs import InputError, paper
from ccs.texts import labels, pools

PHOTOGRAPHS = pools.load_pool("photographs")


def test_a_pool_is_large_without_duplicates_and_tagged_from_the_tree():
    for pool, texts, tags in (pools.load_pool("world"), 380, 14), (PHOTOGRAPHS, 3500, 40):
        assert len(pool) >= texts
        assert len(set(pool.concepts)) >= tags
        assert set(pool.concepts) <= set(labels.tree().concepts)
        assert pool.dropped == 0
        assert len({text.casefold() for text in pool.texts}) == len(pool)


def test_photographs_cover_the_labels_of_the_study():
    """Each of the 56 labels of tables 12 to 14 means a concept of the tree."""
    tree, tags = labels.tree(), Counter(PHOTOGRAPHS.concepts)
    levels = [level for model in paper.models() for level in paper.head_labels(model.name).values()]
    labels_of_paper = {label for level in levels for label in level.values()}
    assert len(labels_of_paper) == 56
    for label in labels_of_paper:
        concept = tree.find_concept(label)
        under = sum(n for tag, n in tags.items() if tree.is_under(tag, concept))
        assert under >= 24, (label, concept, under)


LINES = "\ufeffa  red wall \n\nA RED WALL\nan owl, at night\r\n"
CELLS = 'concept, Text\nColors,a red wall\n, "an owl, at night"\n\nBirds,A red wall\n'
TABS = "Text\tconcept\na red wall\tColors\nan owl, at night\t\na  red wall\tBirds\n"
OBJECTS = (
    '{"text": "a red wall", "concept": "Colors"}\n\n{"text": "an owl, at night"}\n{"text": "A red wall"}\n'
)


def test_files_of_texts_and_with_tags(tmp_path):
    contents = {"mine.txt": LINES, "mine.csv": CELLS, "mine.tsv": TABS, "mine.jsonl": OBJECTS}
    for name, content in contents.items():
        tag = None if name == "mine.txt" else "Colors"
        (tmp_path / name).write_text(content, "utf-8")
        pool = pools.load_pool(tmp_path / name)
        assert (pool.name, pool.dropped) == ("mine", 1)
        assert pool.texts == ("a red wall", "an owl, at night")
        assert (pool.concepts, pool.concept_of("a red wall")) == ((tag, None), tag)
        assert pool.concept_of("not in it") is None


def test_bad_files(tmp_path):
    for name, content, message in (
        ("absent.txt", None, "no pool of texts.*world, photographs"),
        ("empty.txt", b"\n \n", "holds no text"),
        ("latin.txt", "un caf\xe9".encode("latin-1"), "not a text file in UTF-8"),
        ("table.csv", b"label,words\na,b\n", "no column `text`.*label, words"),
        ("texts.json", b'["a dog"]', "holds other values than objects"),
        ("comma.csv", b"text,concept\na dog,Animals\na cat, sitting,Animals\n", "line 3: 3 cells"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            pools.load_pool(tmp_path / name)


CONTENT = b"a badge\nA bag\na  bag\n"


def test_the_papers_pool_is_fetched_once_and_no_other_texts_are_taken(httpserver, tmp_path, monkeypatch):
    mine, fetched = (tmp_path / folder / pools.REFERENCE_FILE for folder in ("data", "home/clip-ccs"))
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CCS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(pools, "REFERENCE_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(pools, "ADDRESS", httpserver.url_for("/main"))
    for content in (CONTENT + b"!", bytes(2_000_000)):
        httpserver.expect_oneshot_request("/main").respond_with_data(content)
        with pytest.raises(InputError, match=r"could not be fetched.*\$CCS_DATA.*--texts FILE.*SHA-256"):
            pools.load_pool("reference")
        assert not fetched.parent.exists()
        assert pools.find_reference() is None
    httpserver.expect_oneshot_request("/main").respond_with_data(CONTENT)
    pool = pools.load_pool("reference")
    assert (pool.name, pool.texts, pool.concepts) == ("reference", ("a badge", "A bag"), (None, None))
    assert pools.load_pool("reference") == pool
    assert (len(httpserver.log), pools.find_reference()) == (3, fetched)
    fetched.unlink()
    mine.parent.mkdir()
    mine.write_bytes(CONTENT)  # a local file is enough
    assert pools.load_pool("reference").fingerprint == pools.load_pool(mine).fingerprint
    assert len(httpserver.log) == 3
    mine.write_bytes(CONTENT[1:])
    with pytest.raises(InputError, match="is not the pool `reference`"):
        pools.load_pool("reference")
