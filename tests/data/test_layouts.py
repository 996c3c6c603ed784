"""Directory layouts of published datasets and of tools' exports."""

import io
import zipfile

import pandas as pd
import pytest

from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from tests.support.datasets_sample import image_cells, numbered_png, parquet_bytes, read_numbers, tar_bytes


@pytest.fixture
def write_files(tmp_path):
    """Returns a function that writes files by path: texts, bytes, or images given by their numbers."""

    def write_files(files):
        for path, data in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            data = numbered_png(data) if isinstance(data, int) else data
            (tmp_path / path).write_bytes(data.encode() if isinstance(data, str) else data)
        return str(tmp_path)

    return write_files


def class_by_number(data):
    return dict(zip(read_numbers(data), [data.classes[label] for label in data.labels], strict=True))


def folder_per_class(*names):
    """One image in each class folder."""
    return {f"{name}/{number}.png": number for number, name in enumerate(names)}


IMAGES = {f"{n}.png": n for n in range(4)}


def test_new_class_names_cannot_swap_existing_names(write_files):
    folder = write_files(folder_per_class("cat", "dog", "owl"))
    for names in (["a cat", "a dog", "an owl"], ["puss", "Dog", "bird"], ["owl", "dog", "owl"]):
        assert class_by_number(open_dataset(folder, classes=names)) == dict(enumerate(names))
    for names, error in (
        (["dog", "cat", "owl"], "cat, dog, owl, in this order: 'dog' would name another"),
        (["kitten", "owl", "bird"], "'owl' would name another"),
    ):
        with pytest.raises(InputError, match=error):
            open_dataset(folder, classes=names)


@pytest.mark.parametrize("missing", ["nan", "NaN", "<NA>", ""])
def test_missing_value_is_neither_group_nor_class(write_files, missing):
    rows = [f"{n}.png,{['a', 'b', missing][n % 3]},{['x', 'y', missing][n % 3]}" for n in range(6)]
    images = {f"{n}.png": n for n in range(6)}
    folder = write_files(images | {"labels.csv": "\n".join(["file,race,label", *rows])})
    assert {*open_gallery(folder).groups["race"]} == {"a", "b"}
    data = open_dataset(folder)
    assert (data.classes, data.skipped) == (("x", "y"), ("2.png: no label", "5.png: no label"))


@pytest.mark.parametrize("cell", ["\"['cat']\"", '"[""cat"", ""pet""]"', '"{""choices"": [""cat""]}"'])
def test_list_written_as_text_is_rejected_as_label(write_files, cell):
    rows = [f"{n}.png,{cell if n else 'dog'},{cell},{n % 2}" for n in range(4)]
    folder = write_files(IMAGES | {"labels.csv": "\n".join(["file,label,boxes,y", *rows])})
    with pytest.raises(InputError, match=r"'label' of .* cannot be used: its cells are not single texts"):
        open_dataset(folder)
    assert open_gallery(folder, attribute="y").groups["y"].tolist() == ["0", "1"] * 2


def test_json_lines_accept_labels_in_lists_of_one(write_files):
    lines = [f'{{"file": "{n}.png", "label": ["{label}"], "box": [1, 2]}}' for n, label in enumerate("abab")]
    folder = write_files(IMAGES | {"metadata.jsonl": "\n".join(lines)})
    assert class_by_number(open_dataset(folder)) == dict(enumerate("abab"))


@pytest.mark.parametrize("folders", [("images", "masks"), ("JPEGImages", "SegmentationClass")])
def test_image_and_mask_folders_are_rejected_as_classes(write_files, folders):
    parent = write_files({f"{folder}/{n}.png": n for folder in folders for n in range(3)})
    for opener in (open_dataset, open_gallery):
        with pytest.raises(InputError, match="which are no classes: give one folder per class or group"):
            opener(parent)
    assert len(open_images(parent).images) == 6


