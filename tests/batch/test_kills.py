"""Whatever kills a run, the next one goes on and ends with the tables of an undisturbed run."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import resource
import signal
import time
from pathlib import Path

import pytest

from batch.compute import __main__ as compute
from tests.support.compute_sample import arguments, child, contents, run

KILLS = int(os.environ.get("CCS_KILLS", "2"))
"""Number of kills; CCS_KILLS=100 for the full test."""


def killed_after(seconds: float, args: list[str]) -> bool:
    """Run in a process of its own and kill it after a while; whether it was still running."""
    process = child(lambda: run(args))
    process.join(seconds)
    alive = process.exitcode is None
    process.kill()
    process.join()
    assert alive or process.exitcode == 0
    return alive


@pytest.mark.timeout(300 + 30 * KILLS)
def test_kills_at_random_moments(small_run: Path, tiny_folder: Path, texts: Path, tmp_path: Path) -> None:
    assert run([*arguments(tiny_folder, texts, tmp_path), "--plan-cost"]) == 0  # so that all is imported
    began = time.monotonic()
    assert not killed_after(600, arguments(tiny_folder, texts, tmp_path / "timed"))
    lasts = time.monotonic() - began
    expected, rng, kills, trial = contents(small_run), random.Random(1), 0, 0
    while kills < KILLS:
        out = tmp_path / f"killed{trial}"
        args = arguments(tiny_folder, texts, out)
        before = kills
        while killed_after(rng.uniform(0.02, 0.6) * lasts, args):
            kills += 1
        assert contents(out) == expected
        trial += 1
        # A machine's load comes and goes, and with it how long a run lasts.
        lasts *= 0.7 if kills == before else 1.1


def test_a_full_disk(small_run: Path, tiny_folder: Path, texts: Path, tmp_path: Path) -> None:
    """No file may grow beyond 20,000 bytes; what fits is kept, and with room the run resumes."""
    out = tmp_path / "out"
    args = arguments(tiny_folder, texts, out)

    def short_of_space() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            status = compute.main(args)
        assert re.search(r"error: There is no space left to write to .*/out.*\.", said.getvalue())
        assert "Traceback" not in said.getvalue()
        return status

    process = child(short_of_space)
    process.join()
    assert process.exitcode == 2
    assert not list(out.rglob("*.tmp"))
    assert not list(out.glob("*/manifest.json"))
    assert run(args) == 0
    assert contents(out) == contents(small_run)
