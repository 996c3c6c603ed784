"""The search for heads on a toy model with known heads, and stored searches."""

from dataclasses import replace

import numpy as np
import pytest

from ccs import HeadSet, InputError, open_gallery, results
from ccs.analysis import search, task
from ccs.analysis.task import Task, halves
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import bias
from ccs.metrics.ranking import Ranking
from ccs.metrics.stats import Effect
from ccs.results import searches

HEADS = HeadSet.parse("L4.H0 L4.H1 L4.H2 L5.H0 L5.H1 L5.H2")


class ToyModel:
    """An image holds the outputs of its heads, [heads, d]; an embedding is the sum of those not ablated."""

    heads = HEADS

    def embed_images(self, images, ablate=None):
        sets = [HeadSet()] if ablate is None else ablate
        factors = np.array([[head not in ablated for head in HEADS] for ablated in sets], dtype=float)
        embeddings = np.einsum("sh,nhd->snd", factors, images) + 1e-3
        embeddings /= np.linalg.norm(embeddings, axis=2, keepdims=True)
        return embeddings[0] if ablate is None else embeddings


def make_task(people=400, controls=200):
    """Make people whose group L4.H1 and L5.H2 encode, and controls whose class L5.H0 encodes."""
    rng = np.random.default_rng(0)
    d, n = 16, people + controls
    images = 0.1 * rng.standard_normal((n, 6, d))
    images[:, 0, 0] += 1
    groups = rng.choice(["dark", "light"], people)
    sign = np.where(groups == "dark", 1.0, -1.0)
    labels = rng.integers(0, 6, controls)
    # Noise along the same directions keeps MaxSkew below its ceiling, where no head alone could lower it.
    images[:people, 2, 1:4] += 0.25 * rng.standard_normal((people, 3))
    images[:people, 1, 1] += 0.18 * sign
    images[:people, 5, 2] += 0.12 * sign
    images[:people, 3, 3] += 0.09 * sign
    images[people + np.arange(controls), 3, 4 + labels] += 0.8
    prompts = 0.2 * rng.standard_normal((12, d))
    prompts[:, 0] += 1
    prompts[:, 1:4] += rng.choice([-1, 1], (12, 1)) * rng.uniform(0.3, 1, (12, 1))
    weights = np.zeros((6, d))
    weights[np.arange(6), 4 + np.arange(6)] = 1
    weights[:, 0] = 0.5
    arrays = {"groups": groups, "prompts": prompts, "labels": labels, "class_weights": weights}
    return Task(people=images[:people], controls=images[people:], k=60, **arrays)


def find_searched(result):
    return next(point for point in result.held_out if point.ablation == "searched")


def test_search_finds_biased_heads_and_preserves_accuracy():
    limits = search.Limits(max_loss=0.03, min_reduction=0.04)
    result = search.search_halves(ToyModel(), *halves(make_task(), 0), limits)
    assert str(result.heads) == "L4.H1 L5.H2"
    unablated, searched = result.held_out[0], find_searched(result)
    assert searched.max_skew_change.high < 0
    assert searched.accuracy_change.value > -0.06
    assert unablated.accuracy.value > 0.8
    assert unablated.max_skew_change.p_value == 1
    assert [len(point.heads) for point in result.fitted[-3:]] == [0, 1, 2]


def test_halves_are_disjoint_and_balanced():
    """People and controls are numbers, and prompts unit vectors, to identify them in the halves."""
    arrays = {"groups": np.arange(400) % 5 < 2, "labels": np.arange(200) % 6, "class_weights": np.eye(6)}
    task = Task(people=np.arange(400), prompts=np.eye(12), controls=np.arange(200), k=60, **arrays)
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


def test_conclusion_follows_intervals_of_skew_and_accuracy():
    skew = Effect(-0.3, -0.5, -0.1, 0.01)
    intervals = {"confirmed": (-0.01, 0.0), "inconclusive": (-0.05, 0.01), "rejected": (-0.09, -0.03)}
    for expected, (low, high) in intervals.items():
        accuracy = Effect((low + high) / 2, low, high, 0.2 if high >= 0 else 0.01)
        assert task.conclude(skew, accuracy, max_loss=0.02) == expected


