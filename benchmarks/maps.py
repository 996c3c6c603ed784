"""Cost of maps over patches, in units of open_clip's own forward pass of the same images, and peak memory.

    python -m benchmarks.maps

Ratios are of CPU time on one thread, the smallest of the repeats; passes take turns. What the page does for
four pictures is on the wall, on all cores, beside the plain pass.
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
from ccs import Head, HeadSet
from ccs.app.services import examples
from ccs.app.services.images import Images, highlight, tint
from ccs.app.services.model_cache import Cache
from ccs.model.handle import ModelHandle
from ccs.model.maps import heatmap

IMAGES = {"ViT-B-32": 8, "ViT-B-16": 2, "ViT-L-14": 1}
ALLOWED = 1.2
REPEATS = 3


def ratios(architecture: str) -> dict[str, float | str]:
    """Maps of all scored heads along one vector, and attention of those heads, in plain passes."""
    model = ccs.load(f"{architecture}/random")
    x = torch.randn(IMAGES[architecture], 3, *model.encoder.image_size)
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
    costs = {name: seconds[name] / seconds["plain"] for name in ("heatmap", "attention")}
    return {"model": architecture, **costs, "allowed": ALLOWED}


def page() -> dict[str, float]:
    """Seconds on the wall for four photographs, from their files' pixels to pictures of both maps of a head,
    where it looks and what it writes: of new ones, and of another head of ones that are known.

    The text is known, as on the page; a new one takes `text`. all heads: the map of Classify, not drawn.
    """
    torch.set_num_threads(os.cpu_count() or 1)
    model, pictures = ccs.load("ViT-B-32/random"), examples.load_example("photographs:0").images
    x = model.preprocess([image.pixels for image in pictures])
    along, handle = model.embed_texts(["a dog"]) - model.embed_texts(["a cat"]), ModelHandle.from_model(model)

    def new() -> Images:
        return Images((), [image.pixels for image in pictures], Cache(), originals=pictures)

    def plain() -> None:
        with torch.no_grad():
            model.clip.encode_image(x)

    def drawn(images: Images, head: Head) -> None:
        """Draw both maps of a head for every image.

        Args:
            images: The images.
            head: The head.
        """
        looks = images.attention(handle, head.layer, HeadSet())[:, head.head]
        sent = images.maps(handle, HeadSet([head]), along, HeadSet())[:, 0]
        peak, largest = float(looks.max()), float(np.abs(sent).max())
        for picture, look, contribution in zip(images.inputs(handle), looks, sent, strict=True):
            highlight(picture, look, peak)
            tint(picture, contribution, largest)

    known, heads = new(), iter(model.heads.of_layer(model.n_layers - 1))
    drawn(known, next(heads))
    passes = {
        "plain": plain,
        "new pictures": lambda: drawn(new(), Head(model.n_layers - 1, 5)),
        "another head": lambda: drawn(known, next(heads)),
        "all heads": lambda: new().maps(handle, model.heads, along, HeadSet()),
        "text": lambda: model.embed_texts(["a dog"]),
    }
    return {"load": os.getloadavg()[0], **smallest(passes, 5, time.perf_counter)}


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
    print("four pictures, seconds:", clocks, flush=True)
    lines = peaks() if sys.platform == "linux" else []
    print(lines)
    conditions = {"torch": torch.__version__, "machine": MACHINE, "load": load}
    keep("maps", {"about": conditions, "ratios": rows, "pictures": clocks, "memory_mib": lines})


if __name__ == "__main__":
    main()
