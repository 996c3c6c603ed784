"""Photographs streamed from a data set on the Hub: the rows that are read, and attempts of hostile sets."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccs.errors import InputError
from ccs.sets import strangers
from ccs.sets.open import open_images
from tests.support.datasets_sample import number_of, png
from tests.support.hub_server import Repository

pytestmark = [
    # fsspec leaves its event loop to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
]


def parquet(cells, column="image", rows=4):
    """A file with images in row groups of `rows`, beside a column that is not theirs."""
    kind = (
        pa.binary()
        if cells and isinstance(cells[0], bytes)
        else pa.int64()
        if cells and isinstance(cells[0], int)
        else pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    )
    table = pa.table({"label": pa.array(range(len(cells))), column: pa.array(cells, kind)})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows)
    return out.getvalue()


def cells(first, count):
    return [{"bytes": png(first + i), "path": f"{i}.png"} for i in range(count)]


@pytest.fixture
def put(hub):
    def make(files, name="user/photos", **about):
        made = hub.repositories["datasets", name] = Repository(False, **about)
        made.commit(files, "made")
        return made

    return make


def test_rows_are_spread_over_files_and_row_groups(put):
    files = {f"data/train-{i:05d}-of-00002.parquet": parquet(cells(24 * i, 24)) for i in range(2)}
    put({**files, "data/test-00000-of-00001.parquet": parquet(cells(40, 8)), "README.md": b"---\n---\n"})
    found = open_images("hf://datasets/user/photos:train", 16)
    assert [number_of(image) for image in found.images] == [
        *range(0, 4),
        *range(12, 16),
        *range(24, 28),
        *range(36, 40),
    ]
    assert found.source.startswith("hf://datasets/user/photos:train at ")
    assert found.fingerprint == open_images("hf://datasets/user/photos", 16).fingerprint  # train comes first
    assert [number_of(image) for image in open_images("hf://datasets/user/photos:test", 100).images] == [
        *range(40, 48)
    ]


def test_no_token_is_sent(put):
    put({"train.parquet": parquet(cells(0, 4))}).private = True  # its owner's token is in the environment
    with pytest.raises(InputError, match="was not found on the Hub"):
        open_images("hf://datasets/user/photos", 4)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train.parquet": b"PAR1 not really PAR1"}, "could not be read"),
        ({"train.parquet": parquet([{"bytes": None, "path": "/etc/passwd"}] * 3)}, "None of the 3 images"),
        (
            {"train.parquet": parquet([{"bytes": None, "path": "http://127.0.0.1:9/x"}] * 3)},
            "None of the 3 images",
        ),
        ({"train.parquet": parquet([1, 2, 3], "other")}, "no column of images; the columns are label, other"),
        (
            {"README.md": b"---\nconfigs:\n- config_name: a\n  data_files: /etc/*\n---\n"},
            "holds no parquet files",
        ),
    ],
)
def test_a_hostile_set_gets_a_sentence(put, files, words):
    put(files)
    with pytest.raises(InputError, match=words) as caught:
        open_images("hf://datasets/user/photos", 10)
    assert "passwd" not in str(caught.value)


def test_a_cell_that_is_stored_once_and_repeated_is_read_once_a_row(put):
    """A megabyte of zeros in 20,000 rows: some hundred bytes that state a megabyte."""
    indices, cell = pa.array([0] * 20_000, pa.int32()), pa.array([bytes(2**20)])
    out = io.BytesIO()
    table = pa.table({"image": pa.DictionaryArray.from_arrays(indices, cell)})
    pq.write_table(table, out, store_schema=False, compression="zstd")
    assert len(out.getvalue()) < 10_000
    put({"train.parquet": out.getvalue()})
    with pytest.raises(InputError, match="None of the 20 images"):
        open_images("hf://datasets/user/photos", 20)


def test_images_that_unpack_to_too_much_are_refused(put, monkeypatch):
    put({"train.parquet": parquet(cells(0, 4))})
    monkeypatch.setattr(strangers, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="holds more than 0 MB once unpacked"):
        open_images("hf://datasets/user/photos", 4)
