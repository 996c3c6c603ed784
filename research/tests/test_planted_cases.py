"""The study's questions on organisms with planted heads: answers that would be others elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ccs.results import Results
from research.planted import planted_cases as study
from research.planted import planted_page as page
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
        rows += rows_of(f"m{i}", gap | {"random for high": 0.9, "low": 0.7})
        heads += heads_of(f"m{i}", float(high))
    return study.cases(rows, heads)


def test_pruning_lowers_bias_where_it_sits() -> None:
    found = study.when(world(lambda high: high))
    assert found.with_share.value > 0.9
    assert found.sentence().startswith("Pruning the high-CCS heads lowers bias more where")
    assert found.lowered["high"][0] == found.lowered["low"][0] == 6
    assert found.lowered["high"][1].low > found.lowered["low"][1].high
    assert "the effect is more than that of pruning random heads" in found.sentence()


@pytest.mark.parametrize(
    ("lowered", "words"),
    [
        (lambda high: 0.5, "is not shown to lower bias more where"),
        (lambda high: 1 - high, "lowers bias less where more of it sits in them"),
        (lambda high: -high, "the effect is less than that of pruning random heads"),
        (lambda high: 0.1, "not shown to be more than that of pruning random heads"),
        (lambda high: 0.1, "and less than that of pruning the low-CCS heads"),
        (lambda high: 0.3, "and not shown to be more than that of pruning the low-CCS heads"),
        (lambda high: 0.5, "and more than that of pruning the low-CCS heads"),
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
        {"none": 1.0, "planted": 0.0, "high": 0.9, "low": 0.7}
        | {"was high": 0.2, "random for was high": 1.0, "was low": 0.8},
    )
    heads = heads_of("m", 0.1)
    now, before = (study.cases(rows, heads, before=one).iloc[0] for one in (False, True))
    assert (now["lies"], before["lies"]) == ("low", "high")
    assert (now["lowered"], before["lowered"]) == (pytest.approx(0.1), pytest.approx(0.8))
    assert (now["random"], before["random"]) == (0, 0)
    assert (now["low"], before["low"]) == (pytest.approx(0.3), pytest.approx(0.2))


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


def taught(concepts: list[str], ccs: int, label: str, pure: float | None = 0.6, where: str = "spread") -> Row:
    return {"model": "m", "planted": concepts, "ccs": ccs, "label": label, "pure": pure, "where": where}


def test_precision_and_recall_of_high_ccs() -> None:
    heads = [
        taught(["Colors"], 5, "Colors"),
        taught(["Colors"], 5, "Backgrounds"),  # high, but its label is not its concept
        taught(["People"], 5, "Skin tones"),  # under People
        taught(["People"], 4, "People"),
        taught(["Colors", "People"], 5, "Colors"),  # high, but of two concepts
        taught(["Colors", "People"], 2, "Colors"),
        taught(["Colors"], 5, "Colors", 0.1),  # it has not learned it
        taught(["gender"], 5, "Men", None),  # no concept
        taught(["Colors"], 5, "Colors", 0.9, "all"),  # never taught the texts
    ]
    ideal = {
        "Colors": taught([], 5, "Colors"),
        "People": taught([], 5, "Men"),
        "Flags": taught([], 4, "Flags"),
    }
    found = study.concepts_found(heads, ideal)
    assert "2 of 4 heads that learned one concept" in found
    assert "3 of 4 taught heads" in found
    assert "2 of 3 concepts (Colors, People)" in found
    assert "1 of 1 concepts (none)" not in study.concepts_found(heads, {"Flags": ideal["Flags"]})
    assert "0 of 1 concepts (none)" in study.concepts_found(heads, {"Flags": ideal["Flags"]})


@pytest.mark.parametrize(
    ("label", "words"), [("Colors", "2 of these 3 heads"), ("Styles", "1 of these 3 heads")]
)
def test_heads_of_one_concept_need_not_have_a_high_ccs(label: str, words: str) -> None:
    heads = [
        taught(["Colors"], 5, label, 0.9, "all"),
        taught(["Colors"], 5, "Colors", 0.7, "all"),
        taught(["Places"], 2, "Places", 0.8, "all"),
        taught(["Places"], 5, "Places"),
    ]
    found = study.alone(heads)
    assert "70 to 90% of its variance (median 80%)" in found
    other = 0 if label == "Colors" else 1
    assert f"{words} got a high CCS under that concept's name, and {other} under another name." in found
    assert study.alone(heads[3:]) == ""


def test_the_model_with_the_most_concepts_among_its_high_heads_is_named() -> None:
    def row(model: str, ccs: int, label: str) -> Any:
        return {"model": model, "ccs": ccs, "label": label}

    heads = [row("a", 5, "Men"), row("a", 5, "Men"), row("a", 4, "Flags"), row("b", 5, "Flags")]
    assert (
        study.richest([*heads, row("b", 5, "Birds")]) == "The high heads of b have 2 concepts (Birds, Flags)."
    )
    assert "heads of a have 2 concepts (Birds, Men)" in study.richest([*heads, row("a", 5, "Birds")])
    even = [row("a", 5, "Men"), row("b", 5, "Flags"), row("c", 5, "Men")]
    assert study.richest(even) == (
        "The high heads of a and c have 1 concept (Men). The high heads of b have 1 concept (Flags)."
    )
    assert study.richest([row("a", 4, "Men")]) == "No model has a high head."


def test_concept_plans_are_shown_at_the_main_k_alone() -> None:
    rows = [
        {"plan": plan, "dataset": f"world/{name}", "metric": "top1", "subset": "", "difference": change}
        | {"difference_low": change - 0.01, "difference_high": change + 0.01, "p_value": 0.5}
        for plan, name, change in (
            ("concept:Colors", "colors", -0.2), ("concept:Colors", "places", 0.03), ("high", "colors", -0.5),
            ("concept:Colors@7", "colors", -0.4), ("concept:Hair", "colors", 0.0),
        )
    ]  # fmt: skip
    found = Results("organism-concept-07", Path(), {"pruning": pd.DataFrame(rows)}, {})
    assert page._concept_accuracy(found) == [
        {"heads off": "Colors", "colors": "-20.0 (-21.0 to -19.0)", "places": "+3.0 (+2.0 to +4.0)"},
        {"heads off": "Hair", "colors": "+0.0 (-1.0 to +1.0)"},
    ]


def test_what_concept_plans_change_in_rankings_of_plain_faces() -> None:
    rows = [
        {"plan": plan, "dataset": f"world/{name}", "attribute": "gender", "metric": metric}
        | {"mode": "correct", "target": "pool", "difference": change, "p_value": 0.5}
        | {"difference_low": change - 0.01, "difference_high": change + 0.01}
        for plan, name, metric, change in (
            ("concept:Men", "faces", "MaxSkew mean", -0.2), ("concept:Men", "faces", "logit gap mean", -0.5),
            ("concept:Men", "faces", "MaxSkew sum", -9.0), ("concept:Men", "other", "MaxSkew mean", -0.3),
            ("concept:Men", "other", "logit gap mean", -0.3), ("high", "faces", "MaxSkew mean", 0.1),
        )
    ]  # fmt: skip
    found = Results("organism-concept-08", Path(), {"bias": pd.DataFrame(rows)}, {})
    assert page._concept_bias(found) == [
        {"heads off": "Men"}
        | {"MaxSkew, gender": "-0.200 (-0.210 to -0.190)", "gap, gender": "-0.500 (-0.510 to -0.490)"}
    ]
