"""Moments of photographs, from files to sums, compared with a plain loop that only loads and encodes them.

    python -m benchmarks.moments [--photographs ../shared/data/imagenet-sample]

ViT-B-32 with random weights. The plain loop is torch's DataLoader with open_clip's own preprocessing and
`encode_image`. Both use the same files, batches, decoding processes and threads, and take turns within one
run. Their ratio should be at least 1: moments should cost nothing beyond encoding the images.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

import ccs
from benchmarks.common import PHOTOGRAPHS, keep, timed
from ccs.batch.compute import Settings
from ccs.batch.compute.embed import Embedder
from ccs.batch.compute.inputs import decoders
from ccs.batch.compute.stages import Processes, Store
from ccs.data.open import open_images
from ccs.model.model import Model

MODEL, ALLOWED = "ViT-B-32/random", 1.0
COUNT, REPEATS = 500, 2


class Files:
    """Pixels of image files by open_clip's own preprocessing, for a DataLoader."""

    def __init__(self, paths: Sequence[Path], preprocess: Any) -> None:
        self.paths, self.preprocess = paths, preprocess

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as image:
            return self.preprocess(image.convert("RGB"))


def measure(photographs: Path, model: Model, repeats: int = REPEATS) -> dict[str, Any]:
    """Measure the images per second of head statistics and of a plain DataLoader loop.

    Args:
        photographs: The folder; all of its files are read.
        model: The model.
        repeats: Number of measured rounds; the best counts.

    Returns:
        Both rates, their ratio (ours to plain), and the setup.
    """
    device = model.encoder.device
    settings = Settings(images=str(photographs))
    images = open_images(settings.images, settings.max_images, seed=settings.seed)
    paths = sorted(photographs.iterdir())
    transform = image_transform_v2(PreprocessCfg(**model.preprocess_config), is_train=False)
    size, workers = 0, decoders(len(paths), device.type)

    def ours() -> None:
        nonlocal size
        with tempfile.TemporaryDirectory() as folder:
            embedder = Embedder(model, Store(Path(folder), Processes()), settings)
            size = embedder.batch_size
            stage = embedder.statistics(images)
            assert embedder.read_statistics(stage).count == len(paths)

    def plain() -> None:
        files: Any = Files(paths, transform)
        loader: Any = torch.utils.data.DataLoader(
            files,
            batch_size=size,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=device.type == "cuda",
            multiprocessing_context="fork" if workers else None,
        )
        with torch.no_grad():
            assert sum(len(model.clip.encode_image(x.to(device)).cpu()) for x in loader) == len(paths)

    best = {"ours": float("inf"), "plain": float("inf")}
    load = os.getloadavg()[0]
    for turn in range(repeats + 1):  # the first warms up: files, threads
        for name, run in (("ours", ours), ("plain", plain)):
            seconds = timed(run)
            if turn:
                best[name] = min(best[name], seconds)
    rates = {f"{name} images a second": len(paths) / seconds for name, seconds in best.items()}
    setup = {
        "photographs": len(paths),
        "batch": size,
        "decoders": workers,
        "threads": torch.get_num_threads(),
    }
    return setup | rates | {"ratio": best["plain"] / best["ours"], "load before": load, "allowed": ALLOWED}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and keep as JSON; 1 where ours is slower than the plain loop."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--photographs", type=Path, default=PHOTOGRAPHS, metavar="FOLDER")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(arguments.photographs.glob("*.jpg"))[:COUNT]:
            shutil.copy(path, folder)
        rates = measure(Path(folder), ccs.load(MODEL))
    print(json.dumps(rates, indent=1))
    keep("moments", rates)
    return int(rates["ratio"] < ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
