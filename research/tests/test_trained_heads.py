"""The variance that synthetic heads carry, and how well a high CCS finds trained heads."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from ccs.bundled import KnownHeads, Lesson, known_heads
from ccs.heads import Head, HeadSet
from ccs.model.head_statistics import Moments
from ccs.texts.pools import load_pool
from research.model_files import as_json
from research.world import taught_heads
from research.world.head_lessons import CONCEPTS, concept_texts
from research.world.head_shares import share
from research.world.ideal_heads import ideal_scores

WORLD = load_pool("world")
PURE, MIXED, FREE = Head(4, 0), Head(4, 1), Head(5, 0)


class PerfectModel:
    """A perfect model: each concept has its own direction, whatever the wording."""

    weights_hash = "f" * 64
    heads = HeadSet([PURE])

    class encoder:
        @staticmethod
        def rank(head: Head) -> int:
            return 32

    def embed_texts(self, texts: list[str]) -> np.ndarray:
        phrases = sorted({self._phrase(text) for text in WORLD.texts})
        rows = np.eye(len(phrases), dtype=np.float32)
        return rows[[phrases.index(self._phrase(text)) for text in texts]]

    @staticmethod
    def _phrase(text: str) -> str:
        for medium in ("a picture", "a drawing", "an image", "a photo"):
            for word in (" of ", " with ", " in "):
                text = text.removeprefix(medium + word)
        return text


def test_an_ideal_head_of_a_perfect_model_has_a_high_ccs():
    for concept, (score, spans) in ideal_scores(PerfectModel(), WORLD, cards=600).items():
        assert (score.label, score.ccs) == (concept, 5)
        assert len({PerfectModel._phrase(span.text) for span in spans}) == 5


def test_the_texts_of_a_target_are_in_the_pool():
    for concept in CONCEPTS:
        assert {WORLD.concept_of(text) for text in concept_texts(concept).values()} == {concept}


def test_shares_are_those_of_an_analysis_of_variance():
    """A head of noise has a share of 0, a head of the values only a share of 1."""
    rng = np.random.default_rng(0)
    values = rng.choice(["", "a", "b", "c"], 400)
    means = {value: rng.normal(size=6) for value in np.unique(values)}
    pure = np.array([means[value] for value in values])
    noise = rng.normal(size=(400, 6))
    effects = np.stack([pure, noise, pure + noise], axis=1)
    shares = share(effects, values)
    assert shares[0] == pytest.approx(1)
    assert shares[1] == pytest.approx(0, abs=0.02)
    within = total = 0.0
    for i, value in enumerate(values):
        within += float(((effects[i, 2] - effects[values == value, 2].mean(0)) ** 2).sum())
        total += float(((effects[i, 2] - effects[:, 2].mean(0)) ** 2).sum())
    assert shares[2] == pytest.approx(1 - (within / (400 - 4)) / (total / (400 - 1)))


def moments() -> tuple[Moments, np.ndarray]:
    """Three heads: one writes letters, one letters and foods, and one nothing that the pool names."""
    embeddings = PerfectModel().embed_texts(list(WORLD.texts))
    rng, basis = np.random.default_rng(0), []
    for concepts in (("Letters",), ("Letters", "Food"), ()):
        texts = [text for concept in concepts for text in concept_texts(concept).values()]
        places = [WORLD.texts.index(text) for text in texts]
        scale = rng.uniform(1, 2, (len(places), 1)).astype(np.float32)
        basis.append(embeddings[places] * scale if places else rng.normal(size=(16, embeddings.shape[1])))
    ones = [np.eye(len(rows)) * 100 for rows in basis]
    totals = [np.zeros(len(rows)) for rows in basis]
    heads = HeadSet([PURE, MIXED, FREE])
    return Moments("f" * 64, heads, 64, 100, totals, ones, basis), embeddings


def test_precision_and_recall_are_counted_by_concept_name():
    statistics, embeddings = moments()
    assert taught_heads.high_heads(statistics, WORLD, embeddings, [5])[5] == {PURE: "Letters"}
    right = taught_heads.find_taught(statistics, WORLD, embeddings, {PURE: "Letters", MIXED: "Food"})[0]
    assert (right.k, right.high, right.right, right.taught) == (5, 1, 1, 2)
    assert right.recall[1] <= 1
    wrong = taught_heads.find_taught(statistics, WORLD, embeddings, {PURE: "Food", FREE: "Letters"})[0]
    assert (wrong.high, wrong.right, wrong.taught) == (1, 0, 2)
    flat, expected = taught_heads.flat(WORLD, {PURE: "Letters"})
    assert taught_heads.high_heads(statistics, flat, embeddings, [5])[5] == expected


def test_ground_truth_is_read_as_it_was_written():
    lessons = {PURE: Lesson({"Letters": 1.0}), MIXED: Lesson({"Food": 0.5, "Flags": 0.5}, ("bread", "Peru"))}
    known = KnownHeads(lessons, {PURE: {"Letters": 0.98}, FREE: {"Letters": 0.1, "Food": 0.25}})
    assert TypeAdapter(KnownHeads).validate_json(as_json(known)) == known
    assert known.taught == {PURE: "Letters"}
    assert known_heads("../organism") is None
    assert known_heads("photo") is None
