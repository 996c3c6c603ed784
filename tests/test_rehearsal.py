"""The whole study, small: one model, every set, the judges, the report, publishing and the app."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.weekly
def test_the_study_runs_from_one_command_to_the_app_without_a_hole(tmp_path):
    # A process of its own: the Hub's client reads its address when it is imported.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
    done = subprocess.run(
        [sys.executable, "scripts/rehearse.py", "--small", "--folder", str(tmp_path)],
        cwd=ROOT,
        env=kept | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    assert done.returncode == 0, said
    assert "\n0 holes." in done.stdout, said
    assert (tmp_path / "results" / "ViT-B-32--openai" / "manifest.json").is_file()
    assert "### Figure 5. Text-to-video retrieval" in (tmp_path / "docs/report/report.md").read_text("utf-8")
