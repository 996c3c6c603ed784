"""Untrusted sets on the Hub: photographs that are streamed, hostile sets, and excerpts of a few rows."""

import csv
import io
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccs.data.hub import balanced_rows
from ccs.data.open import open_gallery, open_images
from ccs.errors import InputError
from tests.support import fairface_sample
from tests.support.datasets_sample import CELL, as_parquet, cells, number_of, png
from tests.support.fairface_sample import PATH, RECORD
from tests.support.hub_server import Fault
from tests.support.shared import SHARED

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
CSV = "data/fairface_label_val.csv"
PHOTOGRAPHS = "user/photos"


def test_rows_are_spread_over_files_and_row_groups(hub):
    parts = {f"data/train-{i:05d}-of-00002.parquet": cells(24, 24 * i) for i in range(2)}
    parts["data/test-00000-of-00001.parquet"] = cells(8, 40)
    files = {name: as_parquet(part, rows=4, label=range(len(part))) for name, part in parts.items()}
    hub.put("datasets", PHOTOGRAPHS, {**files, "README.md": b"---\n---\n"})
    opened = open_images("hf://datasets/user/photos:train", 16)
    spread = [first + i for first in (0, 12, 24, 36) for i in range(4)]
    assert [number_of(image) for image in opened.images] == spread
    assert opened.fingerprint == open_images("hf://datasets/user/photos", 16).fingerprint  # train comes first
    test = open_images("hf://datasets/user/photos:test", 100).images
    assert [number_of(image) for image in test] == [*range(40, 48)]
    hub.repositories["datasets", PHOTOGRAPHS].private = True  # its owner's token is not sent
    with pytest.raises(InputError, match="was not found on the Hub"):
        open_images("hf://datasets/user/photos", 4)


def test_a_hostile_set_gets_a_sentence(hub):
    elsewhere = [{"bytes": None, "path": path} for path in ("/etc/passwd", "http://127.0.0.1:9/x", "x.png")]
    for file, data, words in (
        ("train.parquet", b"PAR1 not really PAR1", "cannot be read as Parquet"),
        ("train.parquet", as_parquet(pa.array(elsewhere, CELL)), "None of the 3 images"),
        ("train.parquet", as_parquet([1, 2], label=[1, 2]), "no column of images; the columns are label, "),
        ("README.md", b"---\nconfigs:\n- config_name: a\n  data_files: /etc/*\n---\n", "no Parquet files"),
    ):
        hub.put("datasets", PHOTOGRAPHS, {file: data})
        with pytest.raises(InputError, match=words) as caught:
            open_images("hf://datasets/user/photos", 10)
        assert "passwd" not in str(caught.value)


def test_a_cell_that_is_stored_once_is_read_once_a_row_and_no_more_than_a_limit_unpacked(hub, monkeypatch):
    """A megabyte of zeros in 20,000 rows: some hundred bytes that state a megabyte."""
    indices, cell = pa.array([0] * 20_000, pa.int32()), pa.array([bytes(2**20)])
    table = pa.table({"image": pa.DictionaryArray.from_arrays(indices, cell)})
    pq.write_table(table, out := io.BytesIO(), store_schema=False, compression="zstd")
    assert len(out.getvalue()) < 10_000
    hub.put("datasets", PHOTOGRAPHS, {"train.parquet": out.getvalue()})
    with pytest.raises(InputError, match="None of the 20 images"):
        open_images("hf://datasets/user/photos", 20)
    hub.put("datasets", PHOTOGRAPHS, {"train.parquet": as_parquet(cells(4))})
    monkeypatch.setattr("ccs.data.hub.MAX_BYTES", 100)
    with pytest.raises(InputError, match="holds more than 0 MB once unpacked"):
        open_images("hf://datasets/user/photos", 4)


@pytest.mark.shared(CSV)
def test_the_rows_that_are_fetched_hold_the_first_of_every_published_group():
    with (SHARED / CSV).open(encoding="utf-8") as file:
        groups = [(row["race"], row["gender"]) for row in csv.DictReader(file)]
    assert balanced_rows(groups[: 2 * RECORD.excerpt], 600) == balanced_rows(groups, 600)


def test_the_rule_is_the_first_of_each_group():
    cells = [(letter, "m") for letter in "baaabb"]
    assert balanced_rows(cells, 4) == [1, 0, 2, 4]
    assert balanced_rows(cells, 3) == [1, 0, 2]  # the last in the alphabet has one less
    assert balanced_rows(cells, 7) == []


def put_faces(hub, labels):
    faces = fairface_sample.parquet(labels, lambda i: png(i % 50))
    files = {PATH: faces, PATH.replace("1.25", "0.25"): b"another padding"}
    hub.put("datasets", "HuggingFaceM4/FairFace", files)


def counts(gallery):
    return {*Counter(zip(gallery.groups["race (seven)"], gallery.groups["gender"], strict=True)).values()}


def test_the_first_faces_of_every_group_are_fetched_once_and_kept(hub):
    labels = fairface_sample.labels_in_turn()
    random.Random(0).shuffle(labels)
    put_faces(hub, labels)
    gallery = open_gallery("fairface-600")
    rows = balanced_rows([(label["race"], label["gender"]) for label in labels], 600)
    assert [number_of(image) for image in gallery.images] == [row % 50 for row in rows]
    for name in ("gender", "race (seven)", "age"):
        column = name.removesuffix(" (seven)")
        assert gallery.groups[name].tolist() == [labels[row][column] for row in rows]
    assert set(gallery.groups["race"]) == {"Asian", "Black", "Indian", "Latino", "Middle Eastern", "White"}
    assert (set(gallery.k.values()), counts(gallery)) == ({60}, {42, 43})
    assert "CC BY 4.0" in gallery.source
    hub.repositories.clear()
    assert open_gallery("fairface-600").fingerprint == gallery.fingerprint


def test_only_what_is_needed_is_fetched(hub):
    labels = fairface_sample.labels_in_turn()
    file = fairface_sample.parquet(labels * 3, lambda i: png(i % 50) + random.randbytes(20_000))
    hub.put("datasets", "HuggingFaceM4/FairFace", {PATH: file})
    open_gallery("fairface-600")
    assert 20_000 * 990 < hub.sent < 0.6 * len(file)


def test_a_hub_without_it_is_said(hub, tmp_path):
    with pytest.raises(InputError, match="was not found on the Hub"):
        open_gallery("fairface-600")
    put_faces(hub, fairface_sample.labels_in_turn(400))
    with pytest.raises(InputError, match="no longer holds the 600 rows"):
        open_gallery("fairface-600")
    hub.faults.append(Fault("FairFace", status=500, times=100))
    with pytest.raises(InputError, match="fairface-600"):
        open_gallery("fairface-600")
    assert not list(tmp_path.rglob("*.parquet"))
