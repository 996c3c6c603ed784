"""Cost of maps over patches, in units of open_clip's own forward pass of the same images, and peak memory.

    python -m benchmarks.maps

Ratios are of CPU time on one thread, the smallest of the repeats; passes take turns. What the page computes
for four pictures is on the wall, on all cores, beside the plain pass.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

import ccs
from benchmarks.common import MACHINE, keep, memory, smallest
from ccs import HeadSet
from ccs.model.maps import heatmap

IMAGES = {"ViT-B-32": 8, "ViT-B-16": 2, "ViT-L-14": 1}
ALLOWED = 1.2
PICTURES = 4
REPEATS = 3


def ratios(architecture: str) -> dict[str, float | str]:
    """Maps of all scored heads along one vector, and attention of those heads, in plain passes."""
    model = ccs.load(f"{architecture}/random")
    x = torch.randn(IMAGES[architecture], 3, *model.tower.image_size)
    along = np.eye(model.dim, dtype=np.float32)[:1]

    def plain() -> None:
        with torch.no_grad():
            model.clip.encode_image(x)

    seconds = smallest(
        {
            "plain": plain,
            "heatmap": lambda: heatmap(model, x, along),
            "attention": lambda: ccs.attention(model, x),
        },
        REPEATS,
    )
    found = {name: seconds[name] / seconds["plain"] for name in ("heatmap", "attention")}
    return {"model": architecture, **found, "allowed": ALLOWED}


def page() -> dict[str, float]:
    """Seconds on the wall for four pictures: of one head, where it looks and what it writes, and of all.

    As on the page, activations below the last four layers are kept for all heads (`lower layers`, once).
    """
    torch.set_num_threads(os.cpu_count() or 1)
    model = ccs.load("ViT-B-32/random")
    x, last = torch.randn(PICTURES, 3, *model.tower.image_size), HeadSet.parse("L11.H5")

    def plain() -> None:
        with torch.no_grad():
            model.clip.encode_image(x)

    kept = model.trunk(x)

    def one() -> None:
        ccs.attention(model, kept, last)
        ccs.heatmap(model, kept, ["a dog"], last, against=["a cat"])

    every = {
        "plain": plain,
        "lower layers": lambda: model.trunk(x),
        "one head": one,
        "all heads": lambda: ccs.heatmap(model, kept, ["a dog"]),
    }
    return smallest(every, 5, time.perf_counter)


def peaks() -> list[dict[str, int]]:
    """Peak memory in MiB of maps of ViT-L-14-336's 64 heads, beside that of embedding the same images."""
    model = ccs.load("ViT-L-14-336/random")
    x = torch.randn(1, 3, 336, 336).expand(32, -1, -1, -1)
    along = np.eye(model.dim, dtype=np.float32)[:4]
    rows = []
    for images in (2, 2, 32):  # the first is a warm-up
        row = {"images": images}
        for name, run in (
            ("embedded", lambda n=images: model.embed_images(x[:n])),
            ("maps", lambda n=images: heatmap(model, x[:n], along, apart=True)),
        ):
            Path("/proc/self/clear_refs").write_text("5")
            run()
            row[name] = int(memory("VmHWM"))
        rows.append(row)
    return rows[1:]


def main() -> None:
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = [ratios(architecture) for architecture in IMAGES]
    for row in rows:
        print(*(f"{name} {value}" for name, value in row.items()), flush=True)
    clocks = page()
    print(f"{PICTURES} pictures, seconds:", clocks, flush=True)
    lines = peaks() if sys.platform == "linux" else []
    print(lines)
    about = {"torch": torch.__version__, "machine": MACHINE, "load": load}
    keep("maps", {"about": about, "ratios": rows, "pictures": clocks, "memory_mib": lines})


if __name__ == "__main__":
    main()
