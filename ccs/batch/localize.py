"""Find the heads that carry a bias: `clip-ccs localize --help`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import ccs
from ccs.analysis.bias import set_question
from ccs.analysis.carriers import DEFAULT, METHODS
from ccs.analysis.localize import FOUND, RANDOM, CarrierTable
from ccs.analysis.which_encoder import which_encoder
from ccs.batch.pages import change, printed
from ccs.batch.search import GallerySettings
from ccs.cli.command_line import Command
from ccs.cli.options import ANALYSIS, DATA, at_least, describe
from ccs.data.open import open_gallery
from ccs.metrics.stats import Effect


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Find the heads that carry a bias, and measure their ablation on held-out images and prompts.

    The result states how reliable the method is on models whose biased heads are known.
    """

    attribute: Annotated[tuple[str, ...], DATA, describe("Column of the groups of people; repeatable")] = ()
    method: Annotated[str, ANALYSIS, describe(f"Method: {', '.join(METHODS)}")] = DEFAULT
    max_images: Annotated[int, DATA, at_least(4)] = 1000
    """Number of images of each dataset, at most"""
    encoders: Annotated[Literal["image", "both"], ANALYSIS] = "image"
    """both: also the shares of the group score gap that come from the images and from the prompts"""
    pictures: Annotated[str, DATA] = "world/counterfactuals"
    """With --encoders both: images of each occupation in all groups"""


CARRIES = 0.1
"""The share of the lean that goes with a text head, for it to be listed."""


def localize(args: Settings) -> None:
    """Print the heads and their effects, for each attribute."""
    model = ccs.load(args.model, device=args.device)
    for attribute in args.attribute or (None,):
        table = ccs.localize(model, **args.arguments() | {"attribute": attribute}, method=args.method)
        for name in table.about["skipped"]:
            print(f"Skipped in {name}", file=sys.stderr)
        print(page(table))
        if args.encoders == "both":
            chosen = table.about["attribute"]
            people = open_gallery(args.gallery, attribute=chosen, max_images=args.max_images)
            people = set_question(people, args.occupations, args.template, args.top)
            pictures = open_gallery(args.pictures, attribute=chosen, max_images=args.max_images)
            encoders = which_encoder(model, people, pictures, chosen, args.seed)
            heads = [f"{head} ({share:.0%})" for head, share in encoders.carried.items() if share >= CARRIES]
            print(printed("encoders", found=encoders, attribute=chosen, pictures=pictures.name, heads=heads))


def page(table: CarrierTable) -> str:
    """Format the heads and their effects in about ten lines."""
    effects = dict(tuple(table.effects.groupby(["ablation", "metric"])))

    def changed(metric: str) -> str:
        row = effects[FOUND, metric].iloc[0]
        effect = Effect(*(row[end] for end in ("difference", "difference_low", "difference_high", "p_value")))
        return f"{row['before']:.3f} -> {row['after']:.3f}, {change(effect)}"

    return printed(
        "localize",
        table=table,
        about=table.about,
        changed=changed,
        chance=float(effects["none", "MaxSkew"]["chance"].iloc[0]),
        parts=[_part(row) for row in table.parts.to_dict("records")],
        drawn=list(effects[RANDOM, "MaxSkew"]["difference"]) if (RANDOM, "MaxSkew") in effects else [],
    )


def _part(row: Mapping[Any, Any]) -> dict[str, str]:
    """Return a line about how ablation moves the general and the specific part."""
    line = {"ablated": row["ablate"]}
    for name in ("general", "specific"):
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        line[f"{name} part"] = f"{row[name]:+.0%} [{low:+.0%}, {high:+.0%}]"
    return line | {"moves": row["moves"]}


main = Command(
    Settings,
    localize,
    (
        "clip-ccs localize --model organism --attribute gender",
        'clip-ccs localize --model DIR --gallery DIR --method "activation patching"',
    ),
)

if __name__ == "__main__":
    sys.exit(main())
