"""Which method finds planted bias, as the report says it: of opposite tables the opposite."""

from __future__ import annotations

import pandas as pd
import pytest

from batch.report.sections.localization import against, scored, sentence, ways
from ccs.results.localization import PLANTED

HEADS = [(layer, head) for layer in (4, 5) for head in range(4)]
PLANTED_HEADS = [(4, 1), (5, 2)]
CARRIES = {(4, 1): 0.7, (5, 2): 0.3}
OTHERS = [head for head in HEADS if head not in PLANTED_HEADS]
GOOD, BAD = [*PLANTED_HEADS, *OTHERS], [*OTHERS, *PLANTED_HEADS]


def ranked(model, method, order, attribute="gender", worth=0.2, seed=0):
    """Each planted head takes `worth` of MaxSkew away, each other one costs a point of accuracy."""
    rows, skew, accuracy = [], 0.6, 0.9
    for rank, head in enumerate(order, 1):
        planted = head in PLANTED_HEADS
        skew, accuracy = (skew - worth, accuracy) if planted else (skew, accuracy - 0.01)
        rows.append(
            {"model": model, "weights": "a" * 16, "dataset": "world/faces", "attribute": attribute}
            | {"method": method, "layer": head[0], "head": head[1], "rank": rank, "score": -rank}
            | {"planted": planted, "carries": CARRIES.get(head, 0.0), "max_skew": skew, "seed": seed}
            | {"accuracy": accuracy, "max_skew_none": 0.6, "accuracy_none": 0.9, "chance": 0.1}
        )
    return rows


def table(search, other, models=("a", "b", "c", "d")):
    rows = []
    for number, model in enumerate(models):
        swapped = [*search[1:2], *search[:1], *search[2:]] if number % 2 else search
        rows += ranked(model, "search", swapped) + ranked(model, "total effect", other)
        rows += ranked(model, PLANTED, PLANTED_HEADS)
    return pd.DataFrame(rows).astype({"planted": "boolean"})


def test_figures_of_a_way_are_those_of_its_ranking():
    by_name = {way.method: way for way in ways(scored(table(GOOD, BAD)))}
    assert list(by_name) == [PLANTED, "search", "total effect"]
    assert by_name["search"].found.value == 1
    assert by_name["search"].taken.value == pytest.approx(0.4)
    assert by_name["search"].lost.value == 0
    assert by_name["total effect"].hits.value == 0
    assert by_name["total effect"].found.value == pytest.approx((1 / 7 + 2 / 8) / 2)
    assert by_name["total effect"].lost.value == pytest.approx(0.02)


def test_the_sentence_turns_round_with_the_truth():
    for search, other, best in ((GOOD, BAD, "search"), (BAD, GOOD, "total effect")):
        cases = scored(table(search, other))
        assert f"**{best}** ranks first with an average precision of 1.00" in sentence(cases)
        difference = against(cases, "search", "total effect")
        assert (difference.value > 0.5) == (best == "search")
        assert f"{abs(difference.value):+.2f}" in sentence(cases)
        assert "not shown to be a difference" not in sentence(cases)
    alike = sentence(scored(table(GOOD, GOOD)))
    assert "not shown to be a difference" in alike


def test_an_attribute_that_did_not_take_is_left_out():
    rows = ranked("a", "search", GOOD, worth=0.01) + ranked("a", PLANTED, PLANTED_HEADS, worth=0.01)
    assert len(scored(pd.DataFrame(rows).astype({"planted": "boolean"}))) == 0
