"""scripts/compare_tables.py: equal tables in any order, a figure over the tolerance, a missing table."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ccs import results
from tests.support.results_sample import sample_rows

compare = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "compare_tables.py"))["main"]


def test_the_largest_difference_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sample_rows("organism")
    for folder in ("ours", "theirs"):
        for name in ("scores", "bias"):
            results.write_table(tmp_path / folder, name, rows[name][:: 1 if folder == "ours" else -1])
    both = [str(tmp_path / "ours"), str(tmp_path / "theirs")]
    assert compare(both) == 0
    changed = [row | {"variance": row["variance"] * (1 + 1e-5)} for row in rows["scores"]]
    results.write_table(tmp_path / "theirs", "scores", changed)
    capsys.readouterr()
    assert compare(both) == 1
    assert "1.0e-05  variance" in capsys.readouterr().out
    assert compare([*both, "--rtol", "1e-4"]) == 0
    results.write_table(tmp_path / "theirs", "scores", [row | {"label": "Faces"} for row in rows["scores"]])
    assert compare([*both, "--rtol", "1e-4"]) == 1
    (tmp_path / "theirs" / "scores.parquet").unlink()
    assert compare(both) == 1
    (tmp_path / "theirs" / "bias.parquet").write_bytes(b"half")
    assert compare(both) == 2
