"""Cost of an ablation set and of the contributions relative to open_clip's forward pass, and peak memory.

    python -m benchmarks.encoder

All results are ratios within one run. The forward passes alternate on one thread. We count this process's CPU
time and keep the minimum of the repeats, so other work on the machine hardly matters.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch

import ccs
from benchmarks.common import MACHINE, keep, memory, smallest
from ccs import Head, HeadSet

IMAGES = {"ViT-B-32": 8, "ViT-B-16": 2, "ViT-L-14": 1}
ALLOWED = {"ViT-B-32": 0.28, "ViT-B-16": 0.28, "ViT-L-14": 0.14}
CONTRIBUTIONS_ALLOWED = 1.1
SETS, TREE_ALLOWED = 40, 1.1
"""Ablation sets of an evaluation, and their largest cost in units of the cost that their tree predicts. For
direct effects, the unit is the cost of the same sets without them."""
REPEATS = 3
COLUMNS = ("nothing_off", "one_set", "one_of_4_sets", "one_of_all_single_heads", "allowed", "contributions")


def measure(architecture: str) -> dict[str, float | str]:
    """Return the ratios for one architecture, with untrained weights."""
    model = ccs.load(f"{architecture}/random")
    encoder, none = model.encoder, [HeadSet()]
    x = torch.randn(IMAGES[architecture], 3, *encoder.image_size)
    trunk, layers = encoder.trunk(x), range(encoder.first_prunable_layer, model.n_layers)
    # The costliest ablation sets: no two agree in any layer that can be pruned.
    apart = [HeadSet(Head(layer, head) for layer in layers) for head in range(4)]
    single = [HeadSet([head]) for head in model.heads]

    def plain() -> None:
        with torch.no_grad():
            model.clip.encode_image(x)

    seconds = smallest(
        {
            "plain": plain,
            "none": lambda: encoder.embed(x, none),
            "contributions": lambda: encoder.contributions(encoder.embed_and_read(x)[1]),
            "1 set": lambda: encoder.embed(trunk, apart[:1]),
            "4 sets": lambda: encoder.embed(trunk, apart),
        },
        REPEATS,
    )
    # Single heads are many sets; one round of them and one more plain pass are enough.
    many = smallest({"plain": plain, "single heads": lambda: encoder.embed(trunk, single)}, 1)
    return {
        "model": architecture,
        "plain_seconds_an_image": seconds["plain"] / len(x),
        "nothing_off": seconds["none"] / seconds["plain"],
        "one_set": seconds["1 set"] / seconds["plain"],
        "one_of_4_sets": seconds["4 sets"] / 4 / seconds["plain"],
        "one_of_all_single_heads": many["single heads"] / len(single) / many["plain"],
        "allowed": ALLOWED[architecture],
        "contributions": seconds["contributions"] / seconds["plain"],
        "contributions_allowed": CONTRIBUTIONS_ALLOWED,
    }


def evaluation(architecture: str) -> dict[str, float | str]:
    """Measure the cost of ablation sets relative to their tree, and the cost of direct effects.

    The tree has, in each layer but the last (which needs only one query), one pass for each different set of
    heads that is ablated up to there. The cost of a pass comes from sets that share no layer.
    """
    model = ccs.load(f"{architecture}/random")
    encoder, rng = model.encoder, random.Random(0)
    x = torch.randn(IMAGES[architecture], 3, *encoder.image_size)
    trunk, layers = encoder.trunk(x), range(encoder.first_prunable_layer, model.n_layers)
    apart = [HeadSet(Head(layer, head) for layer in layers) for head in range(4)]
    ablations = [HeadSet(), *(HeadSet(rng.sample(list(model.heads), 8)) for _ in range(SETS - 1))]
    nodes = [len({HeadSet(h for h in off if h.layer <= last) for off in ablations}) for last in layers[:-1]]
    seconds = smallest(
        {
            "apart": lambda: encoder.embed(trunk, apart),
            "tree": lambda: encoder.embed(trunk, ablations),
            "ablation_sets": lambda: encoder.embed(x, ablations),
            "direct": lambda: encoder.contributions(
                encoder.embed_and_read(x, ablations, model.heads)[1], model.heads
            ),
        },
        REPEATS,
    )
    return {
        "model": architecture,
        "ablation_sets": SETS,
        "tree": seconds["tree"] / (seconds["apart"] / len(apart) * sum(nodes) / len(nodes)),
        "direct": seconds["direct"] / seconds["ablation_sets"],
        "allowed": TREE_ALLOWED,
    }


def peaks() -> list[dict[str, int]]:
    """Measure the peak memory in MiB of embedding images under ablation sets, in batches of 8 (ViT-B-32).

    The kernel's high-water mark is reset before each measurement, because loading the model raises it. Linux
    only.
    """
    model = ccs.load("ViT-B-32/random")
    rng = random.Random(0)
    ablations = [HeadSet(rng.sample(list(model.heads), 6)) for _ in range(16)]
    # One image over and over: this measures the encoder's memory, not that of the input.
    x = torch.randn(1, 3, 224, 224).expand(128, -1, -1, -1)
    rows = []
    for images, n_sets in ((8, 1), (8, 1), (128, 1), (8, 16), (64, 16)):  # the first is a warm-up
        Path("/proc/self/clear_refs").write_text("5")
        model.embed_images(x[:images], ablations[:n_sets], batch_size=8)
        rows.append({"images": images, "ablation_sets": n_sets, "peak_mib": int(memory("VmHWM"))})
    return rows[1:]


def main() -> None:
    torch.set_num_threads(1)
    print("In units of open_clip's forward pass:\n", " " * 10, *COLUMNS)
    rows = []
    for architecture in IMAGES:
        rows.append(row := measure(architecture))
        print(architecture.rjust(11), *(f"{row[name]:.3f}".rjust(len(name)) for name in COLUMNS), flush=True)
    cost = evaluation("ViT-B-32")
    print(f"{SETS} sets: {cost['tree']:.3f} of their tree, with direct effects {cost['direct']:.3f}")
    lines = peaks() if sys.platform == "linux" else []
    for line in lines:
        print(f"{line['images']:5d} images, {line['ablation_sets']:2d} sets: peak {line['peak_mib']} MiB")
    conditions = {"torch": torch.__version__, "machine": MACHINE, "threads": 1}
    keep("encoder", {"about": conditions, "ratios": rows, "evaluation": cost, "memory": lines})


if __name__ == "__main__":
    main()
