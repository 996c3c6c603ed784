"""The command that ranks heads by every method: what it writes, that it continues, how it refuses."""

from __future__ import annotations

import pytest

import batch.localize
import ccs
from ccs import HeadSet
from ccs.locate.scoring import MOST
from ccs.results import localization
from ccs.search import Task, halves, measure

SMALL = ["--moments", "40", "--max-images", "40", "--splits", "1", "--attribute", "gender"]
SOME = ["--method", "random", "--method", "total effect"]


@pytest.fixture(scope="module")
def written(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    assert batch.localize.main(["--model", str(tiny_folder), "--out", str(out), *SMALL, *SOME]) == 0
    return out


def test_every_head_is_ranked_by_each_way(written, tiny_model):
    found = localization.read(written)
    assert set(found["method"]) == {"random", "total effect"}
    for _, one in found.groupby("method"):
        one = one.sort_values("rank")
        assert one["rank"].tolist() == list(range(1, len(tiny_model.heads) + 1))
        assert one["score"].is_monotonic_decreasing
        assert one["max_skew"].notna().tolist() == [rank <= MOST for rank in one["rank"]]
    assert found["planted"].isna().all()
    assert set(found["weights"]) == {tiny_model.weights_hash[:16]}


def test_what_is_reached_is_measured_on_the_other_half(written, tiny_model):
    """The first two heads off, on the half that the ranking did not see, in a forward pass of their own."""
    found = localization.read(written)
    first = found[(found["method"] == "total effect") & (found["rank"] <= 2)].sort_values("rank")
    off = HeadSet(ccs.Head(*head) for head in zip(first["layer"], first["head"], strict=True))
    args = batch.localize.Settings(max_images=40)
    people, things = batch.localize.open_sets(args, ["gender"])
    whole = batch.localize.make_task(tiny_model, people, things, "gender")
    unseen = halves(whole, 0)[1]
    assert isinstance(unseen, Task)
    point = measure(tiny_model, unseen, [off])[0]
    assert first.iloc[1]["max_skew"] == pytest.approx(point.max_skew, abs=1e-9)
    assert first.iloc[1]["accuracy"] == pytest.approx(point.accuracy, abs=1e-9)


def test_each_split_is_kept_and_only_a_missing_one_is_done(tiny_folder, tmp_path, capsys):
    command = ["--model", str(tiny_folder), "--out", str(tmp_path), *SMALL[:4], "--attribute", "gender"]
    assert batch.localize.main([*command, "--splits", "1", "--method", "total effect"]) == 0
    first = localization.read(tmp_path)
    capsys.readouterr()
    assert batch.localize.main([*command, "--splits", "2", "--method", "total effect"]) == 0
    assert "split 1 of 2: 0 of 1 methods" in (said := capsys.readouterr().out)
    assert "split 2 of 2: 1 of 1 methods" in said
    both = localization.read(tmp_path)
    assert both[both["seed"] == 0].reset_index(drop=True).equals(first.reset_index(drop=True))
    scores = [own.set_index(["layer", "head"])["score"] for _, own in both.groupby("seed")]
    assert len(scores) == 2
    assert not scores[0].sort_index().equals(scores[1].sort_index())


def test_planted_heads_stand_beside_the_ways_of_looking(tiny_folder, tmp_path, monkeypatch):
    one, two = ccs.Head(3, 1), ccs.Head(5, 0)
    monkeypatch.setattr(batch.localize, "planted_heads", lambda *_: {"gender": {one: 0.2, two: 0.7}})
    command = ["--model", str(tiny_folder), "--out", str(tmp_path), *SMALL[:6], "--method", "random"]
    assert batch.localize.main(command) == 0  # of all attributes the planted one alone
    found = localization.read(tmp_path)
    assert set(found["attribute"]) == {"gender"}
    truth = localization.orders(found, method=localization.PLANTED)[localization.PLANTED]
    assert truth == (two, one)
    looked = found[found["method"] == "random"]
    marked = looked[looked["planted"].astype(bool)]
    assert set(zip(marked["layer"], marked["head"], marked["carries"], strict=True)) == {
        (3, 1, 0.2),
        (5, 0, 0.7),
    }
    assert set(looked[~looked["planted"].astype(bool)]["carries"]) == {0.0}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--method", "guessing"], "no method 'guessing'; there are CCS high first"),
        (["--attribute", "age"], "no attribute 'age'; it has gender, skin tone"),
        (["--moments", "1"], "--moments is 1, but must be at least 2"),
    ],
)
def test_a_mistake_is_answered_in_a_sentence(tiny_folder, tmp_path, change, says, capsys):
    command = ["--out", str(tmp_path), "--method", "random", "--max-images", "20", *change]
    command += [] if "--model" in change else ["--model", str(tiny_folder)]
    assert batch.localize.main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert says in said
    assert list(tmp_path.iterdir()) == []
