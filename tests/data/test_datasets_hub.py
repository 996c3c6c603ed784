"""Every registered set, read from a local copy with its schema on the Hub; and refusals by the Hub."""

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
from tests.support.datasets_sample import SOCIAL, clip, number_of, png, repository, schemas


@pytest.fixture
def clone(tmp_path):
    """Opens a set of which there is a local copy, laid out like its repository."""

    def make(name, **options):
        like = name.removesuffix("-joined").removesuffix("-gender")
        repository(tmp_path / name, SOURCES[name], *schemas()[like])
        return open_dataset(name, **options)

    return make


def test_classification(clone):
    for name, classes, labels, count in (
        ("cifar10", ("cat", "airplane", "truck"), [3, 0, 9], 18),
        ("cifar100", ("crab", "lawn mower", "aquarium fish"), [2, 3, 1], 18),
        ("food101", ("baby back ribs", "apple pie", "baby back ribs"), [1, 0, 1], 1),
        ("oxford-pets-first-word", ("Abyssinian", "american", "american"), [0, 1, 1], 18),
        ("imagenet-a", ("junco", "stingray", "goldfinch"), [2, 0, 1], 80),
    ):
        dataset = clone(name)
        assert dataset.labels.tolist() == labels
        assert tuple(dataset.classes[label] for label in dataset.labels) == classes
        assert [number_of(image) for image in dataset.images] == [0, 1, 2]
        assert len(dataset.templates) == count
        subsets = {key: [dataset.classes[i] for i in among] for key, among in dataset.subsets.items()}
        assert subsets == SOURCES[name].subsets


@pytest.mark.parametrize("name", ["fairface-1.25", "fairface-0.25"])
def test_fairface_has_six_and_seven_races(clone, name):
    gallery = clone(name)
    assert gallery.groups["race"].tolist() == ["Asian", "Asian", "Black", "Latino"]
    assert gallery.groups["race (seven)"].tolist()[:2] == ["East Asian", "Southeast Asian"]
    assert gallery.groups["gender"].tolist() == ["Male", "Female", "Female", "Male"]
    assert gallery.k == {"race": 1, "race (seven)": 1, "gender": 1}  # 900 of 10,954, of four: one
    assert (gallery.occupations, gallery.templates) == (paper.occupations(), paper.templates())


def test_fairface_as_its_authors_give_it(tmp_path):
    root = tmp_path / "fairface-0.25"
    (root / "val").mkdir(parents=True)
    for number in (1, 2):
        (root / "val" / f"{number}.jpg").write_bytes(png(number))
    rows = [f"fairface/val/{number}.jpg,3-9,Male,East Asian,False\n" for number in (2, 3, 1)]
    (root / "fairface_label_val.csv").write_text("file,age,gender,race,service_test\n" + "".join(rows))
    gallery = open_dataset("fairface-0.25")
    assert [number_of(image) for image in gallery.images] == [2, 1]
    assert gallery.skipped == ("fairface/val/3.jpg: no such file",)
    assert gallery.groups["race"].tolist() == ["Asian", "Asian"]


def test_socialcounterfactuals_keeps_what_varies_race_and_gender_and_has_a_pool_per_occupation(clone):
    gallery = clone("socialcounterfactuals")
    # Row 12 varies another attribute; row 15 shows an occupation that the study does not ask for.
    assert [number_of(image) for image in gallery.images] == [*range(12), 13, 14]
    assert list(zip(gallery.groups["race"], gallery.groups["gender"], strict=True))[:12] == SOCIAL
    # Rows whose attributes stand the other way around.
    assert (gallery.groups["race"][12], gallery.groups["gender"][12]) == ("White", "Male")
    assert (gallery.k, gallery.pools.tolist()) == ({"race": 12, "gender": 4}, ["judge"] * 12 + ["chef"] * 2)
    assert [gallery.units.tolist().index(unit) for unit in gallery.units] == [0] * 6 + [6] * 6 + [12] * 2
    # Chef has two images of one set, which has no halves, whatever their number.
    assert gallery.occupations == ("judge",)
    assert "occupation chef: only 2 images (sets: 1)" in gallery.notes
    with pytest.raises(InputError, match="No occupation of 'socialcounterfactuals' has 12 images"):
        clone("socialcounterfactuals", max_images=5)


