"""The search on a toy model of which it is known what each head carries; searches kept beside results."""

from dataclasses import replace

import numpy as np
import pytest

from ccs import HeadSet, InputError, results
from ccs.analysis import search, task
from ccs.analysis.search import Limits
from ccs.analysis.task import Task, halves
from ccs.data.open import open_gallery
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias
from ccs.metrics.ranking import Ranking
from ccs.metrics.stats import Effect
from ccs.results import searches

HEADS = HeadSet.parse("L4.H0 L4.H1 L4.H2 L5.H0 L5.H1 L5.H2")


class ToyModel:
    """An image is what each head writes for it, [heads, d]; an embedding, the sum of those that are on."""

    heads = HEADS

    def embed_images(self, images, ablate=None):
        plans = [HeadSet()] if ablate is None else ablate
        head_factors = np.array([[head not in plan for head in HEADS] for plan in plans], dtype=float)
        whole = np.einsum("ph,nhd->pnd", head_factors, images) + 1e-3
        whole /= np.linalg.norm(whole, axis=2, keepdims=True)
        return whole[0] if ablate is None else whole


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
    known = {"groups": groups, "prompts": prompts, "labels": labels, "class_weights": weights}
    return Task(people=images[:people], controls=images[people:], k=60, **known)


def test_the_heads_that_carry_the_skew_are_found_and_the_classes_kept():
    result = search.search_halves(ToyModel(), *halves(toy(), 0), Limits(max_loss=0.03, min_reduction=0.04))
    assert str(result.heads) == "L4.H1 L5.H2"
    none = result.held_out[0]
    searched = next(point for point in result.held_out if point.ablation == "searched")
    assert searched.max_skew_change.high < 0
    assert searched.accuracy_change.value > -0.06
    assert none.accuracy.value > 0.8
    assert none.max_skew_change.p_value == 1
    assert [len(point.heads) for point in result.fitted[-3:]] == [0, 1, 2]


