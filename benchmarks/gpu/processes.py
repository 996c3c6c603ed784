"""Compare two processes on one device, started by torchrun and joined by accelerate, with one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import ROOT
from benchmarks.gpu import sample
from benchmarks.gpu.lines import Bench, Line, Measured

PART = "processes"
MODEL = {True: "ViT-B-32/random", False: "organism"}
TEXTS = 60


def lines() -> Iterator[Line]:
    yield Line(PART, "two on one device", "between the numbers of two tables", 1e-5, two)


def _run(bench: Bench, processes: int) -> Path:
    """Run batch.compute and return the folder of its tables."""
    out, texts = bench.folder / f"processes-{processes}", bench.folder / "texts.csv"
    rows = (f"a photo of number {i},Numbers\n" for i in range(TEXTS))
    texts.write_text("text,concept\n" + "".join(rows), "utf-8")
    launcher = [sys.executable, "-m"]
    if processes > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    command = [*launcher, "batch.compute", "--model", MODEL[bench.gpu], "--out", str(out)]
    command += ["--images", str(sample.files(bench, bench.files)), "--texts", str(texts)]
    command += ["--suite", "none", "--max-images", str(min(bench.files, 500)), "--shard", "8"]
    command += ["--device", bench.device.type]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{processes} processes: {done.stderr.strip()[-250:]}")
    return next(path.parent for path in out.glob("*/manifest.json"))


def two(bench: Bench) -> Measured:
    """Return the largest difference of a number; tables that differ otherwise fail."""
    from ccs import results

    ours, theirs = (results.read_results(_run(bench, processes)) for processes in (2, 1))
    measured, worst = ours.manifest["measured"], 0.0
    if measured["processes"] != 2 or not measured["device"].startswith(bench.device.type):
        raise RuntimeError(f"It ran in {measured['processes']} processes on {measured['device']}.")
    if set(ours.tables) != set(theirs.tables):
        raise RuntimeError("They wrote different tables.")
    for name, table in ours.tables.items():
        other = theirs.tables[name]
        numbers = list(table.select_dtypes("float").columns)
        if not table.drop(columns=numbers).equals(other.drop(columns=numbers)):
            raise RuntimeError(f"The tables {name} differ in more than numbers.")
        for key in numbers:
            a, b = (side[key].to_numpy(float, na_value=np.nan) for side in (table, other))
            worst = max(worst, float(np.nanmax(np.abs(a - b), initial=0.0)))
    return worst, f"{len(ours.tables)} tables"
