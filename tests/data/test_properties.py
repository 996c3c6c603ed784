"""Random folders, tables, and Parquet files with known labels: each image has its label, or is counted."""

import io
import shutil
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccs.data import BiasSet
from ccs.data.open import open_dataset, open_gallery, open_upload
from ccs.errors import InputError
from tests.support.datasets_sample import CELL, png, zipped

WORDS = "cat dog Dog test train val images 10 2 red_fox .git labels ü"
NAMES = st.sampled_from([*WORDS.split(), "red fox"])
FILES = st.sampled_from(("a.png", "b.PNG", "c.jpg", "d", "notes.txt", ".hidden.png", "labels.txt", "v.mov"))
PATHS = st.tuples(st.lists(NAMES, max_size=3), FILES).map(lambda parts: "/".join([*parts[0], parts[1]]))
folders_are_emptied = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
IMAGES = {"a.png", "b.PNG", "c.jpg", "d"}


@pytest.fixture
def place(tmp_path):
    """Makes a folder that holds these files and no others."""

    def make(files):
        folder = tmp_path / "set"
        shutil.rmtree(folder, ignore_errors=True)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        (tmp_path / "set.zip").write_bytes(zipped(files))
        return str(folder), str(tmp_path / "set.zip")

    return make


def attempt(opener, *args, **options):
    with suppress(InputError):
        return opener(*args, **options)


def shown_part(path):
    """A path up to its first hidden part, which is counted once for all that is below it."""
    parts = path.split("/")
    hidden = next((place for place, part in enumerate(parts, 1) if part.startswith(".")), len(parts))
    return "/".join(parts[:hidden])


