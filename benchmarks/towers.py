"""Every family of image towers, one architecture of each at full size: largest errors, and costs.

    python -m benchmarks.towers [--families SigLIP CoCa] [--repeats 2]

Random weights. Errors are the largest difference of a coordinate of the unit embedding: of plans against a
deep copy with zeroed columns of the output projections, and of the sum of all contributions, both also with
the in-projections three times as large (sharp attention); there also how far ours and open_clip's own
embeddings are from those of the same weights in float64. Costs are in units of open_clip's own forward pass,
in turns within one run on one thread. Writes benchmarks/results/towers.json and the table in docs/towers.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tower import smallest

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "benchmarks" / "results" / "towers.json", ROOT / "docs" / "towers.md"
BEGIN, END = "<!-- made by python -m benchmarks.towers -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Family:
    """named: which of open_clip's architectures belong to it. measured: the one that is; images at a time."""

    named: str
    measured: str
    images: int = 2


FAMILIES = {
    "ViT, CLS token": Family(
        r"(?!.*(CLIPA|SigLIP|siglip)).*(ViT-|coca_(base|roberta)|nllb-clip)", "ViT-B-32", 8
    ),
    "MobileCLIP-B, -L; relative positions": Family(r"MobileCLIP2?-[BL]|vit_relpos", "MobileCLIP-B"),
    "SigLIP, SigLIP 2": Family(r".*(SigLIP|siglip)", "ViT-B-16-SigLIP2"),
    "PE-Core": Family(r"PE-Core", "PE-Core-B-16"),
    "EVA, EVA02": Family(r"EVA", "EVA02-B-16"),
    "ViTamin; average": Family(r"ViTamin|vit_medium", "ViTamin-S"),
    "CLIPA": Family(r".*CLIPA", "ViT-L-14-CLIPA", 1),
    "CoCa": Family(r"coca_ViT", "coca_ViT-B-32", 8),
    "ResNet": Family(r"RN", "RN50"),
}


def family_of(architecture: str) -> str | None:
    """The family of one of open_clip's architectures; None for one that is refused."""
    ordered = sorted(FAMILIES, key=lambda name: name == "ViT, CLS token")
    return next((name for name in ordered if re.match(FAMILIES[name].named, architecture)), None)


def measure(name: str, repeats: int) -> dict[str, Any]:
    """One family's row."""
    import open_clip
    import torch
    from open_clip.model import _build_vision_tower
    from torch.nn import functional as F

    from ccs import Head, HeadSet
    from ccs.model.tower import ImageTower

    torch.set_num_threads(1)
    family = FAMILIES[name]
    config = open_clip.get_model_config(family.measured)
    torch.manual_seed(0)
    visual = _build_vision_tower(config["embed_dim"], config["vision_cfg"], False).eval()
    tower = ImageTower(visual)
    x = torch.randn(family.images, 3, *tower.image_size)

    def plain(module: Any = visual) -> torch.Tensor:
        with torch.no_grad():
            out = module(x)
            return F.normalize(out[0] if isinstance(out, tuple) else out, dim=-1)

    def errors() -> tuple[float, float]:
        off = HeadSet(list(tower.heads)[::3])
        copied = copy.deepcopy(visual)
        for head in off:
            layer = ImageTower(copied).layers[head.layer]
            layer.projection.weight.data[:, head.head * layer.head_dim : (head.head + 1) * layer.head_dim] = 0
        direct, rest = tower.contributions(tower.embed_and_read(x)[1])
        plans = (tower.embed(x, [off])[0] - plain(copied)).abs().max()
        return float(plans), float((direct.sum(1) + rest - plain()).abs().max())

    as_made = errors()
    first = tower.first_prunable_layer
    layers = range(first, tower.n_layers)
    apart = [
        HeadSet(Head(layer, head % tower.layers[layer].n_heads) for layer in layers) for head in range(4)
    ]
    trunk = tower.trunk(x)
    seconds = smallest(
        {
            "plain": plain,
            "contributions": lambda: tower.contributions(tower.embed_and_read(x)[1]),
            "contributions of scored heads": lambda: tower.contributions(
                tower.embed_and_read(x, heads=tower.heads)[1], tower.heads
            ),
            "1 plan": lambda: tower.embed(trunk, apart[:1]),
            "4 plans": lambda: tower.embed(trunk, apart),
        },
        repeats,
    )
    for label, values in visual.named_parameters():
        if re.search(r"in_proj_weight|qkv\.weight|[qk]_proj\.weight|kv\.weight|attn\.[qkv]_proj", label):
            values.data *= 3
    sharp = errors()
    with torch.no_grad():
        exact = copy.deepcopy(visual).double()(x.double())
    exact = F.normalize(exact[0] if isinstance(exact, tuple) else exact, dim=-1)
    accepted = [one for one in open_clip.list_models() if family_of(one) == name]
    rank = max(tower.rank(head) for head in tower.heads)
    return {
        "family": name,
        "architectures": len(accepted),
        "tags": sum(len(open_clip.list_pretrained_tags_by_model(one)) for one in accepted),
        "measured": family.measured,
        "plans_error": as_made[0],
        "contributions_error": as_made[1],
        "sharp_plans_error": sharp[0],
        "sharp_ours_to_exact_error": float((tower.embed(x)[0] - exact).abs().max()),
        "sharp_open_clips_to_exact_error": float((plain() - exact).abs().max()),
        "plan": seconds["1 plan"] / seconds["plain"],
        "plan_of_4": seconds["4 plans"] / 4 / seconds["plain"],
        "contributions": seconds["contributions"] / seconds["plain"],
        "contributions_of_scored": seconds["contributions of scored heads"] / seconds["plain"],
        "rank": rank,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    heading = (
        "family, architectures, tags, measured, plans, contributions, sharp: plans, sharp: ours to float64, "
        "sharp: open_clip's to float64, a plan, one of 4 plans, all contributions, scored heads', directions"
    )
    lines = [f"| {heading.replace(', ', ' | ')} |", "|---|" + "---:|" * 2 + "---|" + "---:|" * 10]
    for row in rows:
        found = [f"{row[key]:.0e}" for key in row if key.endswith("_error")]
        costs = [
            f"{row[key]:.2f}" for key in ("plan", "plan_of_4", "contributions", "contributions_of_scored")
        ]
        counts = [row["family"], row["architectures"], row["tags"], row["measured"]]
        lines.append("| " + " | ".join(map(str, [*counts, *found, *costs, row["rank"]])) + " |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args(argv)
    known = {row["family"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for name in arguments.families:
        known[name] = measure(name, arguments.repeats)
        print(table([known[name]]).splitlines()[-1], flush=True)
    rows = [known[name] for name in FAMILIES if name in known]
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    before, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
