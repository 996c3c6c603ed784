"""Whatever kills a run, the next one goes on and ends with the tables of an undisturbed run."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from batch.compute import __main__ as compute
from tests.support import small_disk
from tests.support.compute_sample import arguments, child, contents, run, small_pool

KILLS = int(os.environ.get("CCS_KILLS", "5"))
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
def test_kills_at_random_moments(tiny_folder: Path, tmp_path: Path) -> None:
    texts = small_pool(tmp_path)
    quiet = tmp_path / "quiet"
    assert run(arguments(tiny_folder, texts, quiet)) == 0
    began = time.monotonic()  # only now, when all is imported, as it is in those to be killed
    assert not killed_after(600, arguments(tiny_folder, texts, tmp_path / "timed"))
    lasts = time.monotonic() - began
    expected, rng, kills, trial = contents(quiet), random.Random(1), 0, 0
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


def in_a_child(work: Callable[[], int]) -> int:
    """The exit code of `work` in a process of its own."""
    process = child(work)
    process.join()
    return process.exitcode or 0


def test_a_full_disk(tiny_folder: Path, tmp_path: Path) -> None:
    """The disk is full at one point after another; at the end there is room, and nothing was lost."""
    texts, disk, quiet = small_pool(tmp_path), tmp_path / "disk", tmp_path / "quiet"
    assert run(arguments(tiny_folder, texts, quiet)) == 0
    pages = sum(-(-path.stat().st_size // 4096) for path in quiet.rglob("*") if path.is_file())
    disk.mkdir()
    out, forbidden = disk / "out", 77

    def work() -> int:
        try:
            sized = small_disk.mount(disk)
        except OSError:
            return forbidden
        args = arguments(tiny_folder, texts, out)
        for part in (0.0, 0.02, 0.3, 0.6, 0.9):
            sized(4 * max(1, round(part * pages)))
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                status = compute.main(args)
            assert status == 2
            assert re.search(r"error: There is no space left to write to .*disk/out.*\.", said.getvalue())
            assert "Traceback" not in said.getvalue()
            assert not list(out.glob("*/manifest.json"))
        sized(8 * pages)
        assert run(args) == 0
        shutil.copytree(out, tmp_path / "out")
        return 0

    status = in_a_child(work)
    if status == forbidden:
        pytest.skip("this kernel lets nobody mount a disk of their own")
    assert status == 0
    assert contents(tmp_path / "out") == contents(quiet)


def test_a_limit_on_files(tiny_folder: Path, tmp_path: Path) -> None:
    """As a full disk, where no small one can be mounted; what fits under the limit is kept."""
    texts, out, quiet = small_pool(tmp_path), tmp_path / "out", tmp_path / "quiet"
    args = arguments(tiny_folder, texts, out)

    def short_of_space() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        return run(args)

    assert in_a_child(short_of_space) == 2
    assert not list(out.rglob("*.tmp"))
    assert not list(out.glob("*/manifest.json"))
    assert run(args) == 0
    assert run(arguments(tiny_folder, texts, quiet)) == 0
    assert contents(out) == contents(quiet)
