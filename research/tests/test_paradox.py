"""The page on the organism: planted against ranked shares, heads, and answers first."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccs import results
from ccs.batch.pages import as_markdown
from research.tests.organism_sample import kept_search, write_organisms
from research.world.paradox import organism_blocks
from tests.support.report_sample import line, section


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder: Path = write_organisms(tmp_path_factory.mktemp("organisms") / "results")
    return as_markdown(list(organism_blocks(results.load(str(folder)).models)))


def test_the_section_answers_first_and_proves_after(report):
    own = report.split("\n## ")[0]
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
    searched = next(one for one in kept_search().unseen if one.plan == "searched")
    found = next(text for name, text in items.items() if "search" in name)
    assert f"{searched.heads}: MaxSkew {searched.max_skew_change.value:+.3f}" in found


def test_shares_stand_beside_what_was_planted(report):
    women = section(report, "## Planted share and share of the top K: gender")
    row = line(women, "teacher")
    # As planted; the organism's, outside of a random ranking's range; the control's, inside.
    assert row == ["teacher", "+2", "92 → **92** / 50"]
    tones = section(report, "## Planted share and share of the top K: skin tone")
    assert line(tones, "judge")[1:4] == ["+2", "2 → **2** / 20", "5 → **5** / 20"]


def test_a_head_that_carries_the_planted_skew_is_told_from_others(report):
    heads = section(report, "## Which heads carry the planted skew: gender")
    first = next(row for row in heads.splitlines() if row.startswith("| L"))
    cells = [cell.strip() for cell in first.strip("|").split(" | ")]
    assert cells[:3] == ["L5.H5", "Colors", "5"]
    assert float(cells[5]) < -0.25 < -0.02 < float(cells[6])
    assert float(cells[7]) > 0.8
    assert cells[8] in ("< 0.001", "0.003")
    assert "1 of 12" in heads.split("In the control")[1].splitlines()[0]
