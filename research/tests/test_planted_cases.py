"""The study's questions on organisms with planted heads: answers that would be others elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from research.planted import planted_cases as study
from research.planted.bench import Row


def rows_of(model: str, gap: dict[str, float], attribute: str = "gender") -> list[Row]:
    return [
        {"model": model, "carries": [attribute], "plan": plan, "off": ""}
        | {f"{what} {name}": value for what in ("gap", "MaxSkew") for name in ("gender", "skin tone")}
        for plan, value in gap.items()
    ]


def heads_of(model: str, high: float) -> list[Row]:
    """Of the gap `high` sits in a head of high CCS, the rest in one of low; before it was the other way."""
    shares = {"L5.H0": (5, 1, high), "L6.H1": (1, 5, 1 - high), "L7.H2": (3, 3, 0.0)}
    about: Row = {"model": model, "planted": ["gender"]}
    return [
        about | {"head": name, "ccs": ccs, "was": was, "share": {"gender": share}}
        for name, (ccs, was, share) in shares.items()
    ]


def world(lowered: Any) -> pd.DataFrame:
    """Twelve models whose high heads hold 0 to 100% of the bias; lowered: that share -> what goes with it."""
    rng = np.random.default_rng(0)
    rows, heads = [], []
    for i, high in enumerate(np.linspace(0, 1, 12)):
        gap = {"none": 1.0, "planted": 0.0, "high": 1 - lowered(high) + rng.normal(0, 0.02)}
        rows += rows_of(f"m{i}", gap | {"random for high": 0.9, "other": 0.7})
        heads += heads_of(f"m{i}", float(high))
    return study.cases(rows, heads)


def test_pruning_lowers_bias_where_it_sits() -> None:
    found = study.when(world(lambda high: high))
    assert found.with_share.value > 0.9
    assert found.sentence().startswith("Pruning the high-CCS heads lowers bias more where")
    assert found.lowered["high"][0] == found.lowered["other"][0] == 6
    assert found.lowered["high"][1].low > found.lowered["other"][1].high
    assert "the effect is more than that of pruning random heads" in found.sentence()


@pytest.mark.parametrize(
    ("lowered", "words"),
    [
        (lambda high: 0.5, "is not shown to lower bias more where"),
        (lambda high: 1 - high, "lowers bias less where more of it sits in them"),
        (lambda high: -high, "the effect is less than that of pruning random heads"),
        (lambda high: 0.1, "not shown to be more than that of pruning random heads"),
        (lambda high: 0.1, "and less than that of pruning all other heads"),
        (lambda high: 0.3, "and not shown to be more than that of pruning all other heads"),
        (lambda high: 0.5, "and more than that of pruning all other heads"),
    ],
)
def test_where_the_opposite_holds_the_sentence_says_so(lowered: Any, words: str) -> None:
    assert words in study.when(world(lowered)).sentence()


def test_organisms_without_a_high_head_are_said_to_tell_nothing() -> None:
    rows, heads = [], []
    for i in range(4):
        rows += rows_of(f"m{i}", {"none": 1.0, "planted": 0.0, "high": 1.0})
        heads += [one for one in heads_of(f"m{i}", 0.0) if one["ccs"] < 5]
    sentence = study.when(study.cases(rows, heads)).sentence()
    assert "is not shown to lower bias" in sentence
    assert "the same in every model" in sentence
    assert "nan" not in sentence


def test_ccs_before_the_skew_was_planted_is_told_apart() -> None:
    rows = rows_of(
        "m",
        {"none": 1.0, "planted": 0.0, "high": 0.9, "other": 0.7}
        | {"was high": 0.2, "random for was high": 1.0, "was other": 0.8},
    )
    heads = heads_of("m", 0.1)
    now, before = (study.cases(rows, heads, before=one).iloc[0] for one in (False, True))
    assert (now["lies"], before["lies"]) == ("other", "high")
    assert (now["lowered"], before["lowered"]) == (pytest.approx(0.1), pytest.approx(0.8))
    assert (now["random"], before["random"]) == (0, 0)
    assert (now["other"], before["other"]) == (pytest.approx(0.3), pytest.approx(0.2))


@pytest.mark.parametrize(
    ("high", "words", "had"),
    [
        (1.0, "have a high CCS more often than other heads: 8 of the 8 heads", 0),
        (0.0, "have a high CCS less often than other heads: 0 of the 8 heads", 8),
        (0.5, "are not shown to have a high CCS more or less often than other heads: 8 of the 16 heads", 8),
    ],
)
def test_where_planted_bias_sits(high: float, words: str, had: int) -> None:
    """Half of the heads that carry nothing are of high CCS where both carriers are even, else none."""
    heads = []
    for i in range(8):
        heads += heads_of(f"m{i}", high)
        heads += [{**heads_of(f"m{i}", high)[2], "head": "L7.H3", "ccs": 5 if high == 0.5 else 3}]
    found = study.carriers(heads)
    assert words in found
    assert f"Before planting, {had} of these heads had one" in found
