"""Datasets streamed from the Hub: samples, splits, configurations, and hostile repositories."""

import io
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccs.data import SOURCES
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from tests.support.datasets_sample import IMAGE_TYPE, image_cells, numbered_png, parquet_bytes, read_numbers
from tests.support.fairface_sample import RECORD, serve_fairface

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
NAME = "user/photos"


def test_sample_is_spread_over_files_and_row_groups(hub):
    parts = {f"data/train-{i:05d}-of-00002.parquet": image_cells(24, 24 * i) for i in range(2)}
    parts["data/test-00000-of-00001.parquet"] = image_cells(8, 40)
    files = {
        name: parquet_bytes(part, rows=4, label=["a", "b"] * (len(part) // 2)) for name, part in parts.items()
    }
    hub.put("datasets", NAME, {**files, "README.md": b"---\n---\n"})
    images = open_images(f"hf://datasets/{NAME}:train", 16)
    assert read_numbers(images) == [first + i for first in (0, 12, 24, 36) for i in range(4)]
    # Images without classes come from the split train by default, datasets from test.
    assert images.fingerprint == open_images(f"hf://datasets/{NAME}", 16).fingerprint
    assert read_numbers(open_images(f"hf://datasets/{NAME}:test", 100)) == [*range(40, 48)]
    for address, max_images in ((f"hf://datasets/{NAME}", None), (NAME, 8), (NAME, None)):
        data = open_dataset(address, max_images=max_images)
        assert read_numbers(data) == [*range(40, 48)]
        assert "test" in data.source
        assert data.notes == (
            "not in the split test: 2 files, for example data/train-00000-of-00002.parquet",
        )
    hub.repositories["datasets", NAME].private = True  # the user's token isn't sent
    with pytest.raises(InputError, match="was not found on the Hub"):
        open_images(f"hf://datasets/{NAME}", 4)


def test_requested_configuration_and_split_are_read(hub):
    folders = [f"{config}/{split}" for config in ("0.25", "1.25") for split in ("train", "test")]
    parts = [parquet_bytes(image_cells(4, first), label=["a", "b"] * 2) for first in (0, 10, 20, 30)]
    files = {f"{folder}.parquet": part for folder, part in zip(folders, parts, strict=True)}
    hub.put("datasets", NAME, files)
    food = SOURCES["food101"]
    hub.put("datasets", food.hub, {name: data for name, data in files.items() if name.startswith("0.25")})
    repository = hub.repositories["datasets", food.hub]
    repository.tags[food.revision] = repository.commits[-1].sha
    choice = r"several tables \(0\.25/test, 1\.25/test\): choose one, as in user/photos:1\.25/test\."
    for address, error in ((NAME, choice), (f"{NAME}:x/test", "no Parquet files of the configuration 'x'")):
        with pytest.raises(InputError, match=error):
            open_dataset(address)
    for address, split, first in (
        (f"{NAME}:1.25/test", "", 30),
        (f"{NAME}:0.25/test", "training", 0),
        ("food101", "train", 0),
        ("food101:train", "", 0),
    ):
        for max_images in (4, None):
            dataset = open_dataset(address, split=split, max_images=max_images)
            assert read_numbers(dataset) == [*range(first, first + 4)]


def test_hostile_repository_is_rejected(hub):
    cells = [{"bytes": None, "path": path} for path in ("/etc/passwd", "http://127.0.0.1:9/x", "x.png")]
    for file, data, error in (
        ("train.parquet", b"PAR1 not really PAR1", "cannot be read as Parquet"),
        ("train.parquet", parquet_bytes(pa.array(cells, IMAGE_TYPE)), "None of the 3 images"),
        ("train.parquet", parquet_bytes([1, 2], label=[1, 2]), "no column of images; the columns are label"),
        ("train.tar", b"never opened outside of the sandbox", "no Parquet files"),
        ("README.md", b"---\nconfigs:\n- config_name: a\n  data_files: /etc/*\n---\n", "no Parquet files"),
    ):
        hub.put("datasets", NAME, {file: data})
        with pytest.raises(InputError, match=error) as caught:
            open_images(f"hf://datasets/{NAME}", 10)
        assert "passwd" not in str(caught.value)


def test_unpacked_size_is_limited(hub, monkeypatch):
    # A dictionary column: the cell of a megabyte is stored once for all 20,000 rows.
    indices, cell = pa.array([0] * 20_000, pa.int32()), pa.array([bytes(2**20)])
    table = pa.table({"image": pa.DictionaryArray.from_arrays(indices, cell)})
    pq.write_table(table, out := io.BytesIO(), store_schema=False, compression="zstd")
    hub.put("datasets", NAME, {"train.parquet": out.getvalue()})
    with pytest.raises(InputError, match="None of the 20 images"):
        open_images(f"hf://datasets/{NAME}", 20)
    hub.put("datasets", NAME, {"train.parquet": parquet_bytes(image_cells(4))})
    monkeypatch.setattr("ccs.data.hub.MAX_BYTES", 100)
    with pytest.raises(InputError, match="holds more than 0 MB once unpacked"):
        open_images(f"hf://datasets/{NAME}", 4)


def test_registered_sample_is_balanced_over_groups(hub, monkeypatch):
    monkeypatch.setitem(SOURCES, RECORD.name, RECORD)
    serve_fairface(hub, lambda i: numbered_png(i % 50))
    gallery = open_gallery("fairface-600")
    assert (len(gallery.images), set(gallery.k.values())) == (600, {60})
    assert set(gallery.groups) == {"gender", "race", "race (seven)", "age"}
    counts = Counter(zip(gallery.groups["race (seven)"], gallery.groups["gender"], strict=True))
    assert len(counts) == 14
    assert max(counts.values()) - min(counts.values()) <= 5
    assert gallery.fingerprint == open_gallery("fairface-600").fingerprint