def brightness(frames):
    return [round(float(np.asarray(frame).mean()) / 10) for frame in frames]


@pytest.mark.parametrize("count", [1, 4, 5, 12, 40])
def test_frames_stand_at_the_middle_of_equal_intervals(tmp_path, count):
    frames = clips.frames(clip(tmp_path / "a.mp4"), count)
    # Slow and obvious: frame i is shown from i/10 to (i+1)/10 seconds.
    assert brightness(frames) == [int((part + 0.5) * 2.0 / count * 10) for part in range(count)]


def test_frames_are_turned_as_the_video_says(tmp_path):
    bright_left = np.repeat(np.uint8([[[255], [0]]]), 32, axis=1).repeat(64, axis=0).repeat(3, axis=2)
    data = clip(tmp_path / "a.mp4", pixels=[bright_left] * 9).read_bytes()
    matrix = data.index(b"tkhd") + 44  # a quarter turn clockwise, as of a phone held upright
    turned = data[:matrix] + struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 2**30) + data[matrix + 36 :]
    (frame,) = clips.frames(turned, 1)
    top, bottom = np.split(np.asarray(frame, float), 2)
    assert top.mean() > bottom.mean() + 200


def test_videos(tmp_path):
    for name, frames, rows in (
        ("msrvtt", 12, [{"video_id": "video7", "video": "video7.mp4", "caption": "one"}]),
        ("msvd", 12, [{"video_id": "video7", "video": "video7.avi", "caption": ["one", "two", " ", None]}]),
        ("didemo", 32, [{"video": "test/video7.mp4", "caption": "one"}]),
    ):
        root = tmp_path / name
        clip(root / "videos" / rows[0]["video"])
        (root / "videos" / "broken.mp4").write_bytes(b"nothing of the kind")
        wrong = [{"video": "broken.mp4", "caption": "x"}, {"video": "lost.mp4", "caption": "x"}]
        (root / SOURCES[name].annotations).write_text(json.dumps(wrong + rows))
        (root / "raw.json").write_text("{}")  # other files of the repository do not matter
        dataset = open_dataset(name)
        assert len(dataset.clips) == len(dataset.captions) == 1
        assert len(dataset.clips[0]) == frames
        assert dataset.captions[0] == (("one", "two") if name == "msvd" else ("one",))
        assert [entry.split(":")[0] for entry in dataset.skipped] == ["broken.mp4", "lost.mp4"]
        assert dataset.skipped[1] == "lost.mp4: no such file"


def test_a_clip_that_breaks_off_repeats_its_last_frame(tmp_path):
    path = clip(tmp_path / "a.mkv", seconds=2.5)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    brightnesses = brightness(clips.frames(path, 8))
    assert len(brightnesses) == 8
    assert brightnesses == sorted(brightnesses)
    assert 5 < brightnesses[-1] == brightnesses[-2] < 24


def test_the_registry_is_whole():
    assert as_markdown() in (Path(__file__).parents[2] / "docs/datasets.md").read_text("utf-8")
    for record in SOURCES.values():
        assert record.verified, record.name
        assert record.license, record.name
    # Every dataset in the paper is registered under the name that the comparison uses.
    claims = [claim for key in report.TABLES for claim in report.claims(key) if claim.dataset]
    looked_up_names = {name for claim in claims for name in report.dataset_names(claim)}
    assert {name.removesuffix(" (as-published)") for name in looked_up_names} - {"fairface"} <= set(SOURCES)
