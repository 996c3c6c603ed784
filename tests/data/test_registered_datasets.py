"""Registered datasets, read from local clones of their Hub repositories, and frames of videos."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from ccs import InputError, paper
from ccs.batch import report
from ccs.data import SOURCES, clips
from ccs.data.open import open_dataset
from scripts.datasets_table import as_markdown
from tests.support.datasets_sample import numbered_png, read_numbers, write_repository, write_video


@pytest.fixture
def open_clone(tmp_path):
    """Returns a function that opens a registered dataset from a local clone of its repository."""

    def open_clone(name, **options):
        write_repository(tmp_path / name, SOURCES[name])
        return open_dataset(name, **options)

    return open_clone


def test_classification_datasets_have_labels_and_templates(open_clone):
    for name, classes, labels, template_count in (
        ("cifar10", ("cat", "airplane", "truck"), [3, 0, 9], 18),
        ("cifar100", ("crab", "lawn mower", "aquarium fish"), [2, 3, 1], 18),
        ("food101", ("baby back ribs", "apple pie", "baby back ribs"), [1, 0, 1], 1),
        ("oxford-pets-first-word", ("Abyssinian", "american", "american"), [0, 1, 1], 18),
        ("imagenet-a", ("junco", "stingray", "goldfinch"), [2, 0, 1], 80),
    ):
        dataset = open_clone(name)
        assert dataset.labels.tolist() == labels
        assert tuple(dataset.classes[label] for label in dataset.labels) == classes
        assert read_numbers(dataset) == [0, 1, 2]
        assert len(dataset.templates) == template_count
        subsets = {key: [dataset.classes[i] for i in indices] for key, indices in dataset.subsets.items()}
        assert subsets == SOURCES[name].subsets


@pytest.mark.parametrize("name", ["fairface-1.25", "fairface-0.25"])
def test_fairface_has_six_and_seven_races(open_clone, name):
    gallery = open_clone(name)
    assert gallery.groups["race"].tolist() == ["Asian", "Asian", "Black", "Latino"]
    assert gallery.groups["race (seven)"].tolist()[:2] == ["East Asian", "Southeast Asian"]
    assert gallery.groups["gender"].tolist() == ["Male", "Female", "Female", "Male"]
    # the paper's 900 of 10,954 images is less than 1 of 4
    assert gallery.k == {"race": 1, "race (seven)": 1, "gender": 1}
    assert (gallery.occupations, gallery.templates) == (paper.occupations(), paper.templates())


def test_fairface_opens_from_the_authors_csv_and_images(tmp_path):
    root = tmp_path / "fairface-0.25"
    (root / "val").mkdir(parents=True)
    for number in (1, 2):
        (root / "val" / f"{number}.jpg").write_bytes(numbered_png(number))
    rows = [f"fairface/val/{number}.jpg,3-9,Male,East Asian,False\n" for number in (2, 3, 1)]
    (root / "fairface_label_val.csv").write_text("file,age,gender,race,service_test\n" + "".join(rows))
    gallery = open_dataset("fairface-0.25")
    assert read_numbers(gallery) == [2, 1]
    assert gallery.skipped == ("fairface/val/3.jpg: no such file",)
    assert gallery.groups["race"].tolist() == ["Asian", "Asian"]


def test_socialcounterfactuals_has_a_pool_per_occupation(open_clone):
    gallery = open_clone("socialcounterfactuals")
    # Row 12 varies another attribute than race and gender. The paper doesn't have the occupation of row 15.
    assert read_numbers(gallery) == [*range(12), 13, 14]
    groups = [(race, gender) for race in ("Asian", "Black", "White") for gender in ("Male", "Female")]
    assert list(zip(gallery.groups["race"], gallery.groups["gender"], strict=True))[:12] == groups * 2
    # Rows 13 and 14 name gender first.
    assert (gallery.groups["race"][12], gallery.groups["gender"][12]) == ("White", "Male")
    assert (gallery.k, gallery.pools.tolist()) == ({"race": 12, "gender": 4}, ["judge"] * 12 + ["chef"] * 2)
    assert [gallery.units.tolist().index(unit) for unit in gallery.units] == [0] * 6 + [6] * 6 + [12] * 2
    # Both images of a chef are of one counterfactual set, which can't be split into halves.
    assert gallery.occupations == ("judge",)
    assert "occupation chef: only 2 images (sets: 1)" in gallery.notes
    with pytest.raises(InputError, match="No occupation of 'socialcounterfactuals' has 12 images"):
        open_clone("socialcounterfactuals", max_images=5)


def frame_numbers(frames):
    """Returns the number of each frame of a `clip` without other pixels, by its brightness."""
    return [round(float(np.asarray(frame).mean()) / 10) for frame in frames]


def test_frames_are_taken_from_the_middle_of_equal_intervals(tmp_path):
    path = write_video(tmp_path / "a.mp4")
    for count in (1, 4, 5, 12, 40):
        # reference: frame i is shown from i/10 to (i+1)/10 seconds
        expected = [int((part + 0.5) * 2.0 / count * 10) for part in range(count)]
        assert frame_numbers(clips.frames(path, count)) == expected


def test_frames_follow_the_rotation_in_video_metadata(tmp_path):
    bright_left = np.repeat(np.uint8([[[255], [0]]]), 32, axis=1).repeat(64, axis=0).repeat(3, axis=2)
    data = write_video(tmp_path / "a.mp4", pixels=[bright_left] * 9).read_bytes()
    matrix = data.index(b"tkhd") + 44  # a quarter turn clockwise, as of a phone held upright
    rotated = data[:matrix] + struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 2**30) + data[matrix + 36 :]
    (frame,) = clips.frames(rotated, 1)
    top, bottom = np.split(np.asarray(frame, float), 2)
    assert top.mean() > bottom.mean() + 200


def test_truncated_video_repeats_its_last_frame(tmp_path):
    path = write_video(tmp_path / "a.mkv", seconds=2.5)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])
    numbers = frame_numbers(clips.frames(path, 8))
    assert len(numbers) == 8
    assert numbers == sorted(numbers)
    assert 5 < numbers[-1] == numbers[-2] < 24


def test_video_datasets_have_frames_and_captions(tmp_path):
    for name, frame_count, rows in (
        ("msrvtt", 12, [{"video_id": "video7", "video": "video7.mp4", "caption": "one"}]),
        ("msvd", 12, [{"video_id": "video7", "video": "video7.avi", "caption": ["one", "two", " ", None]}]),
        ("didemo", 32, [{"video": "test/video7.mp4", "caption": "one"}]),
    ):
        root = tmp_path / name
        write_video(root / "videos" / rows[0]["video"])
        (root / "videos" / "broken.mp4").write_bytes(b"not a video")
        unreadable = [{"video": "broken.mp4", "caption": "x"}, {"video": "lost.mp4", "caption": "x"}]
        (root / SOURCES[name].annotations).write_text(json.dumps(unreadable + rows))
        (root / "raw.json").write_text("{}")  # a file that isn't read
        dataset = open_dataset(name)
        assert [len(clip) for clip in dataset.clips] == [frame_count]
        assert [*dataset.captions] == [("one", "two") if name == "msvd" else ("one",)]
        assert [entry.split(":")[0] for entry in dataset.skipped] == ["broken.mp4", "lost.mp4"]
        assert dataset.skipped[1] == "lost.mp4: no such file"


def test_registry_is_complete_and_documented():
    assert as_markdown() in (Path(__file__).parents[2] / "docs/datasets.md").read_text("utf-8")
    for record in SOURCES.values():
        assert record.verified, record.name
        assert record.license, record.name
    claims = [claim for key in report.TABLES for claim in report.claims(key) if claim.dataset]
    dataset_names = {name for claim in claims for name in report.dataset_names(claim)}
    assert {name.removesuffix(" (as-published)") for name in dataset_names} - {"fairface"} <= set(SOURCES)
