"""Compare two models head by head: `clip-ccs compare A B`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import pandas as pd

import ccs
from ccs.analysis.compare import SIDES
from ccs.batch.pages import printed, show
from ccs.cli import options
from ccs.cli.command_line import Command


@dataclass(frozen=True)
class CompareOptions:
    """Match the heads of two models by what they encode, and list the changes, largest first.

    Examples:
        clip-ccs compare organism-control organism
        clip-ccs compare BASE FINE_TUNED --images DIR
    """

    first: str
    """First model, such as the base model of a fine-tuned one"""
    second: str
    """Second model"""
    _: KW_ONLY
    images: options.Images = "world"
    texts: options.Texts = "world"
    max_images: Annotated[int, options.DATA, options.at_least(2)] = 300
    """Largest number of images"""
    gallery: options.Gallery = "world/faces"
    attribute: options.Attribute = None
    heads: Annotated[int, options.OUTPUT, options.at_least(1)] = 10
    """Number of pairs of heads to list and ablate"""
    csv: options.Csv = None
    device: options.Device = "auto"


def print_comparison(settings: CompareOptions) -> None:
    """Print the pairs of heads, and write all of them to the CSV file."""
    table = ccs.compare(**options.arguments(settings, "heads"), top=settings.heads)
    rows = table.rows
    text = printed(
        "compare",
        about=table.about,
        pairs=len(rows),
        same=int((rows["first"] == rows["second"]).sum()),
        middle=float(rows["alike"].median()),
        related=table.related,
        rows=[_pair_row(pair) for _, pair in rows.head(settings.heads).iterrows()],
    )
    show(text, table, settings.csv)


def _pair_row(pair: Any) -> dict[str, str]:
    """Format a pair of heads. A value that both share comes once."""
    cells = [
        (
            str(pair[side]),
            f"{pair[f'{side}_label']} ({pair[f'{side}_ccs']})",
            pair[f"{side}_texts"].split(" | ")[0],
        )
        for side in SIDES
    ]
    heads, labels, texts = (dict.fromkeys(values) for values in zip(*cells, strict=True))
    return {
        "heads": " ".join(heads),
        "alike": f"{pair['alike']:.2f}",
        "changed": "" if pd.isna(pair["changed"]) else f"{pair['changed']:.3f}",
        "MaxSkew, ablated": " ".join(f"{pair[f'{side}_after']:.3f}" for side in SIDES),
        "label (CCS)": " -> ".join(labels),
        "first text": " -> ".join(texts),
    }


main = Command(CompareOptions, print_comparison)
