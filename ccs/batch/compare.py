"""Compare two models head by head: `clip-ccs compare A B`."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

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
    split: options.Split = ""
    texts: options.Texts = "world"
    max_images: Annotated[int, options.DATA, options.at_least(2)] = 300
    """Largest number of images"""
    heads: Annotated[int, options.OUTPUT, options.at_least(1)] = 10
    """Number of pairs of heads to list"""
    csv: options.Csv = None
    device: options.Device = "auto"


def print_comparison(settings: CompareOptions) -> None:
    """Print the pairs of heads, and write all of them to the CSV file."""
    table = ccs.compare(**options.arguments(settings, "heads"))
    rows = table.rows
    pairs = rows.head(settings.heads).copy()
    for side in SIDES:
        pairs[side] += " " + pairs[f"{side}_label"] + " (" + pairs[f"{side}_ccs"].astype(str) + ")"
    columns = [*SIDES, "alike", *["changed"] * table.related]
    text = printed(
        "compare",
        table,
        pairs=len(rows),
        same=int((rows["first"] == rows["second"]).sum()),
        middle=float(rows["alike"].median()),
        rows=pairs[columns].to_string(index=False, float_format="{:.3f}".format),
    )
    show(text, table, settings.csv)


main = Command(CompareOptions, print_comparison)