def test_held_out_faces_are_drawn_anew(monkeypatch):
    monkeypatch.setattr(task, "GALLERIES", 2)
    gallery = open_gallery("world/faces")
    people = task.draw_people(gallery, "gender,skin tone", 0)
    assert len(people.images) == len(people.groups["gender"]) == 1200
    assert people.k["gender"] == 2 * gallery.k["gender"]
    seeds = {scene.seed for scene in people.images.keys}
    assert len(seeds) == 1200
    others = task.draw_people(gallery, "gender", 1)
    for other in (gallery, others, open_gallery("world/faces", seed=0)):
        assert not seeds & {scene.seed for scene in other.images.keys}
    assert task.draw_people(replace(gallery, name="faces"), "gender", 0) is None


@pytest.mark.parametrize("with_pools", [True, False])
def test_search_results_match_direct_measurement(with_pools):
    pools = np.arange(400)[None] % 12 == np.arange(12)[:, None]
    task = replace(make_task(), pools=pools, k=8) if with_pools else make_task()
    result = search.search_halves(ToyModel(), *halves(task, 0), search.Limits(max_loss=0.03, max_heads=1))
    fitted, searched = result.fitted[-1], find_searched(result)
    fitted_half, held_out_half = halves(task, 0)
    for half, heads, skew, accuracy in (
        (fitted_half, fitted.heads, fitted.max_skew, fitted.accuracy),
        (held_out_half, searched.heads, searched.max_skew.value, searched.accuracy.value),
    ):
        people, controls = (ToyModel().embed_images(x, [heads])[0] for x in (half.people, half.controls))
        expected = [
            bias.measure(people[rows], Ranking(half.prompts[i : i + 1], half.groups[rows], half.k), draws=40)
            for i, rows in enumerate(half.pools if with_pools else np.ones((6, len(people)), bool))
        ]
        assert skew == pytest.approx(np.mean([measured.max_skew.values for measured in expected]))
        right = zeroshot.accuracy(controls, half.class_weights, half.labels).top1
        assert accuracy == pytest.approx(right.value)


@pytest.fixture(scope="module")
def stored():
    """A search from the bundled results."""
    weights = results.read_results(results.PRECOMPUTED / "organism").manifest["model"]["weights_hash"]
    return searches.beside(results.PRECOMPUTED, "organism", weights)[0]


def test_latest_search_per_question_and_weights_is_kept(stored, tmp_path):
    path = searches.keep(tmp_path, stored)
    assert path == tmp_path / "organism.search.json"
    assert list(tmp_path.iterdir()) == [path]
    assert searches.beside(tmp_path, stored.model, stored.weights_hash) == (stored,)
    repeated, other = replace(stored, seed=7), replace(stored, attribute="skin tone")
    for search_result in (other, repeated):
        searches.keep(tmp_path, search_result)
    assert searches.beside(tmp_path, stored.model, stored.weights_hash) == (repeated, other)
    retrained = replace(other, weights_hash="cd" * 32)
    assert searches.beside(tmp_path, stored.model, retrained.weights_hash) == ()
    assert searches.keep(tmp_path, retrained) == path
    assert searches.beside(tmp_path, stored.model, retrained.weights_hash) == (retrained,)


BROKEN_FILES = ["", "[]", "{}", '{"version": 9, "searches": []}', '{"version": 1, "searches": [{"k": 1}]}']


@pytest.mark.parametrize("text", BROKEN_FILES)
def test_broken_search_file_is_ignored_and_not_overwritten(text, stored, tmp_path):
    path = searches.place(tmp_path, stored.model)
    path.write_text(text, "utf-8")
    assert searches.beside(tmp_path, stored.model, stored.weights_hash) == ()
    with pytest.raises(InputError, match=r"search\.json"):
        searches.keep(tmp_path, stored)
    assert path.read_text("utf-8") == text
