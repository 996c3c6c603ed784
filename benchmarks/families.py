"""Every family of image encoders, one architecture of each at full size: largest errors, and costs.

    python -m benchmarks.families [--families SigLIP CoCa] [--against ViT-B-32] [--repeats 2]

Random weights. Errors are the largest difference of a coordinate of the unit embedding: for ablation, from
open_clip's own forward pass of a deep copy with zeroed columns of the output projections; for the sum of
all contributions, from the embedding. Both are repeated with in-projections three times as large (sharp
attention), with the distance of our and open_clip's embeddings from float64. Costs are in units of
open_clip's own forward pass, in turns within one run on one thread. ViTs read at the CLS token are also
compared with the TEXTSPAN authors' fastest mode (`benchmarks.no_spatial`): time, and each head's
contribution against float64. Writes benchmarks/results/families.json and the tables in docs/models.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import open_clip
import torch
from open_clip.model import _build_vision_tower

from benchmarks import no_spatial
from benchmarks.common import RESULTS, ROOT, keep, smallest
from ccs import Head, HeadSet, Intervention
from ccs.heads import Heads
from ccs.model.encoder import Encoder

DOCUMENT = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- made by python -m benchmarks.families -->\n", "<!-- end -->\n"
BETWEEN = """
The next table compares all contributions: ours / the TEXTSPAN authors' fastest mode. Errors are the largest
of a coordinate: of each head's contribution against float64, and of the sum of all parts against open_clip's
embedding.

"""
PROJECTIONS = r"(attn|attn_pool|attnpool|attention)\.(out_proj|proj|c_proj|projection)$"
"""Names of the output projections, in the order of the layers; the pool's is last."""


@dataclass(frozen=True)
class Family:
    """pattern: matches its architectures in open_clip. measured: the one that is; images at a time."""

    pattern: str
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
    return next((name for name in ordered if re.match(FAMILIES[name].pattern, architecture)), None)


def built(architecture: str) -> Any:
    """open_clip's image encoder with random weights; one thread from here on."""
    torch.set_num_threads(1)
    config = open_clip.get_model_config(architecture)
    torch.manual_seed(0)
    return _build_vision_tower(config["embed_dim"], config["vision_cfg"], False).eval()


def plain(visual: Any, x: Any) -> Any:
    """Compute unit embeddings [n, D] in open_clip's own forward pass.

    Args:
        visual: The open_clip image encoder.
        x: Preprocessed pixels [n, 3, s, s].
    """
    with torch.no_grad():
        out = visual(x)
    return torch.nn.functional.normalize(out[0] if isinstance(out, tuple) else out, dim=-1)


def zeroed(encoder: Any, heads: Heads) -> Any:
    """Copy an encoder and scale the columns of heads in its output projections, by the names of its modules.

    Args:
        encoder: An image or text encoder of open_clip, timm, or transformers, or a model with one encoder.
        heads: The heads, in any form that `ccs.ablate` takes; those without a factor are zeroed.
    """
    copied, changes = copy.deepcopy(encoder), Intervention(Intervention.from_heads(heads))
    names = [name for name, _ in copied.named_modules() if re.search(PROJECTIONS, name)]
    for head in changes:
        projection = copied.get_submodule(names[head.layer])
        d = projection.in_features // copied.get_submodule(names[head.layer].rpartition(".")[0]).num_heads
        projection.weight.data[:, head.head * d : (head.head + 1) * d] *= changes[head].factor
    return copied


