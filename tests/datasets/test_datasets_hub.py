"""Every registered set, read from a local copy with its schema on the Hub; and refusals by the Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_httpserver import HTTPServer

from ccs import specs
from ccs.datasets import clips, fetching, known_sets, labeled
from ccs.datasets.known_sets import templates
from ccs.errors import InputError
from ccs.image_sets import ImageSet
from ccs.paper import figures as paper
from tests.support.datasets_sample import (
    SOCIAL,
    clip,
    number_of,
    png,
    repository,
    schemas,
    tar_of,
    webdataset,
)
from tests.support.shared import SHARED


@pytest.fixture
def clone(tmp_path: Path) -> Any:
    """Opens a set of which there is a local copy, laid out like its repository."""

    def make(name: str, **more: Any) -> Any:
        like = name.removesuffix("-joined").removesuffix("-gender")
        repository(tmp_path / name, known_sets.source(name), *schemas()[like])
        return specs.open_set(name, **more)

    return make


@pytest.mark.parametrize(
    ("name", "classes", "labels", "templates"),
    [
        ("cifar10", ("cat", "airplane", "truck"), [3, 0, 9], 18),
        ("cifar100", ("crab", "lawn mower", "aquarium fish"), [2, 3, 1], 18),
        ("cifar100-joined", ("crab", "lawn_mower", "aquarium_fish"), [2, 3, 1], 18),
        ("food101", ("baby back ribs", "apple pie", "baby back ribs"), [1, 0, 1], 1),
        ("oxford-pets", ("abyssinian", "american bulldog", "american pit bull terrier"), [0, 1, 2], 1),
        ("oxford-pets-first-word", ("Abyssinian", "american", "american"), [0, 1, 1], 18),
        ("imagenet-a", ("junco", "stingray", "goldfinch"), [2, 0, 1], 80),
        ("imagenet-r", ("goldfinch", "stingray", "goldfinch"), [1, 0, 1], 80),
    ],
)
def test_classification(
    clone: Any, name: str, classes: tuple[str, ...], labels: list[int], templates: int
) -> None:
    found = clone(name)
    assert found.labels.tolist() == labels
    assert tuple(found.classes[label] for label in found.labels) == classes
    assert [number_of(image) for image in found.images] == [0, 1, 2]
    assert len(found.templates) == templates
    assert all(template.count("{}") == 1 for template in found.templates)


def test_subsets_of_cifar10_part_its_classes(clone: Any) -> None:
    found = clone("cifar10")
    assert sorted(found.subsets["animals"] + found.subsets["objects"]) == list(range(10))
    assert [found.classes[index] for index in found.subsets["objects"]] == [
        *("airplane", "automobile", "ship", "truck")
    ]


def test_country211_is_a_webdataset_with_its_names_in_a_file(tmp_path: Path) -> None:
    root = tmp_path / "country211"
    (root / "test").mkdir(parents=True)
    (root / "test" / "0.tar").write_bytes(webdataset([1, 0, 1]))
    with pytest.raises(InputError, match=r"needs the file classnames.txt"):
        specs.open_set("country211")
    (root / "classnames.txt").write_text("Andorra\nUnited Arab Emirates\n")
    found = specs.open_set("country211")
    assert found.labels.tolist() == [1, 0, 1]
    assert found.classes == ("Andorra", "United Arab Emirates")
    assert len(found.templates) == 5
    assert [number_of(image) for image in found.images] == [0, 1, 2]


def test_imagenet_for_the_moments(clone: Any) -> None:
    found = clone("imagenet-val")
    assert type(found) is ImageSet
    assert [number_of(image) for image in found.images] == [0, 1, 2]


def test_captions_of_flickr8k(clone: Any) -> None:
    found = clone("flickr8k")
    assert found.captions[1] == tuple(f"b.{number}" for number in range(5))
    assert [number_of(frame) for clip in found.clips for frame in clip] == [0, 1, 2]
    assert len(found.clips[1:]) == 2


@pytest.mark.parametrize("name", ["fairface-1.25", "fairface-0.25"])
def test_fairface_has_six_and_seven_races(clone: Any, name: str) -> None:
    found = clone(name)
    assert found.groups["race"].tolist() == ["Asian", "Asian", "Black", "Latino"]
    assert found.groups["race (seven)"].tolist()[:2] == ["East Asian", "Southeast Asian"]
    assert found.groups["gender"].tolist() == ["Male", "Female", "Female", "Male"]
    assert found.k == {"race": 1, "race (seven)": 1, "gender": 1}  # 900 of 10,954, of four: one
    assert (found.occupations, found.templates) == (paper.occupations(), paper.templates())


def test_fairface_as_its_authors_give_it(tmp_path: Path) -> None:
    root = tmp_path / "fairface-0.25"
    (root / "val").mkdir(parents=True)
    for number in (1, 2):
        (root / "val" / f"{number}.jpg").write_bytes(png(number))
    rows = ["file,age,gender,race,service_test"]
    rows += [f"fairface/val/{number}.jpg,3-9,Male,East Asian,False" for number in (2, 3, 1)]
    (root / "fairface_label_val.csv").write_text("\n".join(rows))
    found = specs.open_set("fairface-0.25")
    assert [number_of(image) for image in found.images] == [2, 1]
    assert found.skipped == ("fairface/val/3.jpg: no such file",)
    assert found.groups["race"].tolist() == ["Asian", "Asian"]


@pytest.mark.shared("data")
def test_fairface_labels_have_six_races_after_merging() -> None:
    rows = (SHARED / "data/fairface_label_val.csv").read_text().splitlines()[1:]
    races = {row.split(",")[3] for row in rows}
    fairface = known_sets.source("fairface")
    merged = {fairface.renames[race] for race in races}
    assert (len(rows), len(races), len(merged)) == (fairface.rows, 7, 6)


def test_socialcounterfactuals_keeps_what_varies_race_and_gender(clone: Any) -> None:
    found = clone("socialcounterfactuals")
    # Row 12 varies another attribute; row 15 shows an occupation that the study does not ask for.
    assert [number_of(image) for image in found.images] == [*range(12), 13, 14]
    assert list(zip(found.groups["race"], found.groups["gender"], strict=True))[:12] == SOCIAL
    # Rows whose attributes stand the other way around.
    assert (found.groups["race"][12], found.groups["gender"][12]) == ("White", "Male")
    assert found.k == {"race": 12, "gender": 4}


def test_socialcounterfactuals_has_a_pool_per_occupation(clone: Any) -> None:
    found = clone("socialcounterfactuals")
    assert found.pools.tolist() == ["judge"] * 12 + ["chef"] * 2
    assert [found.units.tolist().index(unit) for unit in found.units] == [0] * 6 + [6] * 6 + [12] * 2
    # Two images cannot be cut at 12.
    assert found.occupations == ("judge",)
    assert "occupation chef: only 2 images" in found.skipped
    with pytest.raises(InputError, match="No occupation of 'socialcounterfactuals' has the 12 images"):
        clone("socialcounterfactuals", max_images=5)


def test_socialcounterfactuals_by_gender_has_every_set_that_varies_gender(clone: Any) -> None:
    found = clone("socialcounterfactuals-gender")
    # Row 12 varies a physical trait and gender.
    assert [number_of(image) for image in found.images] == [*range(15)]
    assert found.pools.tolist() == ["judge"] * 13 + ["chef"] * 2
    assert set(found.groups) == {"gender"}
    assert found.k == {"gender": 4}


def test_which_images_an_occupation_ranks(clone: Any) -> None:
    found = clone("socialcounterfactuals")
    pools = found.own_pools(["chef", "judge"])
    assert pools.sum(axis=1).tolist() == [2, 12]
    assert pools[0].nonzero()[0].tolist() == [12, 13]
    with pytest.raises(InputError, match="no image of pilot, and each occupation ranks its own"):
        found.own_pools(["judge", "pilot"])


def brightness(frames: Any) -> list[int]:
    return [round(float(np.asarray(frame).mean()) / 10) for frame in frames]


@pytest.mark.parametrize("count", [1, 4, 5, 12, 40])
def test_frames_stand_at_the_middle_of_equal_intervals(tmp_path: Path, count: int) -> None:
    found = clips.frames(clip(tmp_path / "a.mp4"), count)
    # Slow and obvious: frame i is shown from i/10 to (i+1)/10 seconds.
    expected = [int((part + 0.5) * 2.0 / count * 10) for part in range(count)]
    assert brightness(found) == expected


@pytest.mark.parametrize(
    ("name", "frames", "rows"),
    [
        ("msrvtt", 12, [{"video_id": "video7", "video": "video7.mp4", "caption": "one"}]),
        ("msvd", 12, [{"video_id": "video7", "video": "video7.avi", "caption": ["one", "two"]}]),
        ("didemo", 32, [{"video": "test/video7.mp4", "caption": "one"}]),
    ],
)
def test_videos(tmp_path: Path, name: str, frames: int, rows: list[dict[str, Any]]) -> None:
    root = tmp_path / name
    clip(root / "videos" / f"video7{Path(rows[0]['video']).suffix}")
    (root / "videos" / "broken.mp4").write_bytes(b"nothing of the kind")
    wrong = [{"video": "broken.mp4", "caption": "x"}, {"video": "lost.mp4", "caption": "x"}]
    (root / known_sets.source(name).annotations).write_text(json.dumps(wrong + rows))
    (root / "raw.json").write_text("{}")  # other files of the repository do not matter
    found = specs.open_set(name)
    assert len(found.clips) == len(found.captions) == 1
    assert len(found.clips[0]) == frames
    assert found.captions[0] == (("one", "two") if name == "msvd" else ("one",))
    assert [entry.split(":")[0] for entry in found.skipped] == ["broken.mp4", "lost.mp4"]
    assert found.skipped[1] == "lost.mp4: no such file"


def test_a_clip_that_breaks_off_repeats_its_last_frame(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mkv", seconds=2.5)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    shown = brightness(clips.frames(path, 8))
    assert len(shown) == 8
    assert shown == sorted(shown)
    assert 5 < shown[-1] == shown[-2] < 24


def test_no_usable_clip_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "msvd" / "msvd_test.json"
    path.parent.mkdir()
    with pytest.raises(InputError, match="no JSON file"):
        specs.open_set("msvd")
    path.write_text("[")
    with pytest.raises(InputError, match="not valid JSON"):
        specs.open_set("msvd")
    path.write_text('[{"video": "a.mp4", "caption": "x"}]')
    with pytest.raises(InputError, match="None of the 1 clips"):
        specs.open_set("msvd")


@pytest.mark.shared("data")
def test_real_clips() -> None:
    found = specs.open_set(str(SHARED / "data/video-panda"), max_images=3)
    assert len(found.clips) == 3
    assert [len(clip) for clip in found.clips] == [12] * 3
    first = found.clips[0]
    assert first[0].tobytes() != first[-1].tobytes()


def test_archives_are_unpacked_and_parts_joined(tmp_path: Path) -> None:
    whole = tar_of({"videos/a.mp4": b"abc"})
    half = len(whole) // 2
    (tmp_path / "v.tar.part-00").write_bytes(whole[:half])
    (tmp_path / "v.tar.part-01").write_bytes(whole[half:])
    fetching.unpack(list(tmp_path.glob("*.part-*")), tmp_path / "out")
    assert (tmp_path / "out" / "videos" / "a.mp4").read_bytes() == b"abc"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "v.tar.part-00", "v.tar.part-01"]


def test_without_an_answer_the_hubs_libraries_are_left_with_their_caches(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets as hf
    from huggingface_hub import constants

    def offline(url: str) -> bool:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hf.config, "HF_HUB_OFFLINE", False)
        fetching._check_connection.__wrapped__()
        assert constants.is_offline_mode() == hf.config.HF_HUB_OFFLINE
        return bool(hf.config.HF_HUB_OFFLINE)

    httpserver.expect_request("/").respond_with_data(status=404)
    assert not offline(httpserver.url_for("/"))  # a refusal is an answer
    assert offline("http://127.0.0.1:9")


def test_the_registry_is_whole() -> None:
    assert known_sets.as_markdown() in (Path(__file__).parents[2] / "docs/datasets.md").read_text("utf-8")
    for source in known_sets.SOURCES.values():
        assert source.verified, source.name
        assert source.licence, source.name
        assert source.hub or source.name == "cifar10-jpeg"
        if source.kind == "classification":
            assert templates(source.templates)
    # Every set the study reports is registered, under the name that the comparison looks for.
    from ccs.replication import comparison

    asked = {
        name
        for key in comparison.TABLES
        for claim in comparison.claims(key)
        if claim.dataset
        for name in comparison.dataset_names(claim)
    }
    asked = {name.removesuffix(" (as-published)") for name in asked}
    assert asked - {"fairface"} <= set(known_sets.SOURCES)


def test_wordnet_ids() -> None:
    assert labeled.wordnet_names(["n01440764", "n03888257"]) == ["tench", "parachute"]
    with pytest.raises(InputError, match="'n99999999' is not the WordNet id"):
        labeled.wordnet_names(["n99999999"])


def test_a_set_that_is_on_no_hub_says_where_to_put_it() -> None:
    with pytest.raises(InputError, match=r"put a local copy in \$CCS_DATA/cifar10-jpeg"):
        specs.open_set("cifar10-jpeg")
