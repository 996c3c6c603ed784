"""Cost of a plan and of the contributions, in units of open_clip's own forward pass, and peak memory.

    python -m benchmarks.tower [--models ViT-B-32 ViT-L-14] [--repeats 3]

All figures are ratios within one run. The forward passes take turns, CPU time of this process is counted on
one thread, and the smallest of the repeats is kept, so other work on the machine hardly matters.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "tower.json"
IMAGES = {"ViT-B-32": 8, "ViT-B-16": 2, "ViT-L-14": 1}
ALLOWED = {"ViT-B-32": 0.28, "ViT-B-16": 0.28, "ViT-L-14": 0.14}
CONTRIBUTIONS_ALLOWED = 1.1
PLANS, TREE_ALLOWED = 40, 1.1
"""Plans of an evaluation, and what they may cost in units of what their tree says; direct effects, of the
same plans without them."""


def smallest(passes: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least CPU seconds of each pass; they take turns, after one round to warm up."""
    best = dict.fromkeys(passes, float("inf"))
    for turn in range(repeats + 1):
        for name, run in passes.items():
            start = time.process_time()
            run()
            if turn:
                best[name] = min(best[name], time.process_time() - start)
    return best


def measure(architecture: str, repeats: int) -> dict[str, float | str]:
    """Ratios for one architecture, with untrained weights."""
    import torch

    import ccs
    from ccs import Head, HeadSet

    torch.set_num_threads(1)
    model = ccs.load(f"{architecture}/random")
    tower = model.tower
    x = torch.randn(IMAGES.get(architecture, 8), 3, *tower.image_size)
    first = tower.first_prunable_layer
    none = [HeadSet()]
    # The dearest plans there are: no two agree in any layer that can be pruned.
    apart = [
        HeadSet(Head(layer, head) for layer in range(first, model.n_layers)) for head in range(model.n_heads)
    ][:4]
    single = [HeadSet([head]) for head in model.heads]

    def plain() -> None:
        with torch.no_grad():
            model.clip.encode_image(x)

    trunk = tower.trunk(x)
    seconds = smallest(
        {
            "plain": plain,
            "none": lambda: tower.embed(x, none),
            "contributions": lambda: tower.contributions(tower.embed_and_read(x)[1]),
            "1 plan": lambda: tower.embed(trunk, apart[:1]),
            "4 plans": lambda: tower.embed(trunk, apart),
        },
        repeats,
    )
    # Single heads are many plans; one turn of them against one more plain pass is enough.
    many = smallest({"plain": plain, "single heads": lambda: tower.embed(trunk, single)}, 1)
    return {
        "model": architecture,
        "plain_seconds_an_image": seconds["plain"] / len(x),
        "nothing_off": seconds["none"] / seconds["plain"],
        "plan_alone": seconds["1 plan"] / seconds["plain"],
        "plan_of_4": seconds["4 plans"] / 4 / seconds["plain"],
        "plan_of_all_single_heads": many["single heads"] / len(single) / many["plain"],
        "allowed": ALLOWED.get(architecture, float("nan")),
        "contributions": seconds["contributions"] / seconds["plain"],
        "contributions_allowed": CONTRIBUTIONS_ALLOWED,
    }


def evaluation(architecture: str, repeats: int) -> dict[str, float | str]:
    """Cost of an evaluation's plans relative to what their tree predicts, and what direct effects add.

    The tree: in each layer but the last, which needs one query alone, one pass for each different set of
    heads that is off up to there. The cost of a pass comes from plans that share no layer.
    """
    import random

    import torch

    import ccs
    from ccs import Head, HeadSet

    torch.set_num_threads(1)
    model = ccs.load(f"{architecture}/random")
    tower, rng = model.tower, random.Random(0)
    x = torch.randn(IMAGES.get(architecture, 8), 3, *tower.image_size)
    trunk, layers = tower.trunk(x), range(tower.first_prunable_layer, model.n_layers)
    apart = [HeadSet(Head(layer, head) for layer in layers) for head in range(4)]
    plans = [HeadSet(), *(HeadSet(rng.sample(list(model.heads), 8)) for _ in range(PLANS - 1))]
    nodes = [len({HeadSet(h for h in plan if h.layer <= last) for plan in plans}) for last in layers[:-1]]
    seconds = smallest(
        {
            "apart": lambda: tower.embed(trunk, apart),
            "tree": lambda: tower.embed(trunk, plans),
            "plans": lambda: tower.embed(x, plans),
            "direct": lambda: tower.contributions(
                tower.embed_and_read(x, plans, model.heads)[1], model.heads
            ),
        },
        repeats,
    )
    return {
        "model": architecture,
        "plans": PLANS,
        "tree": seconds["tree"] / (seconds["apart"] / len(apart) * sum(nodes) / len(nodes)),
        "direct": seconds["direct"] / seconds["plans"],
        "allowed": TREE_ALLOWED,
    }


def peaks() -> list[dict[str, int]]:
    """Peak memory in MiB while so many images are embedded under so many plans, in batches of 8 (ViT-B-32).

    The kernel's high-water mark is set back before each, so that loading the model does not hide it. Linux
    only.
    """
    import random

    import torch

    import ccs
    from ccs import HeadSet

    model = ccs.load("ViT-B-32/random")
    rng = random.Random(0)
    plans = [HeadSet(rng.sample(list(model.heads), 6)) for _ in range(16)]
    # One image over and over: this measures the tower's memory, not that of the input.
    x = torch.randn(1, 3, 224, 224).expand(128, -1, -1, -1)
    rows = []
    for images, n_plans in ((8, 1), (8, 1), (128, 1), (8, 16), (64, 16)):  # the first is a warm-up
        Path("/proc/self/clear_refs").write_text("5")
        model.embed_images(x[:images], plans[:n_plans], batch_size=8)
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
        rows.append({"images": images, "plans": n_plans, "peak_mib": peak})
    return rows[1:]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(IMAGES))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args(argv)
    import torch

    columns = (
        "nothing_off",
        "plan_alone",
        "plan_of_4",
        "plan_of_all_single_heads",
        "allowed",
        "contributions",
    )
    print("In units of open_clip's forward pass:\n", " " * 10, *columns)
    rows = []
    for architecture in arguments.models:
        rows.append(row := measure(architecture, arguments.repeats))
        print(architecture.rjust(11), *(f"{row[name]:.3f}".rjust(len(name)) for name in columns), flush=True)
    evaluated = evaluation(arguments.models[0], arguments.repeats)
    print(
        f"{PLANS} plans: {evaluated['tree']:.3f} of their tree, with direct effects {evaluated['direct']:.3f}"
    )
    memory = peaks() if sys.platform == "linux" else []
    for line in memory:
        print(
            f"{line['images']:5d} images, {line['plans']:2d} plans: peak {line['peak_mib']} MiB", flush=True
        )
    about = {"torch": torch.__version__, "machine": platform.processor() or platform.machine(), "threads": 1}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"about": about, "ratios": rows, "evaluation": evaluated, "memory": memory}, indent=1)
        + "\n",
        "utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
