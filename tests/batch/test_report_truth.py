"""The report's section on the organism: planted against ranked shares, heads, searches, people and judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from batch.report import planted_truth
from batch.report.sections import agreement as report_agreement
from batch.report.sections import questions
from ccs import results
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.measures.stats import Effect, Estimate
from ccs.results import schema, searches
from ccs.results.searches import Search
from ccs.search import HeldOut, Limits, Point
from ccs.world import planted
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from tests.support.report_sample import (
    WEIGHTS,
    bias_rows,
    line,
    pruning_rows,
    run,
    score_rows,
    section,
    write,
)

GROUPS: Mapping[str, tuple[str, ...]] = {"gender": tuple(GENDERS), "skin tone": tuple(SKIN_TONES)}
CARRIER = Head(5, 5)
"""In the organism of these tables the only head that carries the planted skew of gender."""


def share_rows(model: str, attribute: str, world: str, plan: str) -> list[dict[str, Any]]:
    """The top K's shares are the planted ones, or even where the plan has taken the skew away."""
    even = 1 / len(GROUPS[attribute])
    about = bias_rows(model, "world/faces", {"none": 0.0})[0] | {"attribute": attribute, "plan": plan}
    about |= {"chance": even, "chance_low": even - 0.1, "chance_high": even + 0.1}
    return [
        about | {"occupation": occupation, "metric": f"{schema.TOP_SHARE}{group}", "value": share}
        for occupation in OCCUPATIONS
        for group, share in planted.shares(occupation, attribute, world).items()
    ]


