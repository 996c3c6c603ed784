"""A run that is killed, or loses one of its processes, resumes to the tables of an undisturbed run."""

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
from tests.support.compute_sample import assert_same_tables, read_outputs
from tests.support.processes import ROOT, run_python

KILLS = int(os.environ.get("CCS_KILLS", "2"))
"""Number of kills; CCS_KILLS=100 for the full test."""
# A fork of the test process could wait forever for a lock that another thread held when it was forked.
forkserver = multiprocessing.get_context("forkserver")
forkserver.set_forkserver_preload(["open_clip", "ccs.batch.compute.run", "tests.support.compute_sample"])
TORCHRUN = "torch.distributed.run --standalone --nproc_per_node 2"
ACCELERATE = "accelerate.commands.launch --multi_gpu --num_processes 2"
LAUNCHES = [(TORCHRUN, 1, "statistics"), (TORCHRUN, 0, "measure--world--letters"), (ACCELERATE, 1, "spans")]
PROCESS_OPTIONS = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}


def run_in_process(args, log, environment, failing_step):
    torch.set_num_threads(1)  # as in the tests: the last digits of a product depend on the number of threads
    os.environ.update(environment)

    def fail(*_, **__):
        raise InputError(f"the second process can't {failing_step}")

    if failing_step and environment["RANK"] == "1":
        module, name = (inputs, "open_all") if failing_step == "open" else (ccs, "load")
        setattr(module, name, fail)
    with log.open("a") as file, redirect_stdout(file), redirect_stderr(file):
        code = compute.main(args)
    os._exit(code)


def start_run(args, log, failing_step="", **environment):
    arguments = (args, log, environment, failing_step)
    process = forkserver.Process(target=run_in_process, args=arguments, daemon=True)
    process.start()
    return process


def start_two_processes(args, log, failing_step=""):
    """Start both processes of a run as torchrun does, with a store in the test process."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    environment |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    pair = [start_run(args, log, failing_step, RANK=rank, LOCAL_RANK=rank, **environment) for rank in "01"]
    pair[0].store = store  # must not be deleted before the processes end
    return pair


def wait_for_stage(out, stage, ended):
    while not (out / ".stages/tiny" / stage).exists() and not ended():
        time.sleep(0.02)


@pytest.mark.timeout(300 + 30 * KILLS)
def test_run_killed_at_random_moments_resumes(small_run, small_arguments, tmp_path):
    seconds = results.read_results(small_run / "tiny").manifest["measured"]["seconds"]
    duration, rng, kills = 1 + sum(seconds.values()), random.Random(1), 0
    while kills < KILLS:
        out, finished = tmp_path / f"killed{kills}", False
        while not finished:
            process = start_run(small_arguments(out), Path(os.devnull))
            process.join(rng.uniform(0.02, 0.6) * duration if kills < KILLS else 600)
            if finished := process.exitcode is not None:
                assert process.exitcode == 0
            else:
                kills += 1
                (process.terminate if kills % 2 else process.kill)()
                process.join()
        assert read_outputs(out) == read_outputs(small_run)


def test_killing_one_process_stops_both_and_run_resumes(small_run, small_arguments, tmp_path):
    """60 images in shards of 16: four shards of different sizes for two processes."""
    out, log = tmp_path / "out", tmp_path / "log.txt"
    args = small_arguments(out)
    for process in start_two_processes(args, log, "load"):
        process.join(100)
        assert process.exitcode == 2
    assert log.read_text().splitlines().count("error: the second process can't load") == 1
    for killed, stage in ((1, "statistics"), (0, "measure--world--letters")):
        pair = start_two_processes(args, log)
        wait_for_stage(out, stage, lambda pair=pair: any(p.exitcode is not None for p in pair))
        pair[killed].kill()
        pair[1 - killed].join(100)
        assert pair[1 - killed].exitcode == 2
        assert log.read_text().count("the same command continues") == 2 - killed
    for process in start_two_processes(args, log, "open"):  # only the first process opens the data
        process.join(100)
        assert process.exitcode == 0
    assert_same_tables(small_run / "tiny", out / "tiny")
    assert results.read_results(out / "tiny").manifest["measured"]["processes"] == 2


@pytest.mark.weekly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("launcher", "killed", "stage"), LAUNCHES)
def test_launcher_stops_the_other_process(small_run, small_arguments, tmp_path, launcher, killed, stage):
    out, log = tmp_path / "out", tmp_path / "log.txt"
    command = [sys.executable, "-m", *launcher.split(), "-m", "ccs.batch.compute"]
    command += [*small_arguments(out), "--device", "cpu"]
    with log.open("w") as file, subprocess.Popen(command, stderr=file, **PROCESS_OPTIONS) as process:
        wait_for_stage(out, stage, lambda: process.poll() is not None)
        workers = [child for child in psutil.Process(process.pid).children(True) if "RANK" in child.environ()]
        next(child for child in workers if child.environ()["RANK"] == str(killed)).kill()
        assert process.wait(60) != 0
    assert not psutil.wait_procs(workers, 10)[1]
    assert "the same command continues" in log.read_text()
    run_python(*command[1:], **PROCESS_OPTIONS)
    assert_same_tables(small_run / "tiny", out / "tiny")
