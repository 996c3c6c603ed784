"""Models with random weights, pixels, JPEG files, and a gallery, all generated without a network."""

from __future__ import annotations

import copy
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from PIL import Image
from torch import Tensor

from benchmarks.gpu.lines import Bench
from ccs import HeadSet
from ccs.data import BiasSet, Lazy
from ccs.model.loading.sources import find_model
from ccs.model.model import Model

OCCUPATIONS = ("judge", "nurse", "farmer", "pilot", "teacher")


def model(bench: Bench, name: str, device: str | torch.device = "", kind: torch.dtype | None = None) -> Model:
    """Return an architecture of full width with random weights, the same on every device.

    Models of one device share their weights.

    Args:
        bench: The device and the size of the work.
        name: The architecture.
        device: The device. Default: the bench's.
        kind: The type for autocast. Default: None, float32.
    """
    source = find_model(f"{name}/random")
    tokenizer = None if source.config["text_cfg"].get("hf_tokenizer_name") else open_clip.get_tokenizer(name)
    at = torch.device(device or bench.device)

    here = bench.once(("clip", name), lambda: untrained(name))
    moved = bench.once(
        ("clip", name, str(at)), lambda: here if at.type == "cpu" else copy.deepcopy(here).to(at)
    )
    return Model(source, moved, tokenizer, kind)


def untrained(name: str, device: str = "cpu") -> Any:
    """Return open_clip's model with random weights, always the same.

    Args:
        name: The architecture.
        device: The device; on `meta` the model has no weights. Default: cpu.
    """
    source = find_model(f"{name}/random")
    logging.disable(logging.WARNING)  # open_clip's, that no weights were loaded
    try:
        torch.manual_seed(0)
        with torch.device(device):
            clip = open_clip.create_model(
                name, force_quick_gelu=source.config["quick_gelu"], load_weights=False, device=device
            )
    finally:
        logging.disable(logging.NOTSET)
    return clip.eval().requires_grad_(False)


def pixels(model: Model, n: int, seed: int = 0) -> Tensor:
    """Return random pixels [n, 3, s, s] on the CPU.

    Args:
        model: The model, which sets the size s.
        n: Number of images.
        seed: Random seed.
    """
    return torch.randn(n, 3, *model.encoder.image_size, generator=torch.Generator().manual_seed(seed))


def ablations(scored_heads: HeadSet, n: int, size: int = 8) -> list[HeadSet]:
    """Return the empty ablation set, then random ones.

    Args:
        scored_heads: The heads to choose from.
        n: Number of ablation sets, with the empty one.
        size: Most heads in a set. Default: 8.
    """
    rng, heads = random.Random(0), list(scored_heads)
    return [HeadSet(), *(HeadSet(rng.sample(heads, min(size, len(heads)))) for _ in range(n - 1))]


def unit(n: int, dim: int) -> np.ndarray:
    """Return random unit vectors [n, dim], in place of text embeddings.

    Args:
        n: Number of vectors.
        dim: Their dimension.
    """
    rows = np.random.default_rng(1).standard_normal((n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def photograph(seed: int) -> Image.Image:
    """A picture with soft shapes and some noise, of the size of a small photograph."""
    rng = np.random.default_rng(seed)
    soft = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((341, 256), 3)
    noise = rng.integers(-20, 21, (256, 341, 3))
    return Image.fromarray((np.asarray(soft, np.int64) + noise).clip(0, 255).astype(np.uint8))


def files(bench: Bench, n: int) -> Path:
    """Return a folder of JPEG files, made once.

    Args:
        bench: The device and the size of the work.
        n: Number of files; from the 201st on they repeat.
    """

    def make() -> Path:
        folder = bench.folder / f"photographs-{n}"
        folder.mkdir(parents=True)
        for number in range(min(n, 200)):
            photograph(number).save(folder / f"{number:05d}.jpg", quality=90)
        for number in range(200, n):  # enough to be decoded; that they repeat changes nothing
            (folder / f"{number:05d}.jpg").hardlink_to(folder / f"{number % 200:05d}.jpg")
        return folder

    photographs: Path = bench.once(("files", n), make)
    return photographs


def gallery(bench: Bench, n: int) -> BiasSet:
    """Return a gallery of pictures with two made-up groups in turn.

    Args:
        bench: The device and the size of the work.
        n: Number of pictures.
    """
    paths = sorted(files(bench, n).iterdir())

    def read(path: Path) -> Image.Image:
        with Image.open(path) as image:
            return image.convert("RGB")

    return BiasSet(
        name="made-up",
        images=Lazy(read, paths),
        fingerprint=f"made up {n}",
        source="benchmarks.gpu",
        groups={"gender": np.array(["a", "b"])[np.arange(n) % 2]},
        occupations=OCCUPATIONS,
        templates=("a photo of a {}",),
        k={"gender": max(2, n // 10)},
    )