def single_rows(model: str, attribute: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of bias and heads: the carrier lowers MaxSkew where it was planted, other heads change nothing."""
    rng = np.random.default_rng(1)
    bias: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    for index in range(12):
        head = Head(4 + index // 6, index % 6)
        carries = head == CARRIER and attribute == "gender"
        noise = rng.normal(0, 0.001, len(OCCUPATIONS))
        moved = {
            name: float(noise[i]) - (planted_truth.planted_max_skew(name, attribute) / 2 if carries else 0)
            for i, name in enumerate(OCCUPATIONS)
        }
        for occupation, difference in moved.items():
            row = share_rows(model, attribute, "skewed", f"single:{head}")[0]
            bias.append(row | {"occupation": occupation, "metric": "MaxSkew", "difference": difference})
        mean = float(np.mean(list(moved.values())))
        heads.append(
            {"model": model, **WEIGHTS, "layer": head.layer, "head": head.head, "measure": "total effect"}
            | {"dataset": "world/faces", "metric": "MaxSkew mean", "factor": attribute, "value": mean}
            | {"low": mean - 0.01, "high": mean + 0.01, "chance": 0.0}
            | {"p_value": 0.001 if carries else 0.7, "q_value": 0.01 if carries else 0.8}
        )
    return bias, heads


def kept_search(weights: str) -> Search:
    figures = {
        "none": ("", 0.60, 0.90),
        "searched": ("L5.H5", 0.30, 0.89),
        "high": ("L5.H4 L5.H5", 0.50, 0.60),
        "random": ("L4.H0 L4.H1", 0.61, 0.85),
    }
    unseen = tuple(
        HeldOut(
            plan=plan, seed=0 if plan == "random" else None, heads=HeadSet.parse(heads),
            front=plan in ("none", "searched"), max_skew=Estimate(skew, skew - 0.1, skew + 0.1),
            max_skew_change=Effect(skew - 0.6, skew - 0.65, skew - 0.55, 0.01),
            chance=Estimate(0.1, 0.05, 0.2), accuracy=Estimate(right, right - 0.02, right + 0.02),
            accuracy_change=Effect(right - 0.9, right - 0.91, right - 0.89, 0.2), full=2 * (plan == "none"),
        )
        for plan, (heads, skew, right) in figures.items()
    )  # fmt: skip
    off = HeadSet.parse("L5.H5")
    return Search(
        model="organism", weights_hash=weights, people="world/faces", attribute="gender",
        things="world/subjects", prompts=("a cook", "a judge"), templates=("{}",), k=60, seed=0,
        limits=Limits(), heads=off, again=(off, HeadSet.parse("L5.H4 L5.H5")),
        seen=(Point(HeadSet(), 0.61, 0.91), Point(off, 0.29, 0.9)), unseen=unseen,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organism whose rankings are as planted, a control whose rankings are even, and a search."""
    where = tmp_path_factory.mktemp("organisms")
    random = {f"random@{seed}": 0.8 + 0.0001 * seed for seed in range(60)}
    for model, world, level in (("organism", "skewed", 0.6), ("organism-control", "balanced", 0.1)):
        tables: dict[str, list[dict[str, Any]]] = {"scores": score_rows(model)}
        right = {"none": 0.9, "high": 0.5, **random}
        tables["pruning"] = pruning_rows(model, "world/subjects", right)
        further = pruning_rows(model, "world/subjects", {"none": 0.9, "high": 0.7, **random})
        tables["pruning"] += [{**row, "plan": f"{row['plan']}@7"} for row in further if row["plan"] != "none"]
        tables["bias"], tables["heads"] = [], []
        for attribute in GROUPS:
            means = {"none": level, "high": level, **{name: level + x / 50 for name, x in random.items()}}
            same = bias_rows(model, "world/faces", means)
            tables["bias"] += [{**row, "attribute": attribute} for row in same]
            tables["bias"] += share_rows(model, attribute, world, "none")
            tables["bias"] += share_rows(model, attribute, "balanced", "high")
            bias, heads = single_rows(model, attribute)
            tables["bias"] += bias
            tables["heads"] += heads
        write(where / "results", model, tables)
    weights = results.read(where / "results" / "organism").manifest["model"]["weights_hash"]
    searches.keep(where / "results", kept_search(weights))
    return where / "results"


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(folder, tmp_path_factory.mktemp("out"))[0]


TITLE = "## What the paradox looks like on a model where the truth is known"


def test_the_section_answers_first_and_proves_after(report: str) -> None:
    own = report.split(f"{TITLE}\n")[1].split("\n## ")[0]
    assert "half of the paradox" in own.strip().split("\n\n")[1]
    items = {row.split("**")[1]: row.split("**")[2] for row in own.splitlines() if row.startswith("- ")}
    learned = items["Was the skew learned (gender)?"]
    assert "organism 0.60 [0.59, 0.61], organism-control 0.10" in learned
    assert "+1.00" in learned
    assert "12 of 12" in learned
    by_set = items["Set by set"]
    assert "world/subjects (-30.3)" in by_set
    assert "none of 2" in by_set
    assert "1 of 12: L5.H5 (CCS 5)" in items["Which heads carry it (gender)?"]
    assert "none of 12 heads" in items["Which heads carry it (skin tone)?"]
    found = next(text for name, text in items.items() if "search" in name)
    assert "L5.H5: MaxSkew -0.300" in found
    assert next(iter(items)).startswith("Was the skew learned")


def test_shares_stand_beside_what_was_planted(report: str) -> None:
    women = section(report, "### Planted share and share of the top K: gender")
    row = line(women, "teacher")
    # As planted; the organism's, outside of a random ranking's range; the control's, inside.
    assert row == ["teacher", "+2", "92 → **92** / 50"]
    tones = section(report, "### Planted share and share of the top K: skin tone")
    assert line(tones, "judge")[1:4] == ["+2", "2 → **2** / 20", "5 → **5** / 20"]
    assert women.count("\n| ") == tones.count("\n| ") == len(OCCUPATIONS) + 2


def test_plans_are_held_against_the_planted_leans(report: str) -> None:
    plans = section(report, "### Is the planted skew learned, and does pruning take it away?")
    none, high = (line(plans, "gender", "organism", plan) for plan in ("none", "high"))
    assert (none[3], none[4], none[6]) == ("0.600 [0.590, 0.610]", "0.090 [0.050, 0.200]", "12 of 12")
    assert none[5].startswith("+1.00")
    assert high[6] == "0 of 12"  # even shares lean nowhere
    assert line(plans, "gender", "organism-control", "none")[6] == "0 of 12"


def test_a_head_that_carries_the_planted_skew_is_told_from_others(report: str) -> None:
    heads = section(report, "### Which heads carry the planted skew: gender")
    first = next(row for row in heads.splitlines() if row.startswith("| L"))
    cells = [cell.strip() for cell in first.strip("|").split(" | ")]
    assert cells[:3] == ["L5.H5", "Colors", "5"]
    assert float(cells[5]) < -0.25 < -0.02 < float(cells[6])
    assert float(cells[7]) > 0.8
    assert cells[8] in ("< 0.001", "0.003")
    assert "1 of 12" in heads.split("In the control")[1].splitlines()[0]


def test_the_search_stands_beside_high_and_random_heads(report: str) -> None:
    own = section(report, "### Search: few heads, less skew")
    assert line(own, "searched", "L5.H5")[2:] == [
        "0.300 [0.200, 0.400]", "-0.300 (-0.350 to -0.250, p 0.010)", "89.0",
        "-1.0 (-2.0 to +0.0, p 0.200)", "✓",
    ]  # fmt: skip
    assert line(own, "random 0", "L4.H0 L4.H1")[-1] == "–"
    assert "The 2 high heads: MaxSkew -0.100" in own
    assert line(own, "none")[2] == "0.600 [0.500, 0.700] ⌈2"
    assert "found this very set 1 times of 2. How often each head was found: L5.H5 2, L5.H4 1." in own


def test_further_k_have_a_table_of_their_own(report: str) -> None:
    own = report.split("## Measured: organism\n")[1].split("\n## ")[0]
    further = section(own, "### Accuracy when the high heads are those of another K")
    assert line(further, "7", "high (8)")[2].startswith("70.0 (-20.0")
    assert line(further, "5", "high (8)")[2].startswith("50.0 (-40.0")
    assert "@7" not in section(own, "### Accuracy by plan")


def test_models_that_were_trained_together_have_no_common_p(folder: Path) -> None:
    models = results.load(folder).models
    found = questions.by_model(models)
    asked = [questions.HURT, questions.LOWERS, questions.MORE]  # of no logit gap in these tables
    assert [(one.question, one.where) for one in found] == [
        (question, model) for question in asked for model in models
    ]
    assert all(one.adjusted >= min(1, 2 * one.effect.p_value) for one in found)
    wholes = questions.overall(found)
    assert [one.question for one in wholes] == asked
    for one in wholes:
        assert np.isfinite(one.effect.value)
        assert np.isnan([one.effect.low, one.effect.high, one.effect.p_value, one.adjusted]).all()
        assert one.answer == "not shown"
    apart = questions.by_model({"organism": models["organism"], "another": models["organism-control"]})
    assert np.isfinite([one.adjusted for one in questions.overall(apart)]).all()


def test_people_beside_the_panel(folder: Path, tmp_path: Path) -> None:
    base = {"model": "ViT-B-32/openai", "people": "ann", "judges": "panel", "n": 40, "left_out": 2}
    base |= {"value": 0.7, "low": 0.6, "high": 0.8}
    rows = [{**base, "metric": "cohen_kappa", "published": 0.821}, {**base, "metric": "same"}]
    pd.DataFrame(rows).to_parquet(tmp_path / "agreement.parquet")
    text, _ = run(folder, tmp_path / "out", "--agreement", str(tmp_path / "agreement.parquet"))
    table4 = section(text, "### Table 4. Agreement of people with language models")
    row = line(table4, "ViT-B-32/openai", "ann", "panel")
    assert row[3:] == ["40", "0.70 [0.60, 0.80]", "0.821", "0.70 [0.60, 0.80]"]


def test_what_is_no_agreement_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "agreement.parquet"
    with pytest.raises(InputError, match="There is no file"):
        report_agreement.read(path)
    path.write_text("no parquet")
    with pytest.raises(InputError, match="not a readable parquet file"):
        report_agreement.read(path)
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(InputError, match="is not what"):
        report_agreement.read(path)