def test_halves_share_nothing_and_keep_the_mix():
    """People and controls are their numbers, prompts unit vectors."""
    known = {"groups": np.arange(400) % 5 < 2, "labels": np.arange(200) % 6, "class_weights": np.eye(6)}
    task = Task(people=np.arange(400), prompts=np.eye(12), controls=np.arange(200), k=60, **known)
    first_half, second_half = halves(task, 0)
    for name in ("people", "controls"):
        numbers = [*getattr(first_half, name), *getattr(second_half, name)]
        assert sorted(numbers) == getattr(task, name).tolist()
    assert (first_half.prompts.sum(0) + second_half.prompts.sum(0)).tolist() == [1] * 12
    counts = [np.unique(half.groups, return_counts=True)[1] for half in (first_half, second_half)]
    counts += [np.bincount(half.labels) for half in (first_half, second_half)]
    assert max(abs(counts[0] - counts[1]).max(), abs(counts[2] - counts[3]).max()) <= 1
    assert [(half.k, len(half.prompts)) for half in (first_half, second_half)] == [(30, 6)] * 2
    for half in (first_half, second_half):
        np.testing.assert_array_equal(half.groups, task.groups[half.people])
        np.testing.assert_array_equal(half.labels, task.labels[half.controls])
    pools = np.arange(400) % 12 == np.arange(12)[:, None]
    for half in halves(replace(task, pools=pools, k=8), 0):
        assert (half.k, half.pools.sum()) == (8, len(half.people))
        for prompt, pool in zip(half.prompts, half.pools, strict=True):
            np.testing.assert_array_equal(half.people[pool], np.flatnonzero(pools[prompt.argmax()]))
    first_units, second_units = (set(half.units) for half in halves(replace(task, units=task.people // 4), 0))
    assert not first_units & second_units


def test_an_answer_is_confirmed_by_the_intervals_of_skew_and_accuracy():
    skew = Effect(-0.3, -0.5, -0.1, 0.01)
    answers = {"confirmed": (-0.01, 0.0), "inconclusive": (-0.05, 0.01), "rejected": (-0.09, -0.03)}
    for expected, (low, high) in answers.items():
        accuracy = Effect((low + high) / 2, low, high, 0.2 if high >= 0 else 0.01)
        assert task.conclude(skew, accuracy, max_loss=0.02) == expected


def test_results_on_synthetic_faces_are_held_out_on_people_that_nothing_has_seen(monkeypatch):
    monkeypatch.setattr(task, "GALLERIES", 2)
    gallery = open_gallery("world/faces")
    people = task.draw_people(gallery, "gender,skin tone", 0)
    assert len(people.images) == len(people.groups["gender"]) == 1200
    assert people.k["gender"] == 2 * gallery.k["gender"]
    seeds = {scene.seed for scene in people.images.keys}
    assert len(seeds) == 1200
    others = task.draw_people(gallery, "gender", 1)
    for known in (gallery, others, open_gallery("world/faces", seed=0)):
        assert not seeds & {scene.seed for scene in known.images.keys}
    assert task.draw_people(replace(gallery, name="faces"), "gender", 0) is None


@pytest.mark.parametrize("with_pools", [True, False])
def test_the_figures_of_a_search_are_those_of_the_measurement(with_pools):
    """With a pool for each occupation, and with one for all; prompt by prompt, half by half."""
    pools = np.arange(400)[None] % 12 == np.arange(12)[:, None]
    task = replace(toy(), pools=pools, k=8) if with_pools else toy()
    result = search.search_halves(ToyModel(), *halves(task, 0), Limits(max_loss=0.03, max_heads=1))
    last, off = result.fitted[-1], next(point for point in result.held_out if point.ablation == "searched")
    fitted_half, held_out_half = halves(task, 0)
    for half, heads, skew, accuracy in (
        (fitted_half, last.heads, last.max_skew, last.accuracy),
        (held_out_half, off.heads, off.max_skew.value, off.accuracy.value),
    ):
        people, things = (ToyModel().embed_images(x, [heads])[0] for x in (half.people, half.controls))
        expected = [
            bias.measure(people[rows], Ranking(half.prompts[i : i + 1], half.groups[rows], half.k), draws=40)
            for i, rows in enumerate(half.pools if with_pools else np.ones((6, len(people)), bool))
        ]
        assert skew == pytest.approx(np.mean([measured.max_skew.values for measured in expected]))
        right = zeroshot.accuracy(things, half.class_weights, half.labels).top1
        assert accuracy == pytest.approx(right.value)


@pytest.fixture(scope="module")
def stored():
    """A search whose result comes with the package."""
    weights = results.read_results(results.PRECOMPUTED / "organism").manifest["model"]["weights_hash"]
    return searches.beside(results.PRECOMPUTED, "organism", weights)[0]


def test_searches_are_read_as_written_one_of_each_question_and_none_of_other_weights(stored, tmp_path):
    path = searches.keep(tmp_path, stored)
    assert path == tmp_path / "organism.search.json"
    assert list(tmp_path.iterdir()) == [path]
    assert searches.beside(tmp_path, stored.model, stored.weights_hash) == (stored,)
    again, other = replace(stored, seed=7), replace(stored, attribute="skin tone")
    for changed in (other, again):
        searches.keep(tmp_path, changed)
    assert searches.beside(tmp_path, stored.model, stored.weights_hash) == (again, other)
    fresh = replace(other, weights_hash="cd" * 32)
    assert searches.beside(tmp_path, stored.model, fresh.weights_hash) == ()
    assert searches.keep(tmp_path, fresh) == path
    assert searches.beside(tmp_path, stored.model, fresh.weights_hash) == (fresh,)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 9, "searches": []}', '{"version": 1, "searches": [{"k": 1}]}']
)
def test_a_broken_file_is_nothing_to_the_reader_and_an_error_to_the_writer(text, stored, tmp_path):
    path = searches.place(tmp_path, stored.model)
    path.write_text(text, "utf-8")
    assert searches.beside(tmp_path, stored.model, stored.weights_hash) == ()
    with pytest.raises(InputError, match=r"search\.json"):
        searches.keep(tmp_path, stored)
    assert path.read_text("utf-8") == text
