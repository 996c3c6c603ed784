"""Untrusted sets on the Hub: photographs that are streamed, hostile sets, and samples of known ones."""

import io
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccs.data import SOURCES
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from tests.support.datasets_sample import CELL, as_parquet, cells, number_of, png
from tests.support.fairface_sample import RECORD, put_faces

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
PHOTOGRAPHS = "user/photos"


def test_rows_are_spread_over_files_and_row_groups(hub):
    parts = {f"data/train-{i:05d}-of-00002.parquet": cells(24, 24 * i) for i in range(2)}
    parts["data/test-00000-of-00001.parquet"] = cells(8, 40)
    files = {
        name: as_parquet(part, rows=4, label=["a", "b"] * (len(part) // 2)) for name, part in parts.items()
    }
    hub.put("datasets", PHOTOGRAPHS, {**files, "README.md": b"---\n---\n"})
    opened = open_images("hf://datasets/user/photos:train", 16)
    spread = [first + i for first in (0, 12, 24, 36) for i in range(4)]
    assert [number_of(image) for image in opened.images] == spread
    assert opened.fingerprint == open_images("hf://datasets/user/photos", 16).fingerprint  # train comes first
    test = open_images("hf://datasets/user/photos:test", 100).images
    assert [number_of(image) for image in test] == [*range(40, 48)]
    # What is evaluated comes from test, as it does in a folder; head statistics from train.
    for spec, most in ((f"hf://datasets/{PHOTOGRAPHS}", None), (PHOTOGRAPHS, 8), (PHOTOGRAPHS, None)):
        opened = open_dataset(spec, max_images=most)
        assert [number_of(image) for image in opened.images] == [*range(40, 48)]
        assert "test" in opened.source
        assert opened.notes == (
            "not in the split test: 2 files, for example data/train-00000-of-00002.parquet",
        )
    hub.repositories["datasets", PHOTOGRAPHS].private = True  # its owner's token is not sent
    with pytest.raises(InputError, match="was not found on the Hub"):
        open_images("hf://datasets/user/photos", 4)


def test_configurations_are_not_mixed_and_the_split_asked_for_is_read(hub, tmp_path):
    places = [f"{config}/{split}" for config in ("0.25", "1.25") for split in ("train", "test")]
    files = {
        f"{place}-00000-of-00001.parquet": as_parquet(cells(4, 10 * i), label=["a", "b"] * 2)
        for i, place in enumerate(places)
    }
    hub.put("datasets", PHOTOGRAPHS, files)
    known = SOURCES["food101"]
    hub.put("datasets", known.hub, {name: data for name, data in files.items() if name.startswith("0.25")})
    repository = hub.repositories["datasets", known.hub]
    repository.tags[known.revision] = repository.commits[-1][0]
    choice = r"several tables \(0\.25/test, 1\.25/test\): choose one, as in user/photos:1\.25/test\."
    unknown = "no Parquet files of the configuration 'x'"
    for refused, words in ((PHOTOGRAPHS, choice), (f"{PHOTOGRAPHS}:x/test", unknown)):
        with pytest.raises(InputError, match=words):
            open_dataset(refused)
    for spec, split, first in (
        (f"{PHOTOGRAPHS}:1.25/test", "", 30),
        (f"{PHOTOGRAPHS}:0.25/test", "training", 0),
        ("food101", "train", 0),
        ("food101:train", "", 0),
    ):
        for most in (4, None):
            images = open_dataset(spec, split=split, max_images=most).images
            assert [number_of(image) for image in images] == [*range(first, first + 4)]
    for name, data in files.items():
        (path := tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with pytest.raises(InputError, match=r"several tables \(0\.25/test, 1\.25/test\): open one of them"):
        open_dataset(str(tmp_path / "copy"))


def test_a_hostile_set_gets_a_sentence(hub):
    elsewhere = [{"bytes": None, "path": path} for path in ("/etc/passwd", "http://127.0.0.1:9/x", "x.png")]
    for file, data, words in (
        ("train.parquet", b"PAR1 not really PAR1", "cannot be read as Parquet"),
        ("train.parquet", as_parquet(pa.array(elsewhere, CELL)), "None of the 3 images"),
        ("train.parquet", as_parquet([1, 2], label=[1, 2]), "no column of images; the columns are label, "),
        ("train.tar", b"never opened outside of the sandbox", "no Parquet files"),
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


def test_a_gallery_is_a_sample_of_its_set(hub, monkeypatch):
    monkeypatch.setitem(SOURCES, RECORD.name, RECORD)
    put_faces(hub, lambda i: png(i % 50))
    gallery = open_gallery("fairface-600")
    assert (len(gallery.images), set(gallery.k.values())) == (600, {60})
    assert set(gallery.groups) == {"gender", "race", "race (seven)", "age"}
    counts = Counter(zip(gallery.groups["race (seven)"], gallery.groups["gender"], strict=True))
    assert (len(counts), max(counts.values()) - min(counts.values()) <= 5) == (14, True)
    assert gallery.fingerprint == open_gallery("fairface-600").fingerprint
