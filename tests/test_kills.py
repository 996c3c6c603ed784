"""Whatever kills a run, the next one goes on and ends with the tables of an undisturbed run."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
from compute_sample import arguments, contents, fork, run, small_pool

KILLS = int(os.environ.get("CCS_KILLS", "5"))
"""How many kills: CCS_KILLS=100 for the full test."""


def killed_after(seconds: float, args: list[str]) -> bool:
    """Run in a process of its own and kill it after a while; whether it was still running."""
    child = fork.Process(target=lambda: os._exit(run(args)))
    child.start()
    child.join(seconds)
    alive = child.exitcode is None
    if alive:
        child.kill()
    child.join()
    assert alive or child.exitcode == 0
    return alive


@pytest.mark.timeout(300 + 30 * KILLS)
def test_kills_at_random_moments(tiny_folder: Path, tmp_path: Path) -> None:
    texts = small_pool(tmp_path)
    quiet = tmp_path / "quiet"
    began = time.monotonic()
    assert run(arguments(tiny_folder, texts, quiet)) == 0
    lasts = time.monotonic() - began
    expected, rng, kills, trial = contents(quiet), random.Random(1), 0, 0
    while kills < KILLS:
        out = tmp_path / f"killed{trial}"
        args = arguments(tiny_folder, texts, out)
        while killed_after(rng.uniform(0.02, 0.6) * lasts, args):
            kills += 1
        assert contents(out) == expected
        trial += 1
    assert kills >= KILLS


@pytest.mark.parametrize("limit", [20_000])
def test_a_full_disk(tiny_folder: Path, tmp_path: Path, limit: int) -> None:
    """A limit on the size of files stands in for a full disk; what fits under it is kept."""
    texts, out = small_pool(tmp_path), tmp_path / "out"
    args = arguments(tiny_folder, texts, out)

    def short_of_space() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        os._exit(run(args))

    child = fork.Process(target=short_of_space)
    child.start()
    child.join()
    assert child.exitcode == 2
    assert not list(out.rglob("*.tmp"))
    assert not list(out.glob("*/manifest.json"))
    assert run(args) == 0
    quiet = tmp_path / "quiet"
    assert run(arguments(tiny_folder, texts, quiet)) == 0
    assert contents(out) == contents(quiet)
