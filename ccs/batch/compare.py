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
from ccs.cli.command_line import Command
from ccs.cli.options import DATA, OUTPUT, Attribute, Csv, Device, Gallery, Images, Texts, at_least
from ccs.files import write_text


@dataclass(frozen=True)
class Settings:
    """Match the heads of two models by what they encode, and list the changes, largest first."""

    first: str
    """First model, such as the base of a fine-tuned model"""
    second: str
    """Second model"""
    _: KW_ONLY
    images: Images = "world"
    texts: Texts = "world"
    max_images: Annotated[int, DATA, at_least(2)] = 300
    """Number of images, at most"""
    gallery: Gallery = "world/faces"
    attribute: Attribute = None
    heads: Annotated[int, OUTPUT, at_least(1)] = 10
    """Number of pairs of heads to list, and to ablate"""
    csv: Csv = None
    device: Device = "auto"


def compare_models(args: Settings) -> None:
    """Print the pairs of heads, and write all of them to the CSV file."""
    table = ccs.compare(
        args.first,
        args.second,
        args.images,
        args.texts or "world",
        gallery=args.gallery,
        attribute=args.attribute,
        max_images=args.max_images,
        top=args.heads,
        device=args.device,
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
            rows=[_row(pair) for _, pair in rows.head(args.heads).iterrows()],
        )
    )
    if args.csv:
        write_text(args.csv, rows.to_csv(index=False))
        print(f"Written to {args.csv}.")


def _row(pair: Any) -> dict[str, str]:
    """Format a pair of heads; a value that they share comes once."""

    def joined(cell: Callable[[str], str], separator: str = " -> ") -> str:
        return separator.join(dict.fromkeys(map(cell, SIDES)))

    return {
        "heads": joined(lambda side: str(pair[side]), " "),
        "alike": f"{pair['alike']:.2f}",
        "changed": "" if pd.isna(pair["changed"]) else f"{pair['changed']:.3f}",
        "MaxSkew, off": " ".join(f"{pair[f'{side}_after']:.3f}" for side in SIDES),
        "label (CCS)": joined(lambda side: f"{pair[f'{side}_label']} ({pair[f'{side}_ccs']})"),
        "first text": joined(lambda side: pair[f"{side}_texts"].split(" | ")[0]),
    }


main = Command(
    Settings,
    compare_models,
    (
        "clip-ccs compare organism-control organism",
        "clip-ccs compare BASE FINE_TUNED --images DIR",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
