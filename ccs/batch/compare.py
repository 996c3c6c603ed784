"""Compare two models head by head: `clip-ccs compare A B`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import pandas as pd

import ccs
from ccs.analysis.compare import SIDES
from ccs.batch.pages import printed
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.files import write_text


@dataclass(frozen=True)
class CompareOptions:
    """Match the heads of two models by what they encode, and list the changes, largest first."""

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
    table = ccs.compare(
        settings.first,
        settings.second,
        settings.images,
        settings.texts or "world",
        gallery=settings.gallery,
        attribute=settings.attribute,
        max_images=settings.max_images,
        top=settings.heads,
        device=settings.device,
    )
    rows = table.rows
    print(
        printed(
            "compare",
            about=table.about,
            pairs=len(rows),
            same=int((rows["first"] == rows["second"]).sum()),
            middle=float(rows["alike"].median()),
            related=table.related,
            rows=[_pair_row(pair) for _, pair in rows.head(settings.heads).iterrows()],
        )
    )
    if settings.csv:
        write_text(settings.csv, rows.to_csv(index=False))


def _pair_row(pair: Any) -> dict[str, str]:
    """Format a pair of heads. A value that both share comes once."""

    def joined(cell: Callable[[str], str], separator: str = " -> ") -> str:
        """Join the cells of both heads. A cell that both share comes once.

        Args:
            cell: Function from a side of `SIDES` to its cell.
            separator: Text between the cells.
        """
        return separator.join(dict.fromkeys(map(cell, SIDES)))

    return {
        "heads": joined(lambda side: str(pair[side]), " "),
        "alike": f"{pair['alike']:.2f}",
        "changed": "" if pd.isna(pair["changed"]) else f"{pair['changed']:.3f}",
        "MaxSkew, ablated": " ".join(f"{pair[f'{side}_after']:.3f}" for side in SIDES),
        "label (CCS)": joined(lambda side: f"{pair[f'{side}_label']} ({pair[f'{side}_ccs']})"),
        "first text": joined(lambda side: pair[f"{side}_texts"].split(" | ")[0]),
    }


main = Command(
    CompareOptions,
    print_comparison,
    (
        "clip-ccs compare organism-control organism",
        "clip-ccs compare BASE FINE_TUNED --images DIR",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
