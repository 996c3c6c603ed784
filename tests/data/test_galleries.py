"""A user's galleries: labeled folders, a folder per group, uploads, Parquet files, and their errors."""

import pyarrow as pa
import pytest
from PIL import Image

from ccs.data.open import open_gallery, open_upload
from ccs.errors import InputError
from tests.support.datasets_sample import encode_image, numbered_png, parquet_bytes, read_numbers, zip_bytes


def test_gallery_opens_from_folders_or_labels(tmp_path):
    for number in range(12):
        path = tmp_path / ("right", "left")[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(numbered_png(number))
    assert open_gallery(str(tmp_path)).groups["group"].tolist() == ["left"] * 6 + ["right"] * 6
    (tmp_path / "labels.csv").write_text("file,gender\nright/0.png,a\nleft/1.png,b\nleft/3.png, \nx/5.png,a")
    gallery = open_gallery(str(tmp_path))
    assert gallery.notes == ("no label: 9 files, for example left/11.png",)
    assert gallery.skipped == ("left/3.png: no gender", "x/5.png: no such file")
    with pytest.raises(InputError, match="give the folder with the images"):
        open_gallery(str(tmp_path / "labels.csv"))
    (tmp_path / "0.png").write_bytes((tmp_path / "right/0.png").read_bytes())
    for rows, error in (
        ("right/0.png,a\nleft/1.png,b\nright/0.png,b", "names right/0.png twice"),
        ("right/0.png,a\nleft/1.png,a", "no attribute of 2 to 50 groups"),
        ("elsewhere/0.png,a\nleft/1.png,b", r"fits two files, .*0\.png and .*0\.png; write more of its path"),
    ):
        (tmp_path / "labels.csv").write_text(f"file,gender\n{rows}")
        with pytest.raises(InputError, match=error):
            open_gallery(str(tmp_path))


def test_ages_are_grouped_by_decade_unless_they_number_the_rows():
    ages, decades = [20, *range(20, 78)], ["20-29", "30-39"]
    fractions = [-1, *(age + 0.5 for age in ages)]  # -1: unknown
    for column, values, groups in (
        ("years", range(20, 80), []),
        ("Age", range(20, 80), decades),
        ("years", [*ages, 78], decades),
        ("years", fractions, decades),
    ):
        rows = [f"{i}.png,{'ab'[i % 2]},{value}" for i, value in enumerate(values)]
        files = {f"{i}.png": numbered_png(i % 50) for i in range(60)}
        table = "\n".join([f"file,half,{column}", *rows]).encode()
        gallery = open_upload(zip_bytes(files | {"labels.csv": table}), "x")
        assert sorted({*gallery.groups.get(column, ())})[:2] == groups
        assert gallery.skipped == ("0.png: no years",) * (values[0] < 0)


def test_groups_ignore_unknown_values_and_row_names(tmp_path):
    decades = {f"{decade}-{decade + 9}" for decade in range(20, 60, 10)}
    for name, column, groups in (
        ("hair", ["long", "long\u200b", "short"] * 14, {"long", "short"}),
        ("glasses", [0, 1, -1] * 14, {"0", "1"}),  # -1: unknown
        ("smiling", [-1, 1] * 21, {"-1", "1"}),
        ("group", ["a", "b"] * 21, {"a", "b"}),
        ("years", ["80+", "unknown", *map(str, [20, *range(20, 59)])], {"80+", "unknown", *decades}),
    ):
        columns = {name: column, "label": ["x"] * 20 + ["y"] * 22, "person": [f"p{i}" for i in range(42)]}
        (tmp_path / "a.parquet").write_bytes(parquet_bytes([numbered_png(i) for i in range(42)], **columns))
        gallery = open_gallery(str(tmp_path / "a.parquet"))
        assert ({*gallery.groups[name]}, len(gallery.groups)) == (groups, 2)
        assert gallery.notes[-1] == "the column 'person' is no attribute: it has 42 groups"
    assert "the numbers of 'years' are grouped by tens" in gallery.notes


def test_upload_enforces_limits():
    def parquet(cells, column="gender"):
        return parquet_bytes(pa.array(cells), **{column: ["ab"[i % 2] for i in range(len(cells))]})

    image, blank = encode_image(Image.new("RGB", (20, 20))), encode_image(Image.new("L", (8000, 5000)), "BMP")
    noise = encode_image(Image.effect_noise((300, 300), 90), "BMP")  # 90 kB
    two_images = {"a/1.png": image, "b/2.png": image}
    for upload, error in (
        (b"PK no zip", "cannot be read"),
        (zip_bytes({"1.png": image}), r"neither a labels\.csv nor images"),
        (zip_bytes({"a/1.png": blank, "a/2.png": blank}), "more than 64 MB once unpacked"),
        (zip_bytes({f"a/{i}.png": b"x" for i in range(2001)}), "holds 2001 images"),
        (parquet([b"x"] * 2001), "2001 images"),
        (parquet([noise] * 800), "more than 64 MB"),  # stored once in the file, and unpacked in every row
        (parquet([1, 2]), "no column of images"),
        (parquet([b"x"] * 2, "hair"), "None of the 2 images"),
    ):
        with pytest.raises(InputError, match=error):
            open_upload(upload, "upload")
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    assert len(open_upload(zip_bytes({**two_images, "a/3.png": postscript}), "upload").skipped) == 1
    large = encode_image(Image.new("1", (8000, 5001)))
    (skipped_image,) = open_upload(zip_bytes({**two_images, "a/3.png": large}), "upload").skipped
    assert "more than 40 megapixels" in skipped_image


def test_parquet_upload_ignores_paths_and_names_groups(tmp_path):
    files = [numbered_png(number) for number in range(12)]
    (tmp_path / "0.png").write_bytes(files[0])
    cells = [{"bytes": data, "path": None} for data in files]
    cells.append({"bytes": None, "path": str(tmp_path / "0.png")})
    columns = {"site": ["a"] * 6 + ["b"] * 7, "gender": [[0], [1]] * 6 + [[0]], "age": ["young"] * 13}
    feature = b'{"feature": {"names": ["woman", "man"]}, "_type": "List"}'
    metadata = {"huggingface": b'{"info": {"features": {"gender": %b}}}' % feature}
    gallery = open_upload(parquet_bytes(cells, metadata, **columns), "upload")
    groups = {name: labels.tolist() for name, labels in gallery.groups.items()}
    assert groups == {"gender": ["woman", "man"] * 6}
    assert gallery.skipped == ("row 12: no image in this row",)
    assert read_numbers(gallery) == [*range(12)]
    renamed_groups = open_upload(parquet_bytes(pa.array(files), gender=["a", "b"] * 6), "upload")
    assert renamed_groups.fingerprint != gallery.fingerprint
