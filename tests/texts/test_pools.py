"""Pools of texts: the bundled ones, files of the user, and the paper's pool."""

import hashlib
from collections import Counter

import pytest

from ccs import InputError, paper
from ccs.texts import labels, pools

PHOTOGRAPHS = pools.load_pool("photographs")


def test_bundled_pools_are_large_tagged_and_without_duplicates():
    for pool, min_texts, min_concepts in (pools.load_pool("world"), 380, 14), (PHOTOGRAPHS, 3500, 40):
        assert len(pool) >= min_texts
        assert len(set(pool.concepts)) >= min_concepts
        assert set(pool.concepts) <= set(labels.tree().concepts)
        assert pool.dropped == 0
        assert len({text.casefold() for text in pool.texts}) == len(pool)


def test_photographs_cover_labels_of_paper():
    """The tree has a concept for each of the 56 labels of tables 12 to 14."""
    tree, tags = labels.tree(), Counter(PHOTOGRAPHS.concepts)
    levels = [level for model in paper.models() for level in paper.head_labels(model.name).values()]
    labels_of_paper = {label for level in levels for label in level.values()}
    assert len(labels_of_paper) == 56
    for label in labels_of_paper:
        concept = tree.find_concept(label)
        texts = sum(n for tag, n in tags.items() if tree.is_under(tag, concept))
        assert texts >= 24, (label, concept, texts)


FILES = {
    "txt": "\ufeffa  red wall \n\nA RED WALL\nan owl, at night\r\n",
    "csv": 'concept, Text\nColors,a red wall\n, "an owl, at night"\n\nBirds,A red wall\n',
    "tsv": "Text\tconcept\na red wall\tColors\nan owl, at night\t\na  red wall\tBirds\n",
    "jsonl": """{"text": "a red wall", "concept": "Colors"}\n\n{"text": "an owl, at night"}
{"text": "A red wall"}""",
}


@pytest.mark.parametrize("suffix", FILES)
def test_pool_is_read_from_file(suffix, tmp_path):
    path, tag = tmp_path / f"custom.{suffix}", None if suffix == "txt" else "Colors"
    path.write_text(FILES[suffix], "utf-8")
    pool = pools.load_pool(path)
    assert (pool.name, pool.dropped) == ("custom", 1)
    assert pool.texts == ("a red wall", "an owl, at night")
    assert (pool.concepts, pool.concept_of("a red wall")) == ((tag, None), tag)
    assert pool.concept_of("another text") is None


def test_invalid_pool_file_is_rejected(tmp_path):
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


def test_paper_pool_is_downloaded_once_and_verified(httpserver, tmp_path, monkeypatch):
    local, downloaded = (tmp_path / folder / pools.REFERENCE_FILE for folder in ("data", "home/clip-ccs"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CCS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(pools, "REFERENCE_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(pools, "ADDRESS", httpserver.url_for("/main"))
    for content in (CONTENT + b"!", bytes(2_000_000)):
        httpserver.expect_oneshot_request("/main").respond_with_data(content)
        with pytest.raises(InputError, match=r"could not be fetched.*\$CCS_DATA.*--texts FILE.*SHA-256"):
            pools.load_pool("reference")
        assert not downloaded.parent.exists()
        assert pools.find_reference() is None
    httpserver.expect_oneshot_request("/main").respond_with_data(CONTENT)
    pool = pools.load_pool("reference")
    assert (pool.name, pool.texts, pool.concepts) == ("reference", ("a badge", "A bag"), (None, None))
    assert pools.load_pool("reference") == pool
    assert (len(httpserver.log), pools.find_reference()) == (3, downloaded)
    downloaded.unlink()
    local.parent.mkdir()
    local.write_bytes(CONTENT)
    assert pools.load_pool("reference").fingerprint == pools.load_pool(local).fingerprint
    assert len(httpserver.log) == 3
    local.write_bytes(CONTENT[1:])
    with pytest.raises(InputError, match="is not the pool `reference`"):
        pools.load_pool("reference")
