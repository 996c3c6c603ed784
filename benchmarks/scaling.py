"""Throughput, memory and the cost model of batch.compute on this machine, as docs/scaling.md quotes them.

    python -m benchmarks.scaling throughput [--photographs ../shared/data/imagenet-sample]
    python -m benchmarks.scaling memory
    python -m benchmarks.scaling cost [--photographs ../shared/data/imagenet-sample]
    python -m benchmarks.scaling computed

Every figure is of a whole run of the command line in a process of its own; a stage's seconds, the share of
time spent waiting for images and the peak memory are recorded by the run itself. Use a quiet machine: the
load before each run is kept with its figures. `computed` prints a table of GPUs that nobody has measured:
it follows from counted operations and the assumed rates below.
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
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ccs
from batch.compute.cost import operations
from benchmarks.common import MACHINE, PHOTOGRAPHS, keep
from ccs import HeadSet

VIT = "ViT-B-32/random"
SET, ASKED = "world/digits", ("--set", "world/digits", "--texts", "world")
"""An evaluation set and a pool of few texts: the text tower is timed by the texts, not by the images."""

FLOAT32, BF16 = 20e12, 200e12
"""Assumed, not measured: floating-point operations a second that a data-centre GPU keeps up, in float32
without TF32 (moments) and under bf16 autocast (evaluation)."""
DECODED = 220
"""Photographs of 256 pixels that one core here decodes and prepares a second; assumed of a GPU's host too."""


def run(arguments: Sequence[str], *, processes: int = 1) -> dict[str, Any]:
    """One run from an empty folder: the figures of its manifest, its wall-clock seconds, the load before."""
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
        records = [json.loads(path.read_text("utf-8")) for path in Path(out).glob(".stages/*/*/stage.json")]
    notes = {record["name"]: record.get("notes", {}) for record in records}
    return {"wall_seconds": round(wall, 1), "load_before": round(load, 2), "notes": notes, **measured}


def throughput(photographs: Path) -> list[dict[str, Any]]:
    """Images a second of moments and of evaluation, with one and two processes."""
    rows = []
    # Shards of 50 are dealt out evenly to two processes, so that neither waits for the other at the end.
    more = [*ASKED, "--random-sets", "2", "--eval-images", "60", "--shard", "50"]
    for model, images in (("organism", 1000), (VIT, 500)):
        for processes in (1, 2):
            moments = ["--images", str(photographs), "--max-images", str(images)]
            found = run(["--model", model, *moments, *more], processes=processes)
            for stage in ("moments", f"embed/{SET}"):
                notes, seconds = found["notes"][stage], found["seconds"][stage]
                row = {"model": model, "processes": processes, "stage": stage, "images": notes["images"]}
                row |= {"seconds": seconds, "images_a_second": round(notes["images"] / seconds, 1)}
                row |= {"waiting_share": notes["waiting_share"], "load_before": found["load_before"]}
                rows.append(row)
                print(row, flush=True)
    return rows