def numbered_labels(data):
    """Each image's number, with its class or group."""
    labels = data.groups["group"] if isinstance(data, BiasSet) else [data.classes[n] for n in data.labels]
    return [(image.getpixel((0, 0))[0] // 5, label) for image, label in zip(data.images, labels, strict=True)]


def counted(data):
    """The number of files that a set counts as unused."""
    numbers = [note.split(": ", 1)[1].split(" ")[0] for note in data.notes if " file" in note]
    return sum(map(int, numbers)) + len(data.skipped)


@folders_are_emptied
@given(paths=st.sets(PATHS, min_size=2, max_size=14))
def test_a_tree_is_the_same_as_folder_zip_and_upload(place, paths):
    paths = sorted(path for path in paths if not any(other.startswith(f"{path}/") for other in paths))
    numbers = {path: number for number, path in enumerate(paths)}
    files = {path: png(number) if path.split("/")[-1] in IMAGES else b"x" for path, number in numbers.items()}
    folder, archive = place(files)
    data, zipped_data = attempt(open_dataset, folder), attempt(open_dataset, archive)
    assert (data is None) == (zipped_data is None)
    if data is not None:
        assert zipped_data.fingerprint == data.fingerprint
        assert zipped_data.notes == data.notes
        by_number = {number: path for path, number in numbers.items()}
        spelled = {"Dog": "dog", "red_fox": "red fox"}
        for number, label in numbered_labels(data):
            folders = by_number[number].split("/")[:-1]
            assert label.casefold() in {spelled.get(name, name).casefold() for name in folders}
        assert len(data.images) + counted(data) == len({shown_part(path) for path in paths})
    people = attempt(open_gallery, folder, attribute="group")
    upload = attempt(open_upload, zipped(files), "upload")
    if people is not None:
        assert numbered_labels(upload) == numbered_labels(people)


@folders_are_emptied
@given(
    rows=st.lists(st.tuples(PATHS, st.sampled_from(("f", "m", " F", "x,y", ""))), min_size=2, max_size=12),
    prefix=st.sampled_from(("", "./", "/old/place/", "C:\\data\\", "../")),
    missing=st.booleans(),
)
def test_a_table_gives_each_image_its_group(place, rows, prefix, missing):
    labels = {path: label for path, label in rows if path.split("/")[-1] in IMAGES and "/." not in f"/{path}"}
    parents = {path for path in labels if any(other.startswith(f"{path}/") for other in labels)}
    labels = {path: label for path, label in labels.items() if path not in parents}
    numbers = {path: number for number, path in enumerate(labels)}
    files = {path: png(number) for path, number in numbers.items()}
    lines = [f'{prefix}{path},"{label}"' for path, label in labels.items()]
    table = "\n".join(["file,group", *lines, *["nowhere/else.gif,f"] * missing]).encode()
    folder, archive = place(files | {"labels.csv": table})
    people, from_zip = attempt(open_gallery, folder), attempt(open_gallery, archive)
    upload = attempt(open_upload, zipped(files | {"labels.csv": table}), "upload")
    if people is None:
        assert from_zip is None
        return
    by_number = {number: path for path, number in numbers.items()}
    for number, group in numbered_labels(people):
        assert group.casefold() == labels[by_number[number]].strip().casefold()
    assert numbered_labels(from_zip) == numbered_labels(upload) == numbered_labels(people)
    assert len(people.images) + len(people.skipped) == len(labels) + missing


KINDS = {
    "text": pa.string(),
    "large text": pa.large_string(),
    "categories": pa.dictionary(pa.int8(), pa.string()),
    "lists": pa.list_(pa.string()),
    "records": pa.struct({"name": pa.string()}),
}


@folders_are_emptied
@given(
    labels=st.lists(st.sampled_from(("cat", "dog", " dog", "Cat", "", None)), min_size=2, max_size=12),
    kind=st.sampled_from(sorted([*KINDS, "numbers"])),
    broken=st.none() | st.integers(0, 11),
    cell=st.sampled_from(("bytes", "struct")),
    cut=st.integers(0, 12),
    group=st.integers(1, 5),
)
def test_parquet_gives_each_image_its_class(place, labels, kind, broken, cell, cut, group):
    """No label is None, an empty text, or the -1 that `datasets` writes for it."""
    images = [png(number)[: 40 if number == broken else None] for number in range(len(labels))]
    files = {}
    for part, (start, end) in enumerate(((0, cut), (cut, len(labels)))):
        in_part = labels[start:end]
        names = ["dog", "cat", "Cat", " dog"] if part else ["cat", " dog", "dog", "Cat"]
        metadata = None
        if kind == "numbers":
            numbers = {"": -1, None: None} | {name: number for number, name in enumerate(names)}
            cells = pa.array([numbers[label] for label in in_part], pa.int64())
            listed = ",".join(f'"{name}"' for name in names)
            metadata = {"huggingface": f'{{"info": {{"features": {{"label": {{"names": [{listed}]}}}}}}}}'}
        elif kind == "lists":
            cells = pa.array([None if label is None else [label] for label in in_part], KINDS[kind])
        elif kind == "records":
            cells = pa.array([None if label is None else {"name": label} for label in in_part], KINDS[kind])
        else:
            cells = pa.array(in_part, pa.string()).cast(KINDS[kind])
        data = images[start:end]
        column = pa.array(data, pa.binary())
        if cell == "struct":
            column = pa.array([{"bytes": content, "path": "/etc/passwd"} for content in data], CELL)
        table = pa.table({"label": cells, "image": column}).replace_schema_metadata(metadata)
        pq.write_table(table, out := io.BytesIO(), row_group_size=group)
        files[f"part-{part}.parquet"] = out.getvalue()
    data, from_zip = (attempt(open_dataset, path) for path in place(files))
    expected = [(n, label.strip().casefold()) for n, label in enumerate(labels) if label and n != broken]
    if data is None:
        assert len({label for _, label in expected}) < 2
        return
    assert [(number, label.casefold()) for number, label in numbered_labels(data)] == expected
    assert len(data.skipped) == len(labels) - len(expected)
    unlabeled = {f"row {n}: no label" for n, label in enumerate(labels) if not label and n != broken}
    assert unlabeled <= set(data.skipped)
    assert numbered_labels(from_zip) == numbered_labels(data)
