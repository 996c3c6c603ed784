"""Whatever kills a run, the next one goes on and ends with the tables of an undisturbed run."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.support.compute_sample import arguments, contents, run

KILLS = int(os.environ.get("CCS_KILLS", "2"))
"""Number of kills; CCS_KILLS=100 for the full test."""
# Runs are forked from a process that has only imported: a fork of this one, with its threads, would now and
# then wait forever for a lock that one of them held.
fresh = multiprocessing.get_context("forkserver")
fresh.set_forkserver_preload(["open_clip", "ccs.batch.compute.run", "tests.support.compute_sample"])


def one_thread(args: list[str]) -> None:
    """A run with one thread, as the tests have: the last digits of a product depend on their number."""
    torch.set_num_threads(1)
    os._exit(run(args))


def killed_after(seconds: float, args: list[str]) -> bool:
    """Run in a process of its own and kill it after a while; whether it was still running."""
    process = fresh.Process(target=one_thread, args=(args,))
    process.start()
    process.join(seconds)
    alive = process.exitcode is None
    process.kill()
    process.join()
    assert alive or process.exitcode == 0
    return alive


@pytest.mark.timeout(300 + 30 * KILLS)
def test_kills_at_random_moments(small_run: Path, tiny_folder: Path, texts: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    assert not killed_after(600, arguments(tiny_folder, texts, tmp_path / "timed"))
    lasts = time.monotonic() - began
    expected, rng, kills, trial = contents(small_run), random.Random(1), 0, 0
    while kills < KILLS:
        out = tmp_path / f"killed{trial}"
        args = arguments(tiny_folder, texts, out)
        while killed_after(rng.uniform(0.02, 0.6) * lasts, args):
            kills += 1
            lasts *= 1.1  # a machine's load comes and goes, and with it how long a run lasts
        assert contents(out) == expected
        trial += 1
        lasts *= 0.8


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it asks ten times a second")
def test_what_decodes_ends_with_its_run_though_it_gets_no_time() -> None:
    program = (
        "import os, signal; from ccs.batch.compute import inputs\n"
        "if not (child := os.fork()):\n"
        "    inputs.begin_decoding(); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os.waitpid(child, os.WUNTRACED)\n"
        "print(child, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=100)
    child, end = Path("/proc") / run.stdout.strip(), time.monotonic() + 5
    while child.exists() and b"State:\tZ" not in (child / "status").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.02)