def test_similar_columns_are_separate_and_unused_ones_listed(write_files):
    rows = [f"{n}.png,{'ab'[n % 2]},{'cd'[n // 2]},x{n}" for n in range(4)]
    table = "\n".join(["file,skin_tone,skin tone,hair", *rows])
    gallery = open_gallery(write_files(IMAGES | {"labels.csv": table}))
    groups = {name: "".join(values) for name, values in gallery.groups.items()}
    assert groups == {"skin_tone": "abab", "skin tone": "ccdd"}
    assert gallery.notes == ("columns that are not used: hair",)


def test_mixed_splits_in_a_table_are_reported(write_files):
    paths = ["train/0.png", "train/1.png", "test/2.png", "test/3.png"]
    table = pd.DataFrame({"file_name": paths, "label": [*"abab"], "split": ["one", "one", "two", "two"]})
    images = {path: n for n, path in enumerate(paths)}
    for columns, splits in ((["file_name", "label"], "test, train"), ([*table], "one, two")):
        data = open_dataset(write_files(images | {"metadata.csv": table[columns].to_csv(index=False)}))
        assert class_by_number(data) == dict(enumerate("abab"))
        assert data.notes == (f"{splits} are not read as splits, but together",)


@pytest.mark.parametrize("classes", [["n01440764", "n01443537"], ["001.Albatross", "002.Finch"], ["0", "1"]])
def test_class_codes_are_reported(write_files, classes):
    data = open_dataset(write_files(folder_per_class(*classes)))
    assert class_by_number(data) == dict(enumerate(classes))
    assert data.notes == (f"the names of the classes are or begin with numbers: {', '.join(classes)}",)


def test_tar_file_per_class_counts_hidden_files(write_files):
    folders = {n: {"0.png": numbered_png(n), "._0.png": b"x"} for n in range(2)}
    data = open_dataset(write_files({f"{'ab'[n]}.tar": tar_bytes(files) for n, files in folders.items()}))
    assert class_by_number(data) == {0: "a", 1: "b"}
    assert data.notes.count("hidden: 1 file ._0.png") == 2


def test_img2dataset_shards_are_read_without_tables(write_files):
    files = {}
    for number in (0, 1):
        shard = f"{number:05d}"
        members = {"jpg": numbered_png(number), "json": b'{"caption": "x"}', "txt": b"x"}
        archive = tar_bytes({f"{shard}0.{suffix}": data for suffix, data in members.items()})
        files |= {f"{shard}.tar": archive, f"{shard}_stats.json": "{}"}
        files[f"{shard}.parquet"] = parquet_bytes(image_cells(1), url=["http://x"])
    assert read_numbers(open_images(write_files(files))) == [0, 1]


def zip_in_encoding(encoding, paths):
    """A zip file whose names are in an encoding that it doesn't declare."""
    with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
        for number, path in enumerate(paths):
            archive.writestr(f"{number}".ljust(len(path.encode(encoding)), "~"), numbered_png(number))
    data = out.getvalue()
    for number, path in enumerate(paths):
        name = path.encode(encoding)
        data = data.replace(f"{number}".ljust(len(name), "~").encode(), name)
    return data


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "cp936"])
def test_zip_names_in_unknown_encoding_are_reported(write_files, encoding):
    folder = write_files({"set.zip": zip_in_encoding(encoding, ["猫猫/0.png", "犬狗/1.png"])})
    data = open_dataset(f"{folder}/set.zip")
    if encoding == "utf-8":
        assert (data.classes, data.notes) == (("犬狗", "猫猫"), ())
    else:
        assert data.notes[0].startswith("a name in an unknown encoding, read as cp437 (or give the unpacked")


def test_synology_thumbnails_are_hidden(write_files):
    files = {f"{name}/{path}": n for n, name in enumerate("ab") for path in ("0.png", "@eaDir/0.png/M.jpg")}
    data = open_dataset(write_files(files))
    assert class_by_number(data) == {0: "a", 1: "b"}
    assert data.notes == ("hidden: 2 files, for example a/@eaDir",)


def test_punctuation_only_class_names_are_preserved(write_files):
    data = open_dataset(write_files(folder_per_class("_", "-", "a", "_new")))
    assert class_by_number(data) == {0: "_", 1: "-", 2: "a", 3: "new"}