def memory() -> list[dict[str, Any]]:
    """Peak memory of the moments and of an evaluation of few and of many drawn images."""
    rows = []
    for size in (1000, 20000):
        drawn = ["--model", "organism", "--images", "world", "--set", "world/digits"]
        without_singles = "moments,spans,labels,judgments,evaluation"
        whole = ["--max-images", "1000", "--eval-images", str(size), "--stages", without_singles]
        kinds = {"moments": ["--max-images", str(size), "--stages", "moments"], "evaluation": whole}
        for kind, more in kinds.items():
            found = run([*drawn, *more])
            row = {"images": size, "stage": kind, "peak_mib": found["peak_memory_bytes"] // 2**20}
            rows.append(row | {"wall_seconds": found["wall_seconds"]})
            print(rows[-1], flush=True)
    return rows


def cost(photographs: Path) -> list[dict[str, Any]]:
    """The estimate of --plan-cost beside the time and memory of the same command."""
    vit = ["--model", VIT, "--images", str(photographs), *ASKED]
    cases = {
        "organism, drawn world": ["--model", "organism"],
        "ViT-B-32, photographs": [*vit, "--eval-images", "60", "--random-sets", "2"],
        "ViT-B-32, more plans": [*vit, "--eval-images", "30", "--random-sets", "20", "--max-images", "200"],
    }
    rows = []
    for name, arguments in cases.items():
        predicted = _predicted(arguments)
        found = run(arguments)
        # The run names its stages as paths: "embed/world/faces" is the estimate's "embed world/faces".
        stages = {s: found["seconds"].get(s.replace(" ", "/", 1)) for s in predicted["seconds"]}
        row = {"case": name, "predicted_seconds": round(sum(predicted["seconds"].values()), 1)}
        row |= {"measured_seconds": found["wall_seconds"]}
        row["error"] = round(row["predicted_seconds"] / row["measured_seconds"] - 1, 3)
        row |= {"predicted_mib": predicted["memory"] // 2**20}
        row |= {"measured_mib": found["peak_memory_bytes"] // 2**20}
        row |= {"stages": {s: [round(predicted["seconds"][s], 1), stages[s]] for s in stages}}
        row |= {"load_before": found["load_before"]}
        rows.append(row)
        print(json.dumps(row, indent=1), flush=True)
    return rows


def _predicted(arguments: Sequence[str]) -> dict[str, Any]:
    """The estimate, made in a process of its own as the user's is."""
    code = (
        "import json, sys; from batch import processes; from batch.compute import cost, run, settings\n"
        "chosen = settings.parse(sys.argv[1:])\n"
        "made = run.Run(chosen.for_model(chosen.models[0]), processes.start(), lambda text: None)\n"
        "found = cost.estimate(made)\n"
        "print(json.dumps({'seconds': {p.name: p.seconds for p in found.parts}, 'memory': found.memory}))"
    )
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-c", code, "--out", out, *arguments],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def computed() -> None:
    """Time of the moments of a billion images and of an evaluation on 8 GPUs, by the assumed rates."""
    columns = ("model", "GFLOP per image", "moments, images/s per GPU", "1e6 images, 8 GPUs")
    columns += ("1e9 images, 8 GPUs", "cores that decode for 8", "50,000 images under 60 plans, 8 GPUs")
    print("|", " | ".join(columns), "|")
    print("|---" * len(columns) + "|")
    for name in ("ViT-B-32", "ViT-B-16", "ViT-L-14"):
        model = ccs.load(f"{name}/random")
        image = torch.zeros(1, 3, model.image_size, model.image_size)
        plain = operations(partial(ccs.collect_moments, model, [image]))
        singles = [HeadSet(), *(HeadSet([head]) for head in model.heads)]
        plans = [*singles, *(HeadSet(list(model.heads)[i::11]) for i in range(11))][:60]
        rate = FLOAT32 / plain
        pruned = operations(partial(model.embed_images, image, plans))
        evaluation = 50_000 * pruned / BF16 / 8
        print(
            f"| {name} | {plain / 1e9:.1f} | {rate:,.0f} | {1e6 / rate / 8 / 60:.1f} min "
            f"| {1e9 / rate / 8 / 86400:.1f} days | {8 * rate / DECODED:,.0f} | {evaluation:.0f} s |"
        )


def about() -> Mapping[str, Any]:
    """The machine and the versions that count."""
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
    parser.add_argument("what", choices=("throughput", "memory", "cost", "computed"))
    parser.add_argument("--photographs", type=Path, default=PHOTOGRAPHS)
    args = parser.parse_args(argv)
    if args.what == "computed":
        computed()
        return 0
    rows = {
        "throughput": lambda: throughput(args.photographs),
        "memory": memory,
        "cost": lambda: cost(args.photographs),
    }[args.what]()
    keep(args.what, {"about": about(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
