"""Whatever kills a run, or one of its processes, the next one ends with the tables of an undisturbed run."""

import multiprocessing
import os
import random
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import psutil
import pytest
import torch
from torch.distributed import TCPStore

import ccs
from ccs import InputError, results
from ccs.batch.compute import __main__ as compute
from ccs.batch.compute import inputs
from tests.support.compute_sample import assert_same_tables, compute_arguments, read_outputs
from tests.support.processes import ROOT, run_python

KILLS = int(os.environ.get("CCS_KILLS", "2"))
"""Number of kills; CCS_KILLS=100 for the full test."""
# Runs are forked from a process that has only imported: a fork of this one, with its threads, would now and
# then wait forever for a lock that one of them held.
fresh = multiprocessing.get_context("forkserver")
fresh.set_forkserver_preload(["open_clip", "ccs.batch.compute.run", "tests.support.compute_sample"])
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"],
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m"],
}
LAUNCHES = [("torchrun", 1, "statistics"), ("torchrun", 0, "measure--world--letters")]
LAUNCHES += [("accelerate", 1, "spans")]
ABOUT = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}


def work(args, log, launched, second_cannot):
    """A run with one thread, as the tests have: the last digits of a product depend on their number."""
    torch.set_num_threads(1)
    os.environ.update(launched)

    def cannot(*_, **__):
        raise InputError(f"only the second process cannot {second_cannot}")

    if second_cannot and launched["RANK"] == "1":
        module, name = (inputs, "open_all") if second_cannot == "open" else (ccs, "load")
        setattr(module, name, cannot)
    with log.open("a") as file, redirect_stdout(file), redirect_stderr(file):
        code = compute.main(args)
    os._exit(code)


def begin(args, log, second_cannot="", **launched):
    """Begin a run; `launched` is what a launcher puts into the environment."""
    process = fresh.Process(target=work, args=(args, log, launched, second_cannot), daemon=True)
    process.start()
    return process


def begin_two(args, log, second_cannot=""):
    """Begin the two processes of a run, as torchrun does: they meet at a store that another one holds."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    place |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    pair = [begin(args, log, second_cannot, RANK=rank, LOCAL_RANK=rank, **place) for rank in "01"]
    pair[0].store = store  # which lives as long as they do
    return pair


@pytest.mark.timeout(300 + 30 * KILLS)
def test_kills_at_random_moments(small_run, tiny_folder, texts, tmp_path):
    """Half of them gently, as launchers do."""
    seconds = results.read_results(small_run / "tiny").manifest["measured"]["seconds"]
    lasts, rng, kills = 1 + sum(seconds.values()), random.Random(1), 0
    while kills < KILLS:
        out, done = tmp_path / f"killed{kills}", False
        while not done:
            process = begin(compute_arguments(tiny_folder, texts, out), Path(os.devnull))
            process.join(rng.uniform(0.02, 0.6) * lasts if kills < KILLS else 600)
            if done := process.exitcode is not None:
                assert process.exitcode == 0
            else:
                kills += 1
                (process.terminate if kills % 2 else process.kill)()
                process.join()
        assert read_outputs(out) == read_outputs(small_run)


def test_what_ends_one_of_two_ends_both_and_two_go_on(small_run, tiny_folder, texts, tmp_path):
    """60 images in shards of 16 are four uneven shards; texts and clips have fewer. One opens them."""
    out, log = tmp_path / "out", tmp_path / "said.txt"
    args = compute_arguments(tiny_folder, texts, out)
    for process in begin_two(args, log, "load"):
        process.join(100)
        assert process.exitcode == 2
    assert log.read_text().splitlines().count("error: only the second process cannot load") == 1
    for killed, stage in ((1, "statistics"), (0, "measure--world--letters")):
        pair = begin_two(args, log)
        while not (out / ".stages/tiny" / stage).exists() and all(p.exitcode is None for p in pair):
            time.sleep(0.02)
        pair[killed].kill()
        pair[1 - killed].join(100)
        assert pair[1 - killed].exitcode == 2
        assert log.read_text().count("the same command continues") == 2 - killed
    for process in begin_two(args, log, "open"):
        process.join(100)
        assert process.exitcode == 0
    assert_same_tables(small_run / "tiny", out / "tiny")
    assert results.read_results(out / "tiny").manifest["measured"]["processes"] == 2


@pytest.mark.weekly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("launcher", "killed", "stage"), LAUNCHES)
def test_launchers_end_the_other(small_run, tiny_folder, texts, tmp_path, launcher, killed, stage):
    out, log = tmp_path / "out", tmp_path / "said.txt"
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "ccs.batch.compute"]
    command += [*compute_arguments(tiny_folder, texts, out), "--device", "cpu"]
    with log.open("w") as file, subprocess.Popen(command, stderr=file, **ABOUT) as running:
        while not (out / ".stages/tiny" / stage).exists() and running.poll() is None:
            time.sleep(0.02)
        workers = [child for child in psutil.Process(running.pid).children(True) if "RANK" in child.environ()]
        next(child for child in workers if child.environ()["RANK"] == str(killed)).kill()
        assert running.wait(60) != 0
    assert not psutil.wait_procs(workers, 10)[1]
    assert "the same command continues" in log.read_text()
    run_python(*command[1:], **ABOUT)
    assert_same_tables(small_run / "tiny", out / "tiny")