def sharpen(visual: Any) -> None:
    """In-projections times three, in place: scores times nine."""
    for label, values in visual.named_parameters():
        if re.search(r"in_proj_weight|qkv\.weight|[qk]_proj\.weight|kv\.weight|attn\.[qkv]_proj", label):
            values.data *= 3


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Measure the errors and the time of one family.

    Args:
        name: The family, a key of `FAMILIES`.
        repeats: Number of measured rounds of each pass.

    Returns:
        The family's row: errors are largest absolute differences, times are relative to a plain pass.

    Raises:
        RuntimeError: If the ablation changes nothing.
    """
    family = FAMILIES[name]
    visual = built(family.measured)
    encoder = Encoder(visual)
    x = torch.randn(family.images, 3, *encoder.image_size)

    def errors() -> tuple[float, float]:
        off = HeadSet(list(encoder.heads)[::3])
        before, after = plain(visual, x), plain(zeroed(visual, off), x)
        if float((before - after).abs().max()) < 1e-3:
            raise RuntimeError(f"{name}: the ablation changes nothing, so nothing is compared.")
        direct, remainder = encoder.contributions(encoder.embed_and_read(x)[1])
        ablation = (encoder.embed(x, [off])[0] - after).abs().max()
        return float(ablation), float((direct.sum(1) + remainder - before).abs().max())

    as_made = errors()
    first = encoder.first_prunable_layer
    layers = range(first, encoder.n_layers)
    apart = [
        HeadSet(Head(layer, head % encoder.layers[layer].n_heads) for layer in layers) for head in range(4)
    ]
    trunk = encoder.trunk(x)
    seconds = smallest(
        {
            "plain": lambda: plain(visual, x),
            "contributions": lambda: encoder.contributions(encoder.embed_and_read(x)[1]),
            "contributions of scored heads": lambda: encoder.contributions(
                encoder.embed_and_read(x, heads=encoder.heads)[1], encoder.heads
            ),
            "1 set": lambda: encoder.embed(trunk, apart[:1]),
            "4 sets": lambda: encoder.embed(trunk, apart),
        },
        repeats,
    )
    sharpen(visual)
    sharp = errors()
    exact = plain(copy.deepcopy(visual).double(), x.double())
    accepted = [architecture for architecture in open_clip.list_models() if family_of(architecture) == name]
    rank = max(encoder.rank(head) for head in encoder.heads)
    return {
        "family": name,
        "architectures": len(accepted),
        "tags": sum(len(open_clip.list_pretrained_tags_by_model(architecture)) for architecture in accepted),
        "measured": family.measured,
        "ablation_error": as_made[0],
        "contributions_error": as_made[1],
        "sharp_ablation_error": sharp[0],
        "sharp_ours_to_exact_error": float((encoder.embed(x)[0] - exact).abs().max()),
        "sharp_open_clips_to_exact_error": float((plain(visual, x) - exact).abs().max()),
        "one_set": seconds["1 set"] / seconds["plain"],
        "one_of_4_sets": seconds["4 sets"] / 4 / seconds["plain"],
        "contributions": seconds["contributions"] / seconds["plain"],
        "contributions_of_scored": seconds["contributions of scored heads"] / seconds["plain"],
        "rank": rank,
    }


def against(architecture: str, repeats: int) -> dict[str, Any]:
    """Compare our contributions with those of the TEXTSPAN authors' fastest mode.

    Args:
        architecture: Architecture in open_clip: a ViT that is read at the CLS token.
        repeats: Number of measured rounds of each pass.

    Returns:
        Times relative to a plain pass, and the errors with weights as made and sharpened.
    """
    visual = built(architecture)
    encoder = Encoder(visual)
    x = torch.randn(8, 3, *encoder.image_size)

    def ours() -> tuple[Any, Any]:
        return encoder.contributions(encoder.embed_and_read(x)[1])

    def errors() -> dict[str, float]:
        """Of each head's contribution to float64's, and of the sum of all parts to open_clip's embedding."""
        exact = no_spatial.contributions(copy.deepcopy(visual).double(), x.double())[0].flatten(1, 2)
        our, their = ours(), no_spatial.contributions(visual, x)
        embedding = plain(visual, x)
        sums = {"ours": our[0].sum(1) + our[1], "theirs": their[0].sum((1, 2)) + their[1].sum(1)}
        return {
            "ours_heads": float((our[0] - exact).abs().max()),
            "theirs_heads": float((their[0].flatten(1, 2) - exact).abs().max()),
            **{f"{name}_sum": float((total - embedding).abs().max()) for name, total in sums.items()},
        }

    as_made = errors()
    seconds = smallest(
        {
            "plain": lambda: plain(visual, x),
            "ours": ours,
            "theirs": lambda: no_spatial.contributions(visual, x),
        },
        repeats,
    )
    sharpen(visual)
    return {
        "architecture": architecture,
        "ours": seconds["ours"] / seconds["plain"],
        "theirs": seconds["theirs"] / seconds["plain"],
        "as made": as_made,
        "sharp": errors(),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The families' rows as Markdown."""
    heading = (
        "family, architectures, tags, measured, ablation, contributions, sharp: ablation, "
        "sharp: ours to float64, sharp: open_clip's to float64, one set, one of 4 sets, all contributions, "
        "scored heads', directions"
    )
    lines = [f"| {heading.replace(', ', ' | ')} |", "|---|" + "---:|" * 2 + "---|" + "---:|" * 10]
    for row in rows:
        errors = [f"{row[key]:.0e}" for key in row if key.endswith("_error")]
        costs = [
            f"{row[key]:.2f}"
            for key in ("one_set", "one_of_4_sets", "contributions", "contributions_of_scored")
        ]
        counts = [row["family"], row["architectures"], row["tags"], row["measured"]]
        lines.append("| " + " | ".join(map(str, [*counts, *errors, *costs, row["rank"]])) + " |")
    return "\n".join(lines) + "\n"


def table_against(rows: Sequence[dict[str, Any]]) -> str:
    """The rows beside the TEXTSPAN authors' mode as Markdown: ours / theirs in each cell."""
    heading = "time of a plain pass, heads, sum, sharp: heads, sharp: sum"
    lines = [f"| ours / `head_no_spatial` | {heading.replace(', ', ' | ')} |", "|---|" + "---:|" * 5]
    for row in rows:
        cells = [f"{row['ours']:.2f} / {row['theirs']:.2f}"]
        for errors in (row["as made"], row["sharp"]):
            cells += [
                f"{errors[f'ours_{part}']:.0e} / {errors[f'theirs_{part}']:.0e}" for part in ("heads", "sum")
            ]
        lines.append(f"| {' | '.join([row['architecture'], *cells])} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--against", nargs="*", default=["ViT-B-32", "ViT-B-16"])
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args(argv)
    known = json.loads((RESULTS / "families.json").read_text("utf-8"))
    for name in arguments.families:
        known["families"][name] = measure(name, arguments.repeats)
        print(table([known["families"][name]]).splitlines()[-1], flush=True)
    for name in arguments.against:
        known["against"][name] = against(name, arguments.repeats)
        print(table_against([known["against"][name]]).splitlines()[-1], flush=True)
    keep("families", known)
    families = table([known["families"][name] for name in FAMILIES])
    tables = families + BETWEEN + table_against(list(known["against"].values()))
    before, _, after = DOCUMENT.read_text("utf-8").partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + tables + END + after.partition(END)[2], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
