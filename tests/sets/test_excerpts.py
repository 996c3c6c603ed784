"""Excerpts of sets on the Hub: which rows, what is fetched for them, what is kept, and what is said."""

import csv
import random
from collections import Counter

import pytest

from ccs.errors import InputError
from ccs.sets import SOURCES
from ccs.sets.open import open_gallery, open_images, open_set
from ccs.sets.strangers import balanced_rows, listed_rows
from tests.sets.test_photographs import parquet as photographs
from tests.support import fairface_sample
from tests.support.datasets_sample import number_of, png
from tests.support.fairface_sample import PATH, RECORD
from tests.support.hub_server import Fault
from tests.support.shared import SHARED

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
CSV = "data/fairface_label_val.csv"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.shared(CSV)
def test_the_list_is_what_the_rule_picks_from_the_published_labels():
    with (SHARED / CSV).open(encoding="utf-8") as file:
        cells = [(row["race"], row["gender"]) for row in csv.DictReader(file)]
    assert balanced_rows(cells, 600) == listed_rows(RECORD)


def test_the_rule_is_the_first_of_each_group():
    cells = [(letter, "m") for letter in "baaabb"]
    assert balanced_rows(cells, 4) == [1, 0, 2, 4]
    assert balanced_rows(cells, 3) == [1, 0, 2]  # the last in the alphabet has one less
    assert balanced_rows(cells, 7) is None


def put(hub, labels):
    hub.put("datasets", "HuggingFaceM4/FairFace", {
        PATH: fairface_sample.parquet(labels, lambda i: png(i % 50)),
        PATH.replace("1.25", "0.25"): b"another padding",
    })  # fmt: skip


def opened():
    return open_gallery("fairface-600")


def counts(found):
    pairs = zip(found.groups["race (seven)"], found.groups["gender"], strict=True)
    return set(Counter(pairs).values())


def test_the_listed_faces_are_fetched_once_and_kept(hub):
    labels = fairface_sample.labels_as_listed()
    put(hub, labels)
    found, listed = opened(), listed_rows(RECORD)
    assert [number_of(found.images[i]) for i in range(600)] == [row % 50 for row in listed]
    for name in ("gender", "race (seven)", "age"):
        column = name.removesuffix(" (seven)")
        assert found.groups[name].tolist() == [labels[row][column] for row in listed]
    assert set(found.groups["race"]) == {"Asian", "Black", "Indian", "Latino", "Middle Eastern", "White"}
    assert set(found.k.values()) == {60}
    assert counts(found) == {42, 43}
    assert "CC BY 4.0" in found.source
    assert "HuggingFaceM4/FairFace 1.25 validation" in found.source
    assert "another order" not in found.source
    hub.repositories.clear()
    assert opened().fingerprint == found.fingerprint


def test_rows_in_another_order_are_picked_by_the_rule_and_told(hub):
    put(hub, fairface_sample.labels_in_turn())
    found = opened()
    assert "its rows in another order than the list’s" in found.source
    assert counts(found) == {42, 43}


def test_only_what_is_needed_is_fetched(hub):
    labels = fairface_sample.labels_as_listed()
    file = fairface_sample.parquet(labels * 5, lambda i: png(i % 50) + random.randbytes(20_000))
    hub.put("datasets", "HuggingFaceM4/FairFace", {PATH: file})
    opened()
    assert 20_000 * 990 < hub.sent < 0.35 * len(file)


def test_a_hub_without_it_is_said(hub, home):
    with pytest.raises(InputError, match="was not found on the Hub"):
        opened()
    put(hub, fairface_sample.labels_in_turn(400))
    with pytest.raises(InputError, match="no longer holds the 600 rows"):
        opened()
    hub.faults.append(Fault("FairFace", status=500, times=100))
    with pytest.raises(InputError, match="fairface-600"):
        opened()
    assert not list(home.rglob("*.parquet"))


def test_photographs_are_the_first_of_a_set(hub):
    file = photographs([{"bytes": png(i % 50), "path": None} for i in range(310)], rows=50)
    hub.put("datasets", "bitmind/open-image-v7-256", {"data/train-00000-of-00009.parquet": file})
    found = open_images("open-images-300")
    assert len(found.images) == SOURCES["open-images-300"].excerpt == 300
    assert "CC BY 2.0" in found.source
    with pytest.raises(InputError, match="not a set of people"):
        open_gallery("open-images-300")
    with pytest.raises(InputError, match="'cifar10-300' was not found"):
        open_set("cifar10-300")
