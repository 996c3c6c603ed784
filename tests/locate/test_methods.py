"""Each method of finding heads on a model in which the head that carries the groups is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ccs import Head, InputError, locate
from ccs.heads import HeadSet
from ccs.locate.base import ranking
from ccs.locate.scoring import average_precision, first, precision
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span
from tests.support.locate_sample import WRITER, sample

FROM_IMAGES = (
    *("concept activation vectors", "expert heads", "direct effect", "total effect", "activation patching"),
    *("patching by gradient", "search"),
)


@pytest.fixture(scope="module")
def evidence(tiny_folder, pictures):
    return sample(tiny_folder, pictures)


@pytest.mark.parametrize("name", FROM_IMAGES)
def test_the_head_that_writes_the_groups_comes_first(evidence, name):
    scores = locate.METHODS[name](evidence)
    assert HeadSet(scores) == evidence.model.heads
    assert ranking(scores)[0] == WRITER


@pytest.mark.parametrize("name", FROM_IMAGES)
def test_with_groups_that_no_head_writes_it_does_not(evidence, name):
    """Fails a method that would name this head whatever it is asked, for it writes most of all."""
    drawn = np.random.default_rng(4).permutation(np.asarray(evidence.task.groups))
    other = replace(evidence, task=replace(evidence.task, groups=drawn), names={"one": ("a",), "two": ("b",)})
    assert locate.METHODS[name](other)[WRITER] < locate.METHODS[name](evidence)[WRITER]


def test_locate_then_correct_tells_heads_of_biased_answers_from_those_of_others(evidence):
    """Of group one all but five answer the first prompt, led by the WRITER; those five by another head."""
    codes = np.arange(40) % 2
    right, other = np.isin(np.arange(40), range(0, 10, 2)), Head(5, 1)
    heads = list(evidence.model.heads)
    direct = np.zeros((40, len(heads), 3), np.float32)
    direct[:, heads.index(Head(2, 0)), 2] = 1  # writes most, and nothing that decides
    direct[(codes == 0) & ~right, heads.index(WRITER), 0] = 0.3
    direct[right | (codes == 1), heads.index(other), 1] = 0.3
    task = replace(evidence.task, groups=codes.astype(str), prompts=np.eye(3)[:2])
    seen = replace(evidence, task=task)
    vars(seen)["seen"] = direct.sum(axis=1), direct
    scores = locate.METHODS["Locate-Then-Correct"](seen)
    assert scores[WRITER] == 1
    assert scores[other] == -1
    assert {score for head, score in scores.items() if head not in (WRITER, other)} == {0}


def test_heads_by_ccs(evidence):
    some = list(evidence.model.heads)[:4]
    spans = {head: [Span("text 1", share, 0)] for head, share in zip(some, (0.1, 0.2, 0.9, 0.3), strict=True)}
    scores = {head: HeadScore(ccs, "Colors") for head, ccs in zip(some, (5, 5, None, 0), strict=True)}
    told = replace(evidence, spans=spans, scores=scores)
    assert ranking(locate.METHODS["CCS high first"](told)) == (some[1], some[0], some[3], some[2])
    assert ranking(locate.METHODS["CCS low first"](told)) == (some[3], some[0], some[1], some[2])


def test_heads_labeled_people_come_first_then_those_with_texts_of_people(evidence):
    some = list(evidence.model.heads)[:4]
    labels = ("Colors", "Women", "Colors", None)
    shares = ((0, 0.2), (0.1, 0.3), (0.4, 0.3), (0.1, 0.1))  # of a text of women, of a text of colors
    spans = {
        head: [Span("text 0", women, 0), Span("text 1", colors, 1)]
        for head, (women, colors) in zip(some, shares, strict=True)
    }
    scores = {head: HeadScore(5, label) for head, label in zip(some, labels, strict=True)}
    found = locate.METHODS["label People"](replace(evidence, spans=spans, scores=scores))
    assert ranking(found) == (some[1], some[2], some[3], some[0])


def test_texts_of_the_groups_explain_the_head_that_writes_the_groups(evidence):
    found = locate.METHODS["TEXTSPAN, texts of the groups"](evidence)
    assert ranking(found)[0] == WRITER
    assert 0.2 < found[WRITER] <= 1


def test_rankings_are_scored_against_planted_heads():
    order = [Head(0, h) for h in (3, 1, 4, 0, 2)]
    planted = HeadSet([Head(0, 3), Head(0, 4)])
    assert average_precision(order, planted) == pytest.approx((1 + 2 / 3) / 2)
    assert precision(order, planted) == 0.5
    assert average_precision(order, HeadSet([Head(0, 3), Head(9, 9)])) == 0.5
    assert [str(off) for off in first(order, 3)] == ["L0.H3", "L0.H1 L0.H3", "L0.H1 L0.H3 L0.H4"]
    with pytest.raises(InputError, match="planted"):
        precision(order, HeadSet())
