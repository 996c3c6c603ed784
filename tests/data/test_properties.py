"""Random folders, tables, and Parquet files with known labels: every image has its label or is reported."""

import shutil
from contextlib import suppress
from pathlib import PurePosixPath

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccs.data import BiasSet
from ccs.data.open import open_dataset, open_gallery, open_upload
from ccs.errors import InputError
from tests.support.datasets_sample import IMAGE_TYPE, numbered_png, parquet_bytes, zip_bytes

FOLDERS = st.sampled_from(
    ("cat", "dog", "Dog", "test", "train", "images", "10", "2", "red_fox", "red fox", ".git", "labels", "ü")
)
FILES = st.sampled_from(("a.png", "b.PNG", "c.jpg", "d", "notes.txt", ".hidden.png", "labels.txt", "v.mov"))
IMAGES = {"a.png", "b.PNG", "c.jpg", "d"}
PATHS = st.tuples(st.lists(FOLDERS, max_size=3), FILES).map(lambda parts: "/".join([*parts[0], parts[1]]))
keep_folder_between_examples = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def write_files(tmp_path):
    """Returns a function that writes files into an empty folder and a zip file, and returns both names."""

    def write_files(files):
        folder, archive = tmp_path / "set", tmp_path / "set.zip"
        shutil.rmtree(folder, ignore_errors=True)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        archive.write_bytes(zip_bytes(files))
        return str(folder), str(archive)

    return write_files


def open_or_none(opener, *args, **options):
    with suppress(InputError):
        return opener(*args, **options)


def numbered_labels(data):
    """Each image's number, with its class or group."""
    labels = data.groups["group"] if isinstance(data, BiasSet) else [data.classes[n] for n in data.labels]
    return [(image.getpixel((0, 0))[0] // 5, label) for image, label in zip(data.images, labels, strict=True)]


def without_conflicts(paths):
    """Remove paths that are folders of other paths."""
    return [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)]


def reported_path(path):
    """A path up to its first hidden part, as the files below that are reported once."""
    parts = path.split("/")
    hidden = next((index for index, part in enumerate(parts, 1) if part.startswith(".")), len(parts))
    return "/".join(parts[:hidden])


def count_reported_files(data):
    counts = [note.split(": ", 1)[1].split(" ")[0] for note in data.notes if " file" in note]
    return sum(map(int, counts)) + len(data.skipped)


@keep_folder_between_examples
@given(paths=st.sets(PATHS, min_size=2, max_size=14))
def test_folder_zip_and_upload_give_the_same_labels(write_files, paths):
    paths = without_conflicts(sorted(paths))
    files = {p: numbered_png(n) if PurePosixPath(p).name in IMAGES else b"x" for n, p in enumerate(paths)}
    folder, archive = write_files(files)
    data, archive_data = open_or_none(open_dataset, folder), open_or_none(open_dataset, archive)
    assert (data is None) == (archive_data is None)
    if data is not None:
        assert archive_data.fingerprint == data.fingerprint
        assert archive_data.notes == data.notes
        for number, label in numbered_labels(data):
            parents = paths[number].split("/")[:-1]
            assert label.casefold() in {parent.replace("_", " ").casefold() for parent in parents}
        assert len(data.images) + count_reported_files(data) == len(set(map(reported_path, paths)))
    people = open_or_none(open_gallery, folder, attribute="group")
    if people is not None:
        assert numbered_labels(open_upload(zip_bytes(files), "upload")) == numbered_labels(people)


@keep_folder_between_examples
@given(
    labels=st.dictionaries(PATHS, st.sampled_from(("f", "m", " F", "x,y", "")), min_size=2, max_size=12),
    prefix=st.sampled_from(("", "./", "/old/place/", "C:\\data\\", "../")),
    missing=st.booleans(),
)
def test_table_gives_each_image_its_group(write_files, labels, prefix, missing):
    images = [path for path in labels if PurePosixPath(path).name in IMAGES and "/." not in f"/{path}"]
    images = without_conflicts(images)
    rows = [f'{prefix}{path},"{labels[path]}"' for path in images] + ["nowhere/else.gif,f"] * missing
    files = {path: numbered_png(number) for number, path in enumerate(images)}
    files["labels.csv"] = "\n".join(["file,group", *rows]).encode()
    folder, archive = write_files(files)
    people, archive_people = open_or_none(open_gallery, folder), open_or_none(open_gallery, archive)
    if people is None:
        assert archive_people is None
        return
    for number, group in numbered_labels(people):
        assert group.casefold() == labels[images[number]].strip().casefold()
    uploaded_people = open_upload(zip_bytes(files), "upload")
    assert numbered_labels(archive_people) == numbered_labels(uploaded_people) == numbered_labels(people)
    assert len(people.images) + len(people.skipped) == len(rows)


CLASS_LISTS = (["cat", " dog", "dog", "Cat"], ["dog", "cat", "Cat", " dog"])
"""Class names of the first and second Parquet file, for labels that are numbers."""


def label_column(labels, column_type, names):
    """Labels as a Parquet column. A missing class number is None or, as `datasets` writes it, -1."""
    if column_type == "numbers":
        numbers = {"": -1, None: None} | {name: number for number, name in enumerate(names)}
        return pa.array([numbers[label] for label in labels], pa.int64())
    if column_type == "lists":
        return pa.array([None if label is None else [label] for label in labels], pa.list_(pa.string()))
    if column_type == "records":
        cells = [None if label is None else {"name": label} for label in labels]
        return pa.array(cells, pa.struct({"name": pa.string()}))
    types = {"text": pa.string(), "large text": pa.large_string()}
    return pa.array(labels, pa.string()).cast(types.get(column_type, pa.dictionary(pa.int8(), pa.string())))


@keep_folder_between_examples
@given(
    labels=st.lists(st.sampled_from(("cat", "dog", " dog", "Cat", "", None)), min_size=2, max_size=12),
    column_type=st.sampled_from(("categories", "large text", "lists", "numbers", "records", "text")),
    damaged=st.none() | st.integers(0, 11),
    split_at=st.integers(0, 12),
    row_group=st.integers(1, 5),
)
def test_parquet_gives_each_image_its_class(write_files, labels, column_type, damaged, split_at, row_group):
    images = [numbered_png(number)[: 40 if number == damaged else None] for number in range(len(labels))]
    files = {}
    for part, rows in enumerate((slice(split_at), slice(split_at, None))):
        column = pa.array([{"bytes": data, "path": "/etc/passwd"} for data in images[rows]], IMAGE_TYPE)
        names = ",".join(f'"{name}"' for name in CLASS_LISTS[part])
        metadata = {"huggingface": f'{{"info": {{"features": {{"label": {{"names": [{names}]}}}}}}}}'}
        cells = label_column(labels[rows], column_type, CLASS_LISTS[part])
        metadata = metadata if column_type == "numbers" else None
        files[f"part-{part}.parquet"] = parquet_bytes(column, metadata, row_group, label=cells)
    data, archive_data = (open_or_none(open_dataset, path) for path in write_files(files))
    expected = [(n, label.strip().casefold()) for n, label in enumerate(labels) if label and n != damaged]
    if data is None:
        assert len({label for _, label in expected}) < 2
        return
    assert [(number, label.casefold()) for number, label in numbered_labels(data)] == expected
    assert len(data.skipped) == len(labels) - len(expected)
    unlabeled = {f"row {n}: no label" for n, label in enumerate(labels) if not label and n != damaged}
    assert unlabeled <= set(data.skipped)
    assert numbered_labels(archive_data) == numbered_labels(data)
