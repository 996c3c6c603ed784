"""A user's galleries: a folder with labels, a folder per group, uploads, and files that are refused."""

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from ccs.data.open import open_gallery, open_upload
from ccs.errors import InputError
from tests.support.datasets_sample import CELL, as_parquet, png, saved, write_images, zipped


def people(folder):
    """Twelve pictures in two folders; their names."""
    shades = [Image.new("RGB", (20, 20), (20 * i, 0, 0)) for i in range(12)]
    return write_images(folder, shades, ["right", "left"])


def test_a_labeled_folder_is_a_gallery_and_labels_that_say_nothing_are_refused(tmp_path):
    people(tmp_path)
    assert open_gallery(str(tmp_path)).groups["group"].tolist() == ["left"] * 6 + ["right"] * 6
    for labels, words in (
        ("file,gender\nright/0.png,a\nleft/1.png,b\nright/0.png,b", "names right/0.png twice"),
        ("file,gender\nright/0.png,a\nleft/1.png,a", "no attribute of 2 to 50 groups"),
    ):
        (tmp_path / "labels.csv").write_text(labels)
        with pytest.raises(InputError, match=words):
            open_gallery(str(tmp_path))
    (tmp_path / "labels.csv").write_text("file,gender\nright/0.png,a\nleft/1.png,b\nleft/3.png, \nx/5.png,a")
    gallery = open_gallery(str(tmp_path))
    assert gallery.notes == ("no label: 9 files, for example left/11.png",)
    assert gallery.skipped == ("left/3.png: no gender", "x/5.png: no such file")
    with pytest.raises(InputError, match="give the folder with the images"):
        open_gallery(str(tmp_path / "labels.csv"))
    (tmp_path / "0.png").write_bytes((tmp_path / "right/0.png").read_bytes())
    (tmp_path / "labels.csv").write_text("file,gender\nelsewhere/0.png,a\nleft/1.png,b")
    with pytest.raises(InputError, match=r"fits two files, .*0\.png and .*0\.png; write more of its path"):
        open_gallery(str(tmp_path))


def test_ages_are_grouped_by_tens_unless_they_number_the_rows():
    known, tens = [20, *range(20, 78)], ["20-29", "30-39"]
    fractions = [-1, *(age + 0.5 for age in known)]  # -1: not known
    for ages, groups in ((range(20, 80), None), ([*known, 78], tens), (fractions, tens)):
        rows = [f"{i}.png,{'ab'[i % 2]},{age}" for i, age in enumerate(ages)]
        files = {f"{i}.png": png(i % 50) for i in range(60)}
        table = "\n".join(["file,half,years", *rows]).encode()
        gallery = open_upload(zipped(files | {"labels.csv": table}), "x")
        assert sorted({*gallery.groups.get("years", ())})[:2] == (groups or [])
        assert gallery.skipped == ("0.png: no years",) * (ages[0] < 0)


def test_groups_are_those_that_are_meant(tmp_path):
    """A column that names each row is no attribute."""
    ages = {f"{ten}-{ten + 9}" for ten in range(20, 60, 10)}
    for name, column, groups in (
        ("hair", ["long", "long\u200b", "short"] * 14, {"long", "short"}),  # with an invisible character
        ("glasses", [0, 1, -1] * 14, {"0", "1"}),  # -1: not known
        ("smiling", [-1, 1] * 21, {"-1", "1"}),
        ("group", ["a", "b"] * 21, {"a", "b"}),  # not the column `label`
        ("years", ["80+", "unknown", *map(str, [20, *range(20, 59)])], {"80+", "unknown", *ages}),
    ):
        columns = {name: column, "label": ["x"] * 20 + ["y"] * 22, "person": [f"p{i}" for i in range(42)]}
        (tmp_path / "a.parquet").write_bytes(as_parquet([png(i) for i in range(42)], **columns))
        gallery = open_gallery(str(tmp_path / "a.parquet"))
        assert ({*gallery.groups[name]}, len(gallery.groups)) == (groups, 2)
        assert gallery.notes[-1] == "the column 'person' is no attribute: it has 42 groups"
    assert "the numbers of 'years' are grouped by tens" in gallery.notes


