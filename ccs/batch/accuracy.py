"""Measure zero-shot accuracy: `clip-ccs accuracy --model M --dataset D`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import ccs
from ccs.analysis.accuracy import AccuracyTable
from ccs.batch.pages import printed
from ccs.cli.command_line import Command
from ccs.cli.options import (
    Ablation,
    Classes,
    Csv,
    Dataset,
    Device,
    MaxImages,
    ModelName,
    Seed,
    SkipUnreadable,
    Template,
)
from ccs.files import write_text
from ccs.metrics.stats import signed

MOST_CLASSES = 20
"""Classes on the page, those of the lowest accuracy; a file has all."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Measure zero-shot accuracy on a dataset, and per class, with and without ablated heads."""

    model: ModelName = "organism"
    dataset: Dataset = "world/subjects"
    classes: Classes = None
    ablate: Ablation = ""
    template: Template = None
    max_images: MaxImages = None
    skip_unreadable: SkipUnreadable = False
    csv: Csv = None
    device: Device = "auto"
    seed: Seed = 0


def measure(settings: Settings) -> None:
    """Print the accuracy and write it to the CSV file."""
    table = ccs.accuracy(**{name: value for name, value in vars(settings).items() if name != "csv"})
    for name in table.skipped:
        print(f"Skipped: {name}", file=sys.stderr)
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


main = Command(
    Settings,
    measure,
    (
        'clip-ccs accuracy --model organism --ablate "L5.H3 L7.H1"',
        "clip-ccs accuracy --model ViT-B-32/openai --dataset DIR",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
