"""findings.md: answers first, then planted and ranked shares, and single heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccs import results
from ccs.batch.pages import as_markdown
from ccs.heads import Head
from ccs.results import schema, searches
from ccs.results.searches import Search
from ccs.synthetic.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from research.world import planted
from research.world.paradox import organism_blocks
from tests.support.report_sample import bias_rows, find_row, find_section, pruning_rows
from tests.support.results_sample import sample_rows, write_results

GROUPS: Mapping[str, tuple[str, ...]] = {"gender": tuple(GENDERS), "skin tone": tuple(SKIN_TONES)}
CARRIER = Head(5, 5)
"""The only head of these tables that carries the planted bias by gender."""


def share_rows(model: str, attribute: str, world: str, ablation: str) -> list[dict[str, Any]]:
    """Return rows in which the top K has the shares of a world: the planted ones, or balanced ones.

    Args:
        model: The model.
        attribute: The attribute.
        world: The world of the shares.
        ablation: The ablation set.
    """
    even = 1 / len(GROUPS[attribute])
    common = bias_rows(model, "world/faces", {"none": 0.0})[0]
    common |= {"attribute": attribute, "ablation": ablation, "chance": even}
    common |= {"chance_low": even - 0.1, "chance_high": even + 0.1}
    return [
        common | {"occupation": occupation, "metric": f"{schema.TOP_SHARE}{group}", "value": share}
        for occupation in OCCUPATIONS
        for group, share in planted.shares(occupation, attribute, world).items()
    ]


def planted_max_skew(occupation: str, attribute: str) -> float:
    """Return the MaxSkew of a ranking whose top K has the planted shares, with balanced groups in the pool.

    Args:
        occupation: The occupation.
        attribute: The attribute.
    """
    shares = planted.shares(occupation, attribute)
    return float(np.log(max(shares.values()) * len(shares)))


def single_rows(model: str, attribute: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return rows of bias and heads: the carrier lowers MaxSkew where bias was planted, others don't.

    Args:
        model: The model.
        attribute: The attribute.
    """
    rng = np.random.default_rng(1)
    bias: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    for index in range(12):
        head = Head(4 + index // 6, index % 6)
        carries = head == CARRIER and attribute == "gender"
        noise = rng.normal(0, 0.001, len(OCCUPATIONS))
        moved = {
            name: float(noise[i]) - (planted_max_skew(name, attribute) / 2 if carries else 0)
            for i, name in enumerate(OCCUPATIONS)
        }
        for occupation, difference in moved.items():
            row = share_rows(model, attribute, "skewed", f"single:{head}")[0]
            bias.append(row | {"occupation": occupation, "metric": "MaxSkew", "difference": difference})
        mean = float(np.mean(list(moved.values())))
        heads.append(
            {
                "model": model,
                "weights": "0123456789abcdef",
                "layer": head.layer,
                "head": head.head,
                "measure": "total effect",
            }
            | {"dataset": "world/faces", "metric": "MaxSkew mean", "factor": attribute, "value": mean}
            | {"measure": "total effect", "low": mean - 0.01, "high": mean + 0.01}
            | {"p_value": 0.001 if carries else 0.7, "q_value": 0.01 if carries else 0.8}
        )
    return bias, heads


def bundled_search() -> Search:
    """Return the bundled search for heads by gender."""
    weights = results.read_results(results.PRECOMPUTED / "organism").manifest["model"]["weights_hash"]
    return searches.beside(results.PRECOMPUTED, "organism", weights)[0]


def score_rows(model: str) -> list[dict[str, Any]]:
    sample = sample_rows(model)["scores"][0] | {"label": "Colors", "k": 5, "majority": 5, "share": 0.5}
    rows = [{**sample, "layer": 4 + n // 6, "head": n % 6, "ccs": n // 2} for n in range(12)]
    return [row | {"level": "high" if row["ccs"] == 5 else ""} for row in rows]


def write_organisms(folder: Path) -> Path:
    """Write the results of both models into the folder, and return it."""
    random = {f"random@{seed}": 0.8 + 0.0001 * seed for seed in range(60)}
    for model, world, level in (("organism", "skewed", 0.6), ("organism-control", "balanced", 0.1)):
        tables: dict[str, list[dict[str, Any]]] = {"scores": score_rows(model)}
        right = {"none": 0.9, "high": 0.5, **random}
        tables["pruning"] = pruning_rows(model, "world/subjects", right)
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
        write_results(folder, model, tables)
    ours = results.read_results(folder / "organism").manifest["model"]["weights_hash"]
    searches.keep(folder, replace(bundled_search(), weights_hash=ours))
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = write_organisms(tmp_path_factory.mktemp("organisms") / "results")
    return as_markdown(list(organism_blocks(results.load(str(folder)).models)))


def test_the_section_gives_the_answer_before_the_evidence(report):
    opening = report.split("\n## ")[0]
    items = {row.split("**")[1]: row.split("**")[2] for row in opening.splitlines() if row.startswith("- ")}
    learned = items["Did the model learn the planted bias (gender)?"]
    assert "organism 0.60 [0.59, 0.61], organism-control 0.10" in learned
    assert "+1.00" in learned
    assert "12 of 12" in learned
    by_set = items["By dataset"]
    assert "world/subjects (-30.3)" in by_set
    assert "none of 2" in by_set
    assert "1 of 12: L5.H5 (CCS 5)" in items["Which heads carry the bias (gender)?"]
    assert "none of 12 heads" in items["Which heads carry the bias (skin tone)?"]
    searched = next(row for row in bundled_search().held_out if row.ablation == "searched")
    search_answer = next(text for name, text in items.items() if "search" in name)
    assert f"{searched.heads}: MaxSkew {searched.max_skew_change.value:+.3f}" in search_answer


def test_shares_are_next_to_the_planted_ones(report):
    women = find_section(report, "## Planted share and share of the top K: gender")
    row = find_row(women, "teacher")
    # As planted; the organism's, outside of a random ranking's range; the control's, inside.
    assert row == ["teacher", "+2", "92 → **92** / 50"]
    tones = find_section(report, "## Planted share and share of the top K: skin tone")
    assert find_row(tones, "judge")[1:4] == ["+2", "2 → **2** / 20", "5 → **5** / 20"]


def test_a_head_that_carries_the_planted_bias_differs_from_others(report):
    heads = find_section(report, "## Which heads carry the planted bias: gender")
    first = next(row for row in heads.splitlines() if row.startswith("| L"))
    cells = [cell.strip() for cell in first.strip("|").split(" | ")]
    assert cells[:3] == ["L5.H5", "Colors", "5"]
    assert float(cells[5]) < -0.25 < -0.02 < float(cells[6])
    assert float(cells[7]) > 0.8
    assert cells[8] in ("< 0.001", "0.003")
    assert "1 of 12" in heads.split("In the control")[1].splitlines()[0]