def test_a_zip_file_beyond_the_limits_is_refused():
    image, blank = saved(Image.new("RGB", (20, 20))), saved(Image.new("L", (8000, 5000)), "BMP")
    two = {"a/1.png": image, "b/2.png": image}
    with pytest.raises(InputError, match="cannot be read"):
        open_upload(b"PK no zip", "own:1")
    with pytest.raises(InputError, match=r"neither a labels\.csv nor images"):
        open_upload(zipped({"1.png": image}), "own:1")
    with pytest.raises(InputError, match="more than 64 MB once unpacked"):  # few bytes if packed
        open_upload(zipped({"a/1.png": blank, "a/2.png": blank}), "own:1")
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    assert len(open_upload(zipped({**two, "a/3.png": drawing}), "own:1").skipped) == 1
    large = saved(Image.new("1", (8000, 5001)))
    (left_out,) = open_upload(zipped({**two, "a/3.png": large}), "own:1").skipped
    assert "more than 40 megapixels" in left_out
    with pytest.raises(InputError, match="holds 2001 images"):
        open_upload(zipped({f"a/{i}.png": b"x" for i in range(2001)}), "own:1")


def test_a_parquet_file_is_a_gallery_and_follows_no_path(tmp_path):
    files = [(tmp_path / name).read_bytes() for name in people(tmp_path)]
    cells = [{"bytes": data, "path": None} for data in files]
    cells.append({"bytes": None, "path": str(tmp_path / "right" / "0.png")})
    columns = {"site": ["a"] * 6 + ["b"] * 7, "gender": [[0], [1]] * 6 + [[0]], "age": ["young"] * 13}
    feature = b'{"feature": {"names": ["woman", "man"]}, "_type": "List"}'
    metadata = {"huggingface": b'{"info": {"features": {"gender": %b}}}' % feature}
    gallery = open_upload(as_parquet(pa.array(cells, CELL), metadata, **columns), "own:1")
    groups = {name: cells.tolist() for name, cells in gallery.groups.items()}
    assert groups == {"gender": ["woman", "man"] * 6}  # as of the same file opened by its path
    (left_out,) = gallery.skipped
    assert left_out == "row 12: no image in this row"
    assert [np.asarray(image)[0, 0, 0] for image in gallery.images] == [20 * i for i in range(12)]
    plain = open_upload(as_parquet(pa.array(files), gender=["a", "b"] * 6), "own:2")
    assert plain.fingerprint != gallery.fingerprint  # the names of the groups are part of it


def test_parquet_files_of_a_set_have_class_names_for_the_same_columns(tmp_path):
    names = {"huggingface": '{"info": {"features": {"gender": {"names": ["f", "m"]}}}}'}
    for number, metadata in enumerate((names, None)):
        data = as_parquet([png(i) for i in range(4)], metadata, gender=[0, 1] * 2)
        (tmp_path / f"{number}.parquet").write_bytes(data)
    with pytest.raises(InputError, match="differ in the column 'gender'"):
        open_gallery(str(tmp_path))


def test_a_parquet_file_beyond_the_limits_is_refused():
    noise = saved(Image.effect_noise((300, 300), 90), "BMP")  # a hundred kilobytes
    for cells, column, words in (
        ([b"x"] * 2001, "gender", "2001 images"),
        ([noise] * 800, "gender", "more than 64 MB"),  # held once by the file, and in every row
        ([1, 2], "gender", "no column of images"),
        ([b"x"] * 2, "hair", "None of the 2 images"),
    ):
        file = as_parquet(pa.array(cells), **{column: ["ab"[i % 2] for i in range(len(cells))]})
        with pytest.raises(InputError, match=words):
            open_upload(file, "own:1")
