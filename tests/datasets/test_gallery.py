"""Galleries of one's own: a folder with labels, a folder per group, and what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccs.datasets.gallery import open_gallery
from ccs.errors import InputError


@pytest.mark.parametrize("spec", ["nothing.parquet", "world/subjects", "no-such-set"])
def test_what_is_no_gallery_is_refused(spec: str) -> None:
    with pytest.raises(InputError):
        open_gallery(spec)


def people(folder: Path) -> list[str]:
    """Twelve pictures in two folders; their names."""
    names = []
    for i in range(12):
        name = f"{'left' if i % 2 else 'right'}/{i}.png"
        (folder / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 20), (20 * i, 0, 0)).save(folder / name)
        names.append(name)
    return names


def test_a_labeled_folder_is_a_gallery(tmp_path: Path) -> None:
    names = people(tmp_path)
    groups = open_gallery(str(tmp_path)).groups
    assert groups["group"].tolist() == ["left"] * 6 + ["right"] * 6
    rows = [f"{name},{'a' if i < 6 else 'b'},{i}" for i, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,gender,id", *rows, "gone.png,a,99"]))
    found = open_gallery(str(tmp_path))
    assert found.groups["gender"].tolist() == ["a"] * 6 + ["b"] * 6
    assert len(found.skipped) == 1
    assert np.asarray(found.images[3])[0, 0, 0] == 60  # the CSV's order, not the folders'


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("name,gender\nright/0.png,a", "needs rows with the columns file"),
        ("file,gender\nright/0.png,a\nleft/1.png", "more or fewer cells"),
        ("file,gender\nright/0.png,a\nleft/1.png,a", "no attribute of 2 to 50 groups"),
        ("file,gender\nnone.png,a", "can be read"),
    ],
)
def test_labels_that_say_nothing_are_refused(tmp_path: Path, labels: str, words: str) -> None:
    people(tmp_path)
    (tmp_path / "labels.csv").write_text(labels)
    with pytest.raises(InputError, match=words):
        open_gallery(str(tmp_path))
