"""Layouts in which published datasets and tools' exports lie on a disk: right, refused, or with a note."""

import io
import zipfile

import pytest

from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from tests.support.datasets_sample import as_parquet, cells, number_of, png, tar_of


@pytest.fixture
def write(tmp_path):
    """Writes files into a folder: an image for each number, and texts or bytes."""

    def make(files):
        for path, data in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            data = png(data) if isinstance(data, int) else data
            (tmp_path / path).write_bytes(data.encode() if isinstance(data, str) else data)
        return str(tmp_path)

    return make


def labels_of(data):
    """Class of each image, by the image's number."""
    return {number_of(image): data.classes[n] for image, n in zip(data.images, data.labels, strict=True)}


def table(header, *rows):
    return "\n".join([header, *rows])


IMAGES = {f"{n}.png": n for n in range(4)}
IN_TURN = {n: ("cat", "dog")[n % 2] for n in range(4)}


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["a cat", "a dog", "an owl"], ""),
        (["dog", "cat", "owl"], "cat, dog, owl, in this order: 'dog' would name another"),
        (["kitten", "owl", "bird"], "'owl' would name another"),
        (["puss", "Dog", "bird"], ""),
        (["owl", "dog", "owl"], ""),
    ],
)
def test_no_class_gets_the_name_of_another(write, names, refused):
    place = write({"cat/0.png": 0, "dog/1.png": 1, "owl/2.png": 2})
    if refused:
        with pytest.raises(InputError, match=refused):
            open_dataset(place, classes=names)
    else:
        assert labels_of(open_dataset(place, classes=names)) == dict(enumerate(names))


@pytest.mark.parametrize("missing", ["nan", "NaN", "<NA>", ""])
def test_texts_of_a_missing_value_are_no_group_and_no_class(write, missing):
    rows = [f"{n}.png,{['a', 'b', missing][n % 3]},{['x', 'y', missing][n % 3]}" for n in range(6)]
    place = write({f"{n}.png": n for n in range(6)} | {"labels.csv": table("file,race,label", *rows)})
    assert {*open_gallery(place).groups["race"]} == {"a", "b"}
    data = open_dataset(place)
    assert (data.classes, data.skipped) == (("x", "y"), ("2.png: no label", "5.png: no label"))


@pytest.mark.parametrize("cell", ["\"['cat']\"", '"[""cat"", ""pet""]"', '"{""choices"": [""cat""]}"'])
def test_a_list_that_is_written_as_text_is_no_label(write, cell):
    rows = [f"{n}.png,{cell if n else 'dog'},{cell},{n % 2}" for n in range(4)]
    place = write(IMAGES | {"labels.csv": table("file,label,boxes,y", *rows)})
    with pytest.raises(InputError, match=r"'label' of .* cannot be used: its cells are not single texts"):
        open_dataset(place)
    gallery = open_gallery(place, attribute="y")
    assert gallery.groups["y"].tolist() == ["0", "1"] * 2
    write({"labels.csv": table("file,label,boxes", *(f"{n}.png,{'ab'[n % 2]},{cell}" for n in range(4)))})
    assert open_dataset(place).classes == ("a", "b")


def test_lists_of_one_value_in_json_lines_are_that_value(write):
    lines = [f'{{"file_name": "{n}.png", "label": ["{IN_TURN[n]}"], "box": [1, 2]}}' for n in range(4)]
    assert labels_of(open_dataset(write(IMAGES | {"metadata.jsonl": "\n".join(lines)}))) == IN_TURN


@pytest.mark.parametrize("folders", [("images", "masks"), ("JPEGImages", "SegmentationClass")])
def test_images_next_to_masks_are_no_classes(write, folders):
    place = write({f"{folder}/{n}.png": n for folder in folders for n in range(3)})
    for opener in (open_dataset, open_gallery):
        with pytest.raises(InputError, match="which are no classes: give one folder per class or group"):
            opener(place)
    assert len(open_images(place).images) == 6


