"""One process, several, more than there is work for: the same spans, scores and figures."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from ccs import results
from ccs.batch.compute.embed import Backoff
from ccs.batch.compute.inputs import load, shards_of
from ccs.model.model import Model
from ccs.sets.kinds import ImageSet
from tests.support.compute_sample import arguments, same_tables

SECOND_CANNOT = """
import os, sys
import ccs
from ccs.batch.compute import __main__ as compute, inputs
from ccs.errors import InputError
def cannot(*_, **__):
    raise InputError("only the second process says this")
if os.environ["RANK"] == "1":
    inputs.open_all, ccs.load = cannot, cannot if "--off" in sys.argv else ccs.load
sys.exit(compute.main(sys.argv[1:]))
"""


@pytest.mark.timeout(900)  # minutes on a busy machine
def test_two_processes_give_what_one_gives(
    small_run: Path, tiny_folder: Path, texts: Path, tmp_path: Path
) -> None:
    """60 images in shards of 16 are four uneven shards; texts and clips have fewer. One process opens them,
    and what another cannot do ends both.
    """
    (script := tmp_path / "run.py").write_text(SECOND_CANNOT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += [str(script), *arguments(tiny_folder, texts, tmp_path / "2")]
    root = Path(__file__).parents[2]
    about = {"cwd": root, "env": {**os.environ, "PYTHONPATH": str(root)}, "capture_output": True}
    done = subprocess.run(command, **about, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ended = subprocess.run([*command, "--off", "L3.H1"], **about, text=True, check=False)
    assert "error: only the second process says this" in ended.stderr.splitlines()
    same_tables(small_run / "tiny", tmp_path / "2" / "tiny")
    assert results.read(tmp_path / "2" / "tiny").manifest["measured"]["processes"] == 2


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"],
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m"],
}


def workers(out: Path) -> dict[int, int]:
    """The processes of a run, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = (folder / "cmdline").read_bytes().decode().split("\0")
            if str(out) in said and "ccs.batch.compute" in said[:4]:
                lines = (folder / "environ").read_bytes().decode().split("\0")
                found |= {int(line[5:]): int(folder.name) for line in lines if line.startswith("RANK=")}
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("launcher", "killed", "stage"),
    [
        ("torchrun", 1, "moments"),
        pytest.param("torchrun", 0, "measure--world--letters", marks=pytest.mark.weekly),
        pytest.param("accelerate", 1, "labels", marks=pytest.mark.weekly),
    ],
)
def test_one_of_two_processes_killed_ends_the_other_and_the_same_command_goes_on(
    small_run: Path, tiny_folder: Path, texts: Path, tmp_path: Path, launcher: str, killed: int, stage: str
) -> None:
    out, said = tmp_path / "out", tmp_path / "said.txt"
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "ccs.batch.compute"]
    command += [*arguments(tiny_folder, texts, out), "--device", "cpu"]
    root = Path(__file__).parents[2]
    about = {"cwd": root, "env": {**os.environ, "PYTHONPATH": str(root)}}
    with said.open("w") as file, subprocess.Popen(command, stderr=file, **about) as running:
        while not (out / ".stages/tiny" / stage).exists() and running.poll() is None:
            time.sleep(0.02)
        os.kill(workers(out)[killed], signal.SIGKILL)
        assert running.wait(60) != 0
    assert not workers(out)
    assert "the same command continues" in said.read_text()
    done = subprocess.run(command, **about, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    same_tables(small_run / "tiny", out / "tiny")


@pytest.mark.parametrize("items", [0, 1, 127, 128, 129, 5000, 1_000_000_000])
def test_shards_cover_everything_once(items: int) -> None:
    shards = shards_of(items)
    assert sum(map(len, shards)) == items
    assert shards[-1].stop == items
    assert len(shards) < 20_000


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_never_cross_a_shard(
    tiny_model: Model, pictures: Callable[[int], list[Image.Image]], workers: int
) -> None:
    images = pictures(11)
    data = ImageSet(name="random", images=images, fingerprint="", source="")
    batches = list(load(tiny_model, data, shards_of(11, 4), [0, 2], batch=3, workers=workers))
    expected = [(0, 0, 3, False), (0, 3, 4, True), (2, 8, 11, True)]
    assert [(b.shard, b.first, b.last, b.ends_shard) for b in batches] == expected
    assert torch.equal(batches[2].pixels, tiny_model.preprocess([images[i] for i in (8, 9, 10)]))
    assert sum(len(one.pixels) for one in batches) == 7


def test_short_memory_lowers_the_batch_and_loses_nothing() -> None:
    def work(piece: torch.Tensor) -> torch.Tensor:
        if len(piece) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return piece * 2

    backoff = Backoff(16)
    pixels = torch.arange(20.0)
    assert torch.equal(torch.cat(backoff.run(work, pixels)), pixels * 2)
    assert backoff.largest == 2
    assert len(backoff.run(work, pixels)) == 10

    def never(piece: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        Backoff(4).run(never, pixels)

    def broken(piece: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        Backoff(4).run(broken, pixels)
