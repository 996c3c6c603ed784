"""How many images does a CLIP assign to their class? `clip-ccs accuracy --model M --dataset D`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ccs
from ccs.analysis.accuracy import AccuracyTable
from ccs.batch.command_line import DEVICE, OFF, SKIP, command, option, read_names, to_file
from ccs.batch.pages import printed
from ccs.files import write_text
from ccs.metrics.stats import signed

MOST_CLASSES = 20
"""Classes on the page, those of the lowest accuracy; a file has all."""


@dataclass(frozen=True)
class Settings:
    """Assign images to classes by their names and say how many are right, with the heads on and off."""

    model: str = option("organism", "an embedded name, open_clip's NAME/TAG, a folder or hf-hub:USER/NAME")
    dataset: str = option("world/subjects", "a name, folder of classes, zip, Parquet file or USER/NAME")
    classes: Sequence[str] | None = option(
        None, 'names of its classes: a file, or "cat, dog"', read=read_names
    )
    ablate: str = option("", OFF)
    template: str | None = option(None, 'the prompt, such as "a photo of a {}" (default: the set\'s)')
    max_images: int | None = option(None, "measure on so many images", least=1)
    skip_unreadable: bool = option(False, SKIP)
    csv: Path | None = option(None, "write every figure to this file", read=to_file)
    device: str = option("auto", DEVICE)
    seed: int = option(0, "of resampling", least=0)


def measure(settings: Settings) -> None:
    table = ccs.accuracy(**{name: value for name, value in vars(settings).items() if name != "csv"})
    for name in table.skipped:
        print(f"Left out: {name}", file=sys.stderr)
    print(page(table))
    if table.doubt:
        print(f"Warning: {table.doubt}", file=sys.stderr)
    if settings.csv:
        write_text(settings.csv, table.flat().to_csv(index=False))


def page(table: AccuracyTable) -> str:
    """The table for a person to read: the class of the lowest accuracy first."""
    whole, ablated = table.rows.iloc[0], bool(table.about["ablate"])
    classes = table.rows.iloc[1:].sort_values("after", kind="stable")
    lowest = classes[["class", "images", *(["before"] if ablated else []), "after"]].head(MOST_CLASSES)
    ends = [100 * whole[name] for name in ("difference", "difference_low", "difference_high") if ablated]
    return printed(
        "accuracy",
        about=table.about,
        images=whole["images"],
        skipped=table.skipped,
        whole_row=whole,
        ends=[signed(end, 1) for end in ends],
        classes=len(classes),
        table=lowest.to_string(index=False, float_format="{:.3f}".format),
        more=len(classes) - len(lowest),
    )


main = command(Settings, measure)

if __name__ == "__main__":
    sys.exit(main())
