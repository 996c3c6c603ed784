"""Images on the user's own disk: folders, class folders, parquet files, and faults in them."""

import hashlib
import json
import pickle
import struct
import tarfile

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ccs.data import decoding
from ccs.data.open import open_dataset, open_images
from ccs.errors import InputError
from tests.support.datasets_sample import as_parquet, cells, saved, zipped


def encoded(color, mode="RGB", kind="JPEG", **save_options):
    return saved(Image.new(mode, (40, 24), color), kind, **save_options)


def noisy(seed, size=64):
    """A JPEG with enough data in it that cutting it off leaves a hole."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return saved(Image.fromarray(pixels), "JPEG")


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


WHITE = (255, 255, 255)
MODES = {
    "gray": (encoded(90, mode="L"), (90, 90, 90)),
    "cmyk": (encoded((0, 255, 255, 0), mode="CMYK"), (255, 0, 0)),
    "transparent": (encoded((10, 200, 30, 0), mode="RGBA", kind="PNG"), WHITE),
    "opaque": (encoded((10, 200, 30, 255), mode="RGBA", kind="PNG"), (10, 200, 30)),
    "gray-alpha": (encoded((100, 0), mode="LA", kind="PNG"), WHITE),
    "bilevel": (encoded(1, mode="1", kind="PNG"), WHITE),
    "16-bit": (encoded(0x8000, mode="I;16", kind="PNG"), (128, 128, 128)),
    "palette": (encoded(0, mode="P", kind="PNG", transparency=0), WHITE),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_becomes_rgb(mode):
    data, color = MODES[mode]
    image = decoding.decode(data)
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image, int) - color).max() <= 3


@pytest.mark.parametrize(
    ("kind", "dtype", "white"),
    [
        *(("PNG", np.uint16, 65535), ("PGM", ">u2", 65535), ("PGM", ">u2", 1023)),
        *(("TIFF", np.int32, 65535), ("TIFF", np.int32, 255), ("TIFF", np.float32, 1)),
        *(("TIFF", np.float32, 255), ("TIFF", np.int32, 10**6), ("TIFF", np.float32, 1e4)),
        ("PFM", "<f4", 1),
    ],
)
def test_deep_gray_is_scaled_or_refused(kind, dtype, white):
    ramp = np.tile(np.linspace(0, white, 64), (64, 1)).astype(dtype)
    headers = {"PGM": f"P5\n64 64\n{white}\n", "PFM": "Pf\n64 64\n-1\n"}
    data = headers[kind].encode() + ramp.tobytes() if kind in headers else saved(Image.fromarray(ramp), kind)
    if white in (10**6, 1e4):
        assert "have no known white" in decoding.problem(data)
    else:
        assert decoding.problem(data) == ""
        assert abs(decoding.decode(data).getpixel((32, 5))[0] - 129) < 5


def test_deep_gray_of_other_kinds_is_refused():
    gray = Image.new("I;16", (8, 8))
    tiff, tag = saved(gray, "TIFF"), struct.Struct("<HHII")
    white_is_0 = tiff.replace(tag.pack(262, 3, 1, 1), tag.pack(262, 3, 1, 0))
    of_12_bits = tiff.replace(tag.pack(258, 3, 1, 16), tag.pack(258, 3, 1, 12))
    signed = saved(gray, "TIFF", tiffinfo={339: 2})
    for data in (saved(gray, transparency=0), white_is_0, of_12_bits, signed):
        assert decoding.problem(data).startswith("deep gray that is transparent")


def test_exif_rotation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    image = Image.new("RGB", (40, 24), "white")
    image.paste((0, 0, 0), (0, 0, 10, 24))
    upright = decoding.decode(saved(image, "PNG", exif=exif))
    assert upright.size == (24, 40)
    assert np.asarray(upright)[0].max() == 0  # the left edge is now the top


def test_nested_images_in_path_order_bad_ones_named(tmp_path):
    for name in ("b/2.png", "a.JPG", "b/1.jpeg"):
        write(tmp_path / "images" / name, noisy(len(name)))
    write(tmp_path / "images" / "b/cut.jpg", noisy(5)[:900])
    opened = pickle.loads(pickle.dumps(open_images(str(tmp_path / "images"))))
    assert [image.size for image in opened.images] == [(64, 64)] * 3
    (cut,) = opened.skipped
    assert cut.startswith("b/cut.jpg: image file is truncated")
    good = [noisy(len(name)) for name in ("a.JPG", "b/1.jpeg", "b/2.png")]
    digests = b"".join(hashlib.sha256(data).digest() for data in good)
    assert opened.fingerprint == hashlib.sha256(digests).hexdigest()


def test_a_sample_is_drawn_from_each_class(tmp_path):
    for number in range(40):
        name = f"{number // 4:02d}/{number}.png" if number < 36 else f"last/{number}.png"
        write(tmp_path / "many" / name, encoded((number * 5, 0, 0), kind="PNG"))
    drawn = [open_dataset(str(tmp_path / "many"), max_images=12, seed=seed) for seed in (0, 0, 1)]
    assert [np.bincount(data.labels, minlength=10).min() for data in drawn] == [1, 1, 1]
    assert drawn[0].fingerprint == drawn[1].fingerprint != drawn[2].fingerprint


def test_class_folders(tmp_path):
    for name in ("test/red_fox/1.png", "test/red_fox/2.png", "test/owl/1.png", "train/owl/9.png"):
        write(tmp_path / "animals" / name, noisy(len(name)))
    write(tmp_path / "animals" / "test/owl/0.png", b"")
    write(tmp_path / "animals" / "test/owl/LICENSE", b"x")  # too short for Pillow's tests of formats
    dataset = pickle.loads(pickle.dumps(open_dataset(str(tmp_path / "animals"), template="a {}.")))
    assert (dataset.classes, dataset.labels.tolist()) == (("owl", "red fox"), [0, 1, 1])
    assert (dataset.skipped, dataset.templates) == (("owl/0.png: empty file",), ("a {}.",))
    renamed = open_dataset(str(tmp_path / "animals"), classes=["bird", "fox"], max_images=2)
    assert (renamed.classes, renamed.labels.tolist()) == (("bird", "fox"), [1])
    with pytest.raises(InputError, match="has 2 classes, but 1 names were given"):
        open_dataset(str(tmp_path / "animals"), classes=["bird"])
    with pytest.raises(InputError, match=r"neither a labels\.csv nor images"):
        open_dataset(str(tmp_path / "animals/test/owl"))
    assert renamed.source == f"{tmp_path / 'animals'} (split test)"
    assert dataset.notes == (
        "not in the split test: 1 file train/owl/9.png",
        "not an image: 1 file owl/LICENSE",
    )
    assert open_images(f"{tmp_path / 'animals'}:train").source.endswith("animals (split train)")
    write(tmp_path / "animals" / "mammal/1.png", noisy(1))
    dataset = open_dataset(str(tmp_path / "animals"))
    assert dataset.classes == ("mammal", "test", "train")
    assert dataset.notes[-2:] == (
        "folders inside class folders are ignored, such as test/owl",
        "test, train are not read as splits, but together",
    )
    rows = "file,label,split\ntest/owl/1.png,a,train\nmammal/1.png,b,test"
    write(tmp_path / "animals/labels.csv", rows.encode())
    dataset = open_dataset(str(tmp_path / "animals"))
    assert "test, train are not read as splits, but together" in dataset.notes


def test_what_cannot_be_unpacked_is_named(tmp_path):
    files = {f"{name}.png": noisy(seed) for seed, name in enumerate(("a/0", "b/1", "b/2"))}
    for name in ("a/0.png", "b/1.png"):
        write(tmp_path / "set" / name, files[name])
    (tmp_path / "set/b/2.png").hardlink_to(tmp_path / "set/a/0.png")
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(tmp_path / "set", ".")
    assert open_dataset(str(tmp_path / "set.tar")).notes == ("a link in an archive: 1 file b/2.png",)
    assert open_dataset(str(tmp_path / "set")).notes == ("images that are in another class too: 1",)
    packed = bytearray(zipped({f"./{name}": data for name, data in files.items()}))
    place = packed.index(b"b/2.png") + 100
    packed[place : place + 9] = bytes(9)
    (damaged,) = open_dataset(str(write(tmp_path / "set.zip", bytes(packed)))).skipped
    assert damaged.startswith("b/2.png: it cannot be unpacked: ")


def test_where_labels_come_from_is_said(tmp_path):
    paths = ["photo/test/1.png", "photo/train/2.png", "sketch/test/3.png", "sketch/train/4.png"]
    for number, path in enumerate(paths):
        write(tmp_path / path, noisy(number))
    dataset = open_dataset(str(tmp_path))
    assert dataset.classes == ("photo", "sketch")
    assert dataset.notes == (
        "folders inside class folders are ignored, such as photo/test",
        "test, train are not read as splits, but together",
    )
    for label, path in zip("ab", paths, strict=False):
        write((tmp_path / path).with_suffix(".json"), json.dumps({"label": label}).encode())
    dataset = open_dataset(str(tmp_path))
    assert (dataset.classes, dataset.notes[0][:17]) == (("a", "b"), "no label: 2 files")
    assert dataset.notes[1] == "labels are those of files next to the images, such as photo/test/1.json"
    assert len(open_images(str(tmp_path)).images) == 4


def test_the_splits_of_a_webdataset_are_kept_apart(tmp_path):
    for number in range(6):
        folder = tmp_path / ("train", "test")[number // 4]
        write(folder / f"{number}.png", noisy(number))
        write(folder / f"{number}.cls", b"ab"[number % 2 :][:1])
    dataset = open_dataset(str(tmp_path))
    assert (len(dataset.images), dataset.classes) == (2, ("a", "b"))
    assert dataset.notes[0] == "not in the split test: 8 files, for example train/0.cls"
    assert len(open_dataset(str(tmp_path), split="train").images) == 4


@pytest.mark.parametrize("table", ["labels.csv", "metadata.jsonl"])
def test_class_numbers_are_floats_if_one_is_missing(tmp_path, table):
    rows = [{"file": f"{n}.png", "label": float(n)} for n in range(12)] + [{"file": "x.png", "label": np.nan}]
    for row in rows:
        write(tmp_path / row["file"], noisy(len(row["file"])))
    lines = [*map(json.dumps, rows)] if table.endswith("jsonl") else [pd.DataFrame(rows).to_csv(index=False)]
    write(tmp_path / table, "\n".join(lines).encode())
    data = open_dataset(str(tmp_path), classes=[f"n{n}" for n in range(12)])
    assert [data.classes[label] for label in data.labels] == [f"n{n}" for n in range(12)]
    assert data.skipped == ("x.png: no label",)
    if table == "labels.csv":
        assert (
            open_dataset(str(tmp_path))
            .notes[0]
            .startswith("the names of the classes are or begin with numbers: 0.0")
        )


@pytest.mark.parametrize(
    ("labels", "names", "result"),
    [
        ([1, 2, 1], ["w", "x", "y"], ["x", "y", "x"]),
        ([0.0, 2.0, -1.0], ["w", "x", "y"], ["w", "y"]),
        ([0.0, 2.0, float("nan")], ["w", "x", "y"], ["w", "y"]),
        ([1, 2, 3], ["x", "y", "z"], r"bare numbers \(1, 2, 3\), and 3 names"),
        ([1, 2, 1], None, r"bare numbers \(1, 2\), and 0 names"),
        ([0.5, 1.5, 0.5], ["x", "y"], r"bare numbers \(0.5, 1.5\), and 2 names"),
    ],
)
def test_bare_numbers_of_classes_are_numbers_from_0(tmp_path, labels, names, result):
    path = write(tmp_path / "a.parquet", as_parquet(cells(3), label=labels))
    if isinstance(result, str):
        with pytest.raises(InputError, match=result):
            open_dataset(str(path), classes=names)
    else:
        data = open_dataset(str(path), classes=names)
        assert [data.classes[label] for label in data.labels] == result
        assert data.notes[-1] == f"classes without images: 1 of 3, such as {min({*names} - {*result})}"


def test_a_row_group_above_the_bound_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", as_parquet(cells(4), label=["cat", "dog"] * 2))
    assert len(open_dataset(str(path)).images) == len(open_images(str(path)).images) == 4
    monkeypatch.setattr("ccs.data.parquet.GROUP_BYTES", 100)
    with pytest.raises(InputError, match=r"a row group has 0 MB.* at most 0 MB are read"):
        open_dataset(str(path))


def rows(*labels, **columns):
    return as_parquet(cells(len(labels)), label=labels, **columns)


def open_tables(folder, files, split=""):
    """A set of Parquet files, by name."""
    for name, data in files.items():
        write(folder / f"{name}.parquet", data)
    return open_dataset(str(folder), split=split)


def test_files_of_other_names_are_not_mixed(tmp_path):
    two, other = rows("a", "b"), rows("a", "b", "b")
    hard = open_tables(tmp_path / "hard", {"test-00000-of-00002": two, "test_hard-00000-of-00001": other})
    assert hard.labels.tolist() == [0, 1]
    assert hard.notes == (
        "not in the split test: 1 file test_hard-00000-of-00001.parquet",
        "only 1 of 2 shards are there, such as test-00000-of-00002.parquet",
    )
    assert open_tables(tmp_path / "held", {"train": two, "holdout": other}).labels.tolist() == [0, 1]
    names = open_tables(tmp_path / "names", {"cats": two, "dogs": other})
    assert (len(names.images), names.notes) == (
        5,
        ("files of several names are read as one set: cats, dogs",),
    )
    assert len(open_tables(tmp_path / "inside", {"train/cats": two, "train/dogs": other}).images) == 5
    with pytest.raises(InputError, match=r"has several tables \(en-test, fr-test\): open one of them"):
        open_tables(tmp_path / "two", {"en-test": two, "fr-test": other})
    with pytest.raises(InputError, match="differ in the column 'gender'"):
        open_tables(tmp_path / "more", {"part-1": two, "part-2": rows("a", "b", gender=["f", "m"])})
    masks = open_tables(tmp_path / "masks", {"a": rows("a", "b", mask=cells(2, 5))})
    assert masks.notes == ("the images of the column 'mask' are not used",)
