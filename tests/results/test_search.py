"""The search on a toy model whose heads are known: which carry skew, which carry the classes, which do
nothing; and searches kept beside results.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccs import HeadSet, InputError
from ccs.batch import search as search_command
from ccs.measures import accuracy as zeroshot
from ccs.measures import bias
from ccs.measures.ranking import Ranking
from ccs.pruning import search
from ccs.pruning.plans import Plan
from ccs.pruning.search import Limits, Task
from ccs.results import searches
from ccs.results.searches import Search

HEADS = HeadSet.parse("L4.H0 L4.H1 L4.H2 L5.H0 L5.H1 L5.H2")


class ToyModel:
    """An image is what each head writes for it, [heads, d]; an embedding is the sum of the heads that are
    on.
    """

    heads = HEADS

    def embed_images(self, images, off=None):
        plans = [HeadSet()] if off is None else off
        kept = np.array([[head not in plan for head in HEADS] for plan in plans], dtype=float)
        whole = np.einsum("ph,nhd->pnd", kept, images) + 1e-3
        whole /= np.linalg.norm(whole, axis=2, keepdims=True)
        return whole[0] if off is None else whole


def toy(seed=0, people=400, things=200):
    """L4.H1 and L5.H2 write the group (skew); L5.H0 the class, and a little group; the others noise."""
    rng = np.random.default_rng(seed)
    d, n = 16, people + things
    images = 0.1 * rng.standard_normal((n, 6, d))
    images[:, 0, 0] += 1
    groups = rng.choice(["dark", "light"], people)
    sign = np.where(groups == "dark", 1.0, -1.0)
    labels = rng.integers(0, 6, things)
    # Noise along the same directions keeps MaxSkew below its ceiling, where no single head would lower it.
    images[:people, 2, 1:4] += 0.25 * rng.standard_normal((people, 3))
    images[:people, 1, 1] += 0.18 * sign
    images[:people, 5, 2] += 0.12 * sign
    images[:people, 3, 3] += 0.09 * sign
    images[people + np.arange(things), 3, 4 + labels] += 0.8
    prompts = 0.2 * rng.standard_normal((12, d))
    prompts[:, 0] += 1
    prompts[:, 1:4] += rng.choice([-1, 1], (12, 1)) * rng.uniform(0.3, 1, (12, 1))
    weights = np.zeros((6, d))
    weights[np.arange(6), 4 + np.arange(6)] = 1
    weights[:, 0] = 0.5
    return Task(
        people=images[:people],
        groups=groups,
        prompts=prompts,
        k=60,
        things=images[people:],
        labels=labels,
        class_weights=weights,
    )


def test_the_heads_that_carry_the_skew_are_found_and_the_classes_kept():
    found = search.search(ToyModel(), toy(), Limits(max_loss=0.03, least=0.04))
    assert str(found.off) == "L4.H1 L5.H2"
    none, searched = found.held_out[0], next(one for one in found.held_out if one.plan == "searched")
    assert searched.max_skew_change.high < 0
    assert searched.accuracy_change.value > -0.06
    assert none.accuracy.value > 0.8
    assert none.max_skew_change.p_value == 1
    assert [len(point.off) for point in found.path] == [0, 1, 2]


def test_path_figures_are_those_of_the_whole_set_on_the_half_that_was_seen():
    task = toy()
    seen, _ = search.halves(task, 0)
    for point in search.search(ToyModel(), task, Limits(max_loss=0.03)).path:
        people, things = (ToyModel().embed_images(x, [point.off])[0] for x in (seen.people, seen.things))
        expected = bias.measure(people, seen, draws=40)
        assert point.max_skew == pytest.approx(expected.max_skew.mean.value)
        right = zeroshot.accuracy(things, seen.class_weights, seen.labels)
        assert point.accuracy == pytest.approx(right.top1.value)


def test_halves_share_nothing_and_keep_the_mix():
    task = toy()
    one, two = search.halves(task, 0)
    both = np.concatenate([one.people, two.people])
    assert sorted(map(tuple, both.reshape(400, -1))) == sorted(map(tuple, task.people.reshape(400, -1)))
    assert len({p.tobytes() for p in one.people} & {p.tobytes() for p in two.people}) == 0
    assert len(one.prompts) == len(two.prompts) == 6
    assert not (one.prompts[:, None] == two.prompts[None]).all(axis=2).any()
    dark = [(half.groups == "dark").sum() for half in (one, two)]
    assert abs(dark[0] - dark[1]) <= 1
    assert max(abs((one.labels == c).sum() - (two.labels == c).sum()) for c in range(6)) <= 1
    assert one.k == two.k == 30


def test_halves_of_people_with_pools_are_those_of_their_prompts():
    pools = np.arange(400)[None] % 12 == np.arange(12)[:, None]
    task = replace(toy(), pools=pools, units=np.arange(400) // 4, k=8)
    for half in search.halves(task, 0):
        assert half.pools.shape == (6, len(half.people))
        assert (half.pools.sum(axis=0) == 1).all()
        assert half.k == 8
        for own, prompt in zip(half.pools, half.prompts, strict=True):
            place = int((task.prompts == prompt).all(axis=1).argmax())
            np.testing.assert_array_equal(half.people[own], task.people[pools[place]])
    one, other = (set(half.units) for half in search.halves(replace(task, pools=None), 0))
    assert not one & other


def test_other_sets_stand_beside():
    beside = [Plan("high", None, HeadSet.parse("L5.H0"), ""), Plan("random", 3, HeadSet.parse("L4.H2"), "")]
    said = []
    found = search.search(ToyModel(), toy(), Limits(max_loss=0.03), beside=beside, tell=said.append)
    assert {"none", "searched", "step 1", "high", "random"} <= {one.plan for one in found.held_out}
    assert any("candidates" in line for line in said)
    again = search.search(ToyModel(), toy(), Limits(max_loss=0.03), beside=beside)
    assert (again.off, again.held_out) == (found.off, found.held_out)


def test_the_command_searches_prints_and_writes(tiny_folder, tmp_path, capsys):
    out = tmp_path / "found.json"
    command = ["--model", str(tiny_folder), "--people", "world/faces", "--things", "world/subjects"]
    command += ["--max-images", "40", "--max-heads", "1", "--screen", "1", "--max-loss", "1"]
    assert search_command.main([*command, "--attribute", "skin tone", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Chance: MaxSkew" in said
    assert "Answer:" in said
    written = json.loads(out.read_text("utf-8"))
    assert written["attribute"] == "skin tone"
    assert written["unseen"][0]["plan"] == "none"
    assert written["unseen"][0]["max_skew"]["value"] > 0
    assert len(written["weights_hash"]) == 64
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--max-heads", "0"], "1 or more heads"),
        (["--out", "/nowhere/at/all.json"], "/nowhere/at"),
    ],
)
def test_the_command_answers_a_mistake_with_a_sentence(tiny_folder, change, says, capsys):
    assert search_command.main(["--model", str(tiny_folder), "--max-images", "20", *change]) == 2
    said = capsys.readouterr().err
    assert "\nerror: " in said
    assert says in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": 1}, "cut-off of 2"),
        ({"prompts": np.ones((1, 16))}, "2 or more prompts"),
        ({"things": np.ones((3, 6, 16))}, "3 with 200"),
    ],
)
def test_search_refuses(change, says):
    with pytest.raises(InputError, match=says):
        search.search(ToyModel(), replace(toy(), **change))


def test_the_figures_of_a_search_with_pools_are_those_of_the_measurement():
    pools = np.arange(400)[None] % 12 == np.arange(12)[:, None]
    task = replace(toy(), pools=pools, k=8)
    found = search.search(ToyModel(), task, Limits(max_heads=1))
    seen, unseen = search.halves(task, 0)
    for half, value in (seen, found.path[0].max_skew), (unseen, found.held_out[0].max_skew.value):
        people = ToyModel().embed_images(half.people)
        expected = [
            bias.measure(people[own], Ranking(half.prompts[i : i + 1], half.groups[own], 8), draws=40)
            for i, own in enumerate(half.pools)
        ]
        assert value == pytest.approx(np.mean([one.max_skew.values for one in expected]))


# Searches kept beside results: read back as written, replaced by the same question, useless where stale.

LIMITS = Limits(max_loss=0.03, least=0.04)


@pytest.fixture(scope="module")
def made() -> Search:
    beside = [Plan("random", 3, ToyModel.heads - {*list(ToyModel.heads)[:4]}, "")]
    found = search.search(ToyModel(), toy(), LIMITS, beside=beside)
    return Search(
        model="ViT/toy",
        weights_hash="ab" * 32,
        people="faces",
        attribute="gender",
        things="subjects",
        prompts=("a cook", "a judge"),
        templates=("{}",),
        k=60,
        seed=0,
        limits=LIMITS,
        heads=found.off,
        seen=(*found.singles, *found.path),
        unseen=found.held_out,
    )


def test_a_search_is_read_as_it_was_written(made: Search, tmp_path: Path) -> None:
    path = searches.keep(tmp_path, made)
    assert path == tmp_path / "ViT--toy.search.json"
    assert list(tmp_path.iterdir()) == [path]
    assert searches.beside(tmp_path, made.model, made.weights_hash) == (made,)
    assert {one.plan for one in made.unseen} == {"none", "searched", "step 1", "random"}
    assert [one.seed for one in made.unseen if one.plan == "random"] == [3]


def test_the_same_question_is_kept_once_and_another_beside_it(made: Search, tmp_path: Path) -> None:
    again, other = replace(made, seed=7), replace(made, attribute="skin tone")
    for one in (made, other, again):
        searches.keep(tmp_path, one)
    assert searches.beside(tmp_path, made.model, made.weights_hash) == (again, other)


def test_searches_of_other_weights_are_left_out(made: Search, tmp_path: Path) -> None:
    path = searches.keep(tmp_path, made)
    assert searches.beside(tmp_path, made.model, "cd" * 32) == ()
    fresh = replace(made, weights_hash="cd" * 32, attribute="skin tone")
    assert searches.keep(tmp_path, fresh) == path
    assert searches.beside(tmp_path, made.model, "cd" * 32) == (fresh,)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 9, "searches": []}', '{"version": 1, "searches": [{"k": 1}]}']
)
def test_a_broken_file_is_nothing_to_the_reader_and_an_error_to_the_writer(
    text: str, made: Search, tmp_path: Path
) -> None:
    path = searches.place(tmp_path, made.model)
    path.write_text(text, "utf-8")
    assert searches.beside(tmp_path, made.model, made.weights_hash) == ()
    with pytest.raises(InputError, match=r"search\.json"):
        searches.keep(tmp_path, made)
    assert path.read_text("utf-8") == text
