"""Images on a local disk: decoding, class folders, archives, Parquet files, and damaged files."""

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
from tests.support.datasets_sample import encode_image, image_cells, parquet_bytes, zip_bytes


def solid_image(color, mode="RGB", format="JPEG", **save_options):
    return encode_image(Image.new(mode, (40, 24), color), format, **save_options)


def noise_jpeg(seed):
    """A JPEG large enough that a truncated copy loses pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return encode_image(Image.fromarray(pixels), "JPEG")


def write_file(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


WHITE = (255, 255, 255)
MODES = {
    "gray": (solid_image(90, mode="L"), (90, 90, 90)),
    "cmyk": (solid_image((0, 255, 255, 0), mode="CMYK"), (255, 0, 0)),
    "transparent": (solid_image((10, 200, 30, 0), mode="RGBA", format="PNG"), WHITE),
    "opaque": (solid_image((10, 200, 30, 255), mode="RGBA", format="PNG"), (10, 200, 30)),
    "gray-alpha": (solid_image((100, 0), mode="LA", format="PNG"), WHITE),
    "bilevel": (solid_image(1, mode="1", format="PNG"), WHITE),
    "16-bit": (solid_image(0x8000, mode="I;16", format="PNG"), (128, 128, 128)),
    "palette": (solid_image(0, mode="P", format="PNG", transparency=0), WHITE),
}


@pytest.mark.parametrize("mode", MODES)
def test_decode_converts_every_mode_to_rgb(mode):
    data, color = MODES[mode]
    image = decoding.decode(data)
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image, int) - color).max() <= 3


@pytest.mark.parametrize(
    ("format", "dtype", "white"),
    [
        *(("PNG", np.uint16, 65535), ("PGM", ">u2", 65535), ("PGM", ">u2", 1023)),
        *(("TIFF", np.int32, 65535), ("TIFF", np.int32, 255), ("TIFF", np.float32, 1)),
        *(("TIFF", np.float32, 255), ("TIFF", np.int32, 10**6), ("TIFF", np.float32, 1e4)),
        ("PFM", "<f4", 1),
    ],
)
def test_deep_gray_is_scaled_if_its_white_level_is_known(format, dtype, white):
    ramp = np.tile(np.linspace(0, white, 64), (64, 1)).astype(dtype)
    headers = {"PGM": f"P5\n64 64\n{white}\n", "PFM": "Pf\n64 64\n-1\n"}
    header = headers.get(format)
    data = header.encode() + ramp.tobytes() if header else encode_image(Image.fromarray(ramp), format)
    if white in (10**6, 1e4):
        assert "have no known white" in decoding.problem(data)
    else:
        assert decoding.problem(data) == ""
        assert abs(decoding.decode(data).getpixel((32, 5))[0] - 129) < 5


def test_unsupported_deep_gray_is_rejected():
    gray = Image.new("I;16", (8, 8))
    tiff, tag = encode_image(gray, "TIFF"), struct.Struct("<HHII")
    inverted = tiff.replace(tag.pack(262, 3, 1, 1), tag.pack(262, 3, 1, 0))
    twelve_bits = tiff.replace(tag.pack(258, 3, 1, 16), tag.pack(258, 3, 1, 12))
    signed = encode_image(gray, "TIFF", tiffinfo={339: 2})
    for data in (encode_image(gray, transparency=0), inverted, twelve_bits, signed):
        assert decoding.problem(data).startswith("deep gray that is transparent")


def test_decode_applies_exif_rotation():
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn clockwise
    image = Image.new("RGB", (40, 24), "white")
    image.paste((0, 0, 0), (0, 0, 10, 24))
    rotated = decoding.decode(encode_image(image, "PNG", exif=exif))
    assert rotated.size == (24, 40)
    assert np.asarray(rotated)[0].max() == 0  # the left edge is now the top


def test_images_are_in_path_order_without_damaged_files(tmp_path):
    for name in ("b/2.png", "a.JPG", "b/1.jpeg"):
        write_file(tmp_path / "images" / name, noise_jpeg(len(name)))
    write_file(tmp_path / "images" / "b/cut.jpg", noise_jpeg(5)[:900])
    images = pickle.loads(pickle.dumps(open_images(str(tmp_path / "images"))))
    assert [image.size for image in images.images] == [(64, 64)] * 3
    (skipped_file,) = images.skipped
    assert skipped_file.startswith("b/cut.jpg: image file is truncated")
    files_in_order = [noise_jpeg(len(name)) for name in ("a.JPG", "b/1.jpeg", "b/2.png")]
    digests = b"".join(hashlib.sha256(data).digest() for data in files_in_order)
    assert images.fingerprint == hashlib.sha256(digests).hexdigest()


def test_sample_has_images_of_every_class(tmp_path):
    for number in range(40):
        name = f"{number // 4:02d}/{number}.png" if number < 36 else f"last/{number}.png"
        write_file(tmp_path / "many" / name, solid_image((number * 5, 0, 0), format="PNG"))
    samples = [open_dataset(str(tmp_path / "many"), max_images=12, seed=seed) for seed in (0, 0, 1)]
    assert [np.bincount(data.labels, minlength=10).min() for data in samples] == [1, 1, 1]
    assert samples[0].fingerprint == samples[1].fingerprint != samples[2].fingerprint


def test_class_folders_are_read_from_the_test_split(tmp_path):
    folder = tmp_path / "animals"
    for name in ("test/red_fox/1.png", "test/red_fox/2.png", "test/owl/1.png", "train/owl/9.png"):
        write_file(folder / name, noise_jpeg(len(name)))
    write_file(folder / "test/owl/0.png", b"")
    write_file(folder / "test/owl/LICENSE", b"x")  # shorter than the headers that Pillow reads
    data = pickle.loads(pickle.dumps(open_dataset(str(folder), template="a {}.")))
    assert (data.classes, data.labels.tolist()) == (("owl", "red fox"), [0, 1, 1])
    assert (data.skipped, data.templates) == (("owl/0.png: empty file",), ("a {}.",))
    assert data.notes == ("not in the split test: 1 file train/owl/9.png", "not an image: 1 file owl/LICENSE")
    renamed = open_dataset(str(folder), classes=["bird", "fox"], max_images=2)
    assert (renamed.classes, renamed.labels.tolist()) == (("bird", "fox"), [1])
    assert renamed.source == f"{folder} (split test)"
    assert open_images(f"{folder}:train").source.endswith("animals (split train)")
    with pytest.raises(InputError, match="has 2 classes, but 1 names were given"):
        open_dataset(str(folder), classes=["bird"])
    with pytest.raises(InputError, match=r"neither a labels\.csv nor images"):
        open_dataset(str(folder / "test/owl"))
    write_file(folder / "mammal/1.png", noise_jpeg(1))
    data = open_dataset(str(folder))
    assert data.classes == ("mammal", "test", "train")
    assert data.notes[-1] == "test, train are not read as splits, but together"


def test_links_duplicates_and_damaged_files_are_reported(tmp_path):
    files = {f"{name}.png": noise_jpeg(seed) for seed, name in enumerate(("a/0", "b/1", "b/2"))}
    for name in ("a/0.png", "b/1.png"):
        write_file(tmp_path / "set" / name, files[name])
    (tmp_path / "set/b/2.png").hardlink_to(tmp_path / "set/a/0.png")
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(tmp_path / "set", ".")
    assert open_dataset(str(tmp_path / "set.tar")).notes == ("a link in an archive: 1 file b/2.png",)
    assert open_dataset(str(tmp_path / "set")).notes == ("images that are in another class too: 1",)
    archive = bytearray(zip_bytes({f"./{name}": data for name, data in files.items()}))
    position = archive.index(b"b/2.png") + 100
    archive[position : position + 9] = bytes(9)
    (skipped_file,) = open_dataset(str(write_file(tmp_path / "set.zip", bytes(archive)))).skipped
    assert skipped_file.startswith("b/2.png: it cannot be unpacked: ")


def test_notes_name_the_source_of_labels(tmp_path):
    paths = ["photo/test/1.png", "photo/train/2.png", "sketch/test/3.png", "sketch/train/4.png"]
    for number, path in enumerate(paths):
        write_file(tmp_path / path, noise_jpeg(number))
    dataset = open_dataset(str(tmp_path))
    assert dataset.classes == ("photo", "sketch")
    assert dataset.notes == (
        "folders inside class folders are ignored, such as photo/test",
        "test, train are not read as splits, but together",
    )
    for label, path in zip("ab", paths, strict=False):
        write_file((tmp_path / path).with_suffix(".json"), json.dumps({"label": label}).encode())
    dataset = open_dataset(str(tmp_path))
    assert (dataset.classes, dataset.notes[0][:17]) == (("a", "b"), "no label: 2 files")
    assert dataset.notes[1] == "labels are those of files next to the images, such as photo/test/1.json"
    assert len(open_images(str(tmp_path)).images) == 4


def test_webdataset_splits_are_read_separately(tmp_path):
    for number in range(6):
        folder = tmp_path / ("train", "test")[number // 4]
        write_file(folder / f"{number}.png", noise_jpeg(number))
        write_file(folder / f"{number}.cls", b"ab"[number % 2 :][:1])
    dataset = open_dataset(str(tmp_path))
    assert (len(dataset.images), dataset.classes) == (2, ("a", "b"))
    assert dataset.notes[0] == "not in the split test: 8 files, for example train/0.cls"
    assert len(open_dataset(str(tmp_path), split="train").images) == 4


@pytest.mark.parametrize("table", ["labels.csv", "metadata.jsonl"])
def test_class_numbers_may_be_floats_next_to_a_missing_label(tmp_path, table):
    rows = [{"file": f"{n}.png", "label": float(n)} for n in range(12)] + [{"file": "x.png", "label": np.nan}]
    for row in rows:
        write_file(tmp_path / row["file"], noise_jpeg(len(row["file"])))
    lines = [*map(json.dumps, rows)] if table.endswith("jsonl") else [pd.DataFrame(rows).to_csv(index=False)]
    write_file(tmp_path / table, "\n".join(lines).encode())
    data = open_dataset(str(tmp_path), classes=[f"n{n}" for n in range(12)])
    assert [data.classes[label] for label in data.labels] == [f"n{n}" for n in range(12)]
    assert data.skipped == ("x.png: no label",)
    if table == "labels.csv":
        note = "the names of the classes are or begin with numbers: 0.0"
        assert open_dataset(str(tmp_path)).notes[0].startswith(note)


def labeled_parquet(*labels, **columns):
    return parquet_bytes(image_cells(len(labels)), label=labels, **columns)


def test_numeric_labels_are_zero_based_class_indices(tmp_path):
    for labels, classes, unused in (
        ([1, 2, 1], "xyx", "w"),
        ([0.0, 2.0, -1.0], "wy", "x"),
        ([0.0, 2.0, float("nan")], "wy", "x"),
    ):
        path = write_file(tmp_path / "a.parquet", labeled_parquet(*labels))
        data = open_dataset(str(path), classes=["w", "x", "y"])
        assert "".join(data.classes[label] for label in data.labels) == classes
        assert data.notes[-1] == f"classes without images: 1 of 3, such as {unused}"
    for labels, names, error in (
        ([1, 2, 3], ["x", "y", "z"], r"bare numbers \(1, 2, 3\), and 3 names"),
        ([1, 2, 1], None, r"bare numbers \(1, 2\), and 0 names"),
        ([0.5, 1.5, 0.5], ["x", "y"], r"bare numbers \(0.5, 1.5\), and 2 names"),
    ):
        path = write_file(tmp_path / "a.parquet", labeled_parquet(*labels))
        with pytest.raises(InputError, match=error):
            open_dataset(str(path), classes=names)


def test_large_row_group_is_rejected(tmp_path, monkeypatch):
    path = write_file(tmp_path / "a.parquet", labeled_parquet(*"abab"))
    monkeypatch.setattr("ccs.data.parquet.GROUP_BYTES", 100)
    with pytest.raises(InputError, match=r"a row group has 0 MB.* at most 0 MB are read"):
        open_dataset(str(path))


def test_parquet_files_of_different_tables_are_not_mixed(tmp_path):
    def open_tables(folder, **tables):
        for name, data in tables.items():
            write_file(tmp_path / folder / f"{name}.parquet", data)
        return open_dataset(str(tmp_path / folder))

    two, three = labeled_parquet("a", "b"), labeled_parquet("a", "b", "b")
    hard = open_tables("hard", **{"test-00000-of-00002": two, "test_hard-00000-of-00001": three})
    assert hard.labels.tolist() == [0, 1]
    assert hard.notes == (
        "not in the split test: 1 file test_hard-00000-of-00001.parquet",
        "only 1 of 2 shards are there, such as test-00000-of-00002.parquet",
    )
    assert open_tables("holdout", train=two, holdout=three).labels.tolist() == [0, 1]
    named = open_tables("names", cats=two, dogs=three)
    assert len(named.images) == 5
    assert named.notes == ("files of several names are read as one set: cats, dogs",)
    assert len(open_tables("inside", **{"train/cats": two, "train/dogs": three}).images) == 5
    class_names = {"huggingface": '{"info": {"features": {"label": {"names": ["f", "m"]}}}}'}
    numbers, named_numbers = (labeled_parquet(0, 1, metadata=metadata) for metadata in (None, class_names))
    for folder, tables, error in (
        ("languages", {"en-test": two, "fr-test": three}, r"several tables \(en-test, fr-test\): open one"),
        ("configs", {"0.2/test": two, "1.2/test": three}, r"tables \(0\.2/test, 1\.2/test\): open one"),
        ("columns", {"a": two, "b": labeled_parquet("a", "b", sex=["f", "m"])}, "differ in the column 'sex'"),
        ("class names", {"a": numbers, "b": named_numbers}, "differ in the column 'label'"),
    ):
        with pytest.raises(InputError, match=error):
            open_tables(folder, **tables)
    masks = open_tables("masks", a=labeled_parquet("a", "b", mask=image_cells(2, 5)))
    assert masks.notes == ("the images of the column 'mask' are not used",)