def test_columns_of_similar_names_are_both_kept_and_others_are_listed(write):
    rows = [f"{n}.png,{'ab'[n % 2]},{'cd'[n // 2]},x{n}" for n in range(4)]
    place = write(IMAGES | {"labels.csv": table("file,skin_tone,skin tone,hair", *rows)})
    gallery = open_gallery(place)
    groups = {name: "".join(cells) for name, cells in gallery.groups.items()}
    assert groups == {"skin_tone": "abab", "skin tone": "ccdd"}
    assert gallery.notes == ("columns that are not used: hair",)
    ages = [f"{n}.png,{'ab'[n % 2]},{20 + n}" for n in range(20)]
    write({f"{n}.png": n for n in range(20)} | {"labels.csv": table("file,Gender,Age", *ages)})
    assert {*open_gallery(place).groups["Age"]} == {"20-29", "30-39"}


def test_splits_that_a_table_mixes_are_named(write):
    paths = [f"{split}/{n}.png" for split in ("train", "test") for n in range(2)]
    rows = [f"{path},{'ab'[n % 2]}" for n, path in enumerate(paths)]
    place = write(
        {path: n for n, path in enumerate(paths)} | {"metadata.csv": table("file_name,label", *rows)}
    )
    data = open_dataset(place)
    assert labels_of(data) == dict(enumerate("abab"))
    assert data.notes == ("test, train are not read as splits, but together",)


@pytest.mark.parametrize("classes", [["n01440764", "n01443537"], ["001.Albatross", "002.Finch"], ["0", "1"]])
def test_codes_in_place_of_names_are_told(write, classes):
    data = open_dataset(write({f"{name}/{n}.png": n for n, name in enumerate(classes)}))
    assert labels_of(data) == dict(enumerate(classes))
    listed = ", ".join(classes)
    assert data.notes == (f"the names of the classes are or begin with numbers: {listed}",)


def test_a_tar_file_per_class_is_its_class_and_its_hidden_files_are_counted(write):
    archives = {f"{name}.tar": tar_of({"0.png": png(n), "._0.png": b"x"}) for n, name in enumerate("ab")}
    data = open_dataset(write(archives))
    assert labels_of(data) == {0: "a", 1: "b"}
    assert data.notes.count("hidden: 1 file ._0.png") == 2


def test_the_shards_of_img2dataset_are_read_and_not_the_tables_next_to_them(write):
    files = {}
    for shard in ("00000", "00001"):
        number = int(shard)
        members = {f"{shard}0.jpg": png(number), f"{shard}0.json": b'{"caption": "x"}', f"{shard}0.txt": b"x"}
        files |= {f"{shard}.tar": tar_of(members), f"{shard}_stats.json": "{}"}
        files[f"{shard}.parquet"] = as_parquet(cells(1), url=["http://x"])
    assert [number_of(image) for image in open_images(write(files)).images] == [0, 1]


def zipped_in(encoding, files):
    """A zip whose names are in an encoding that it doesn't declare."""
    with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
        for number, path in enumerate(files):
            archive.writestr(f"{number}".ljust(len(path.encode(encoding)), "~"), png(number))
    data = out.getvalue()
    for number, path in enumerate(files):
        name = path.encode(encoding)
        data = data.replace(f"{number}".ljust(len(name), "~").encode(), name)
    return data


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "cp936"])
def test_names_in_an_unknown_encoding_are_told(write, tmp_path, encoding):
    write({"set.zip": zipped_in(encoding, ["猫猫/0.png", "犬狗/1.png"])})
    data = open_dataset(str(tmp_path / "set.zip"))
    if encoding == "utf-8":
        assert (data.classes, data.notes) == (("犬狗", "猫猫"), ())
    else:
        assert data.notes[0].startswith("a name in an unknown encoding, read as cp437 (or give the unpacked")


def test_thumbnails_of_a_disk_station_are_hidden(write):
    folders = {f"{name}/{path}": n for n, name in enumerate("ab") for path in ("0.png", "@eaDir/0.png/M.jpg")}
    data = open_dataset(write(folders))
    assert labels_of(data) == {0: "a", 1: "b"}
    assert data.notes == ("hidden: 2 files, for example a/@eaDir",)


def test_blank_names_of_classes_stay(write):
    data = open_dataset(write({"_/0.png": 0, "-/1.png": 1, "a/2.png": 2, "_new/3.png": 3}))
    assert labels_of(data) == {0: "_", 1: "-", 2: "a", 3: "new"}
