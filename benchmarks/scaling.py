"""Measure the throughput and memory of batch.compute on this machine, which docs/gpus.md quotes.

    python -m benchmarks.scaling throughput [--photographs ../shared/data/imagenet-sample]
    python -m benchmarks.scaling memory

Every result comes from a whole run of the command in a separate process. The run itself records the seconds
of its stages and its peak memory. Use an idle machine: the load before each run is stored with the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import MACHINE, PHOTOGRAPHS, keep

VIT = "ViT-B-32/random"
SET, OPTIONS = "world/letters", ("--dataset", "world/letters", "--texts", "world")
"""An evaluation set and a pool with few texts, because the time of the text encoder depends on the texts."""


def run(arguments: Sequence[str], *, processes: int = 1) -> dict[str, Any]:
    """Run batch.compute once into an empty folder.

    Args:
        arguments: Its arguments, without `--out`.
        processes: Number of processes, started by torchrun if more than one. Default: 1.

    Returns:
        The measurements in its manifest, its wall-clock seconds, and the load before.

    Raises:
        SystemExit: If the run fails.
    """
    launcher = [sys.executable, "-m"]
    if processes > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    with tempfile.TemporaryDirectory() as out:
        load, began = os.getloadavg()[0], time.perf_counter()
        command = [*launcher, "batch.compute", "--out", out, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        wall = time.perf_counter() - began
        (path,) = Path(out).glob("*/manifest.json")
        measured: dict[str, Any] = json.loads(path.read_text("utf-8"))["measured"]
    return {"wall_seconds": round(wall, 1), "load_before": round(load, 2), **measured}


def throughput(photographs: Path) -> list[dict[str, Any]]:
    """Return images per second of head statistics and evaluation, with one and two processes."""
    rows = []
    # Shards of 50 are dealt out evenly to two processes, so that neither waits for the other at the end.
    options = [*OPTIONS, "--random-sets", "2", "--eval-images", "60", "--shard", "50"]
    for model, images in (("organism", 1000), (VIT, 500)):
        for processes in (1, 2):
            moments = ["--images", str(photographs), "--max-images", str(images)]
            measured = run(["--model", model, *moments, *options], processes=processes)
            for stage, count in {"statistics": images, f"embed/{SET}": 60}.items():
                seconds = measured["seconds"][stage]
                row = {"model": model, "processes": processes, "stage": stage, "images": count}
                row |= {"seconds": seconds, "images_a_second": round(count / seconds, 1)}
                row |= {"load_before": measured["load_before"]}
                rows.append(row)
                print(row, flush=True)
    return rows


def memory() -> list[dict[str, Any]]:
    """Return the peak memory of head statistics and of an evaluation, for few and many synthetic images."""
    rows = []
    for size in (1000, 20000):
        model = ["--model", "organism", "--images", "world"]
        drawn = [*model, "--dataset", "world/letters"]
        whole = [*drawn, "--max-images", "1000", "--eval-images", str(size)]
        kinds = {"moments": [*model, "--max-images", str(size), "--suite", "none"], "evaluation": whole}
        for kind, arguments in kinds.items():
            measured = run(arguments)
            row = {"images": size, "stage": kind, "peak_mib": measured["peak_memory_bytes"] // 2**20}
            rows.append(row | {"wall_seconds": measured["wall_seconds"]})
            print(rows[-1], flush=True)
    return rows


def operations(work: Callable[[], Any]) -> int:
    """Count floating-point operations in matrix products and convolutions (a multiply-add counts as two)."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def conditions() -> Mapping[str, Any]:
    """Return the machine and the relevant versions."""
    return {
        "machine": MACHINE,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "disk_free_gb": shutil.disk_usage("/").free // 10**9,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("throughput", "memory", "computed"))
    parser.add_argument("--photographs", type=Path, default=PHOTOGRAPHS)
    args = parser.parse_args(argv)
    rows = memory() if args.what == "memory" else throughput(args.photographs)
    keep(args.what, {"about": conditions(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
