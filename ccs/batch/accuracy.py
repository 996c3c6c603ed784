"""Measure zero-shot accuracy: `clip-ccs accuracy --model M --dataset D`."""

from dataclasses import dataclass
from typing import Annotated

import ccs
from ccs.batch.pages import printed, show
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.metrics.stats import signed

MAX_CLASSES = 20
"""Number of classes printed, those of the lowest accuracy. The CSV file has all."""


@dataclass(frozen=True, kw_only=True)
class AccuracyOptions:
    """Measure zero-shot accuracy on a dataset, and per class, with and without ablated heads.

    Examples:
        clip-ccs accuracy --model organism --ablate "L5.H3 L7.H1"
        clip-ccs accuracy --model ViT-B-32/openai --dataset DIR
    """

    model: options.ModelName = "organism"
    dataset: Annotated[str, options.DATA, options.describe(f"Images with classes: {options.IMAGES_FROM}")] = (
        "world/subjects"
    )
    split: options.Split = ""
    classes: options.Classes = None
    ablate: options.Ablation = ""
    attribute: Annotated[str | None, options.DATA, options.unset("none")] = None
    """Column of groups, to measure each class in each group, such as Waterbirds' place"""
    template: options.Template = None
    max_images: options.MaxImages = None
    skip_unreadable: options.SkipUnreadable = False
    csv: options.Csv = None
    device: options.Device = "auto"


def print_accuracy(settings: AccuracyOptions) -> None:
    """Print the accuracy and the classes with the lowest accuracy, and write all rows to the CSV file."""
    table = ccs.accuracy(**options.arguments(settings))
    whole, ablated = table.rows.iloc[0], bool(table.about["ablate"])
    classes = table.rows.iloc[1:].sort_values("after", kind="stable")
    lowest = classes[["class", "images", *["before"] * ablated, "after"]].head(MAX_CLASSES)
    change = [whole[name] for name in ("difference", "difference_low", "difference_high") if ablated]
    text = printed(
        "accuracy",
        table,
        whole_row=whole,
        change=[signed(100 * points, 1) for points in change],
        classes=len(classes),
        lowest=lowest.to_string(index=False, float_format="{:.3f}".format),
        more=len(classes) - len(lowest),
        groups=table.groups.head(MAX_CLASSES).to_string(index=False, float_format="{:.3f}".format),
    )
    show(text, table, settings.csv)


main = Command(AccuracyOptions, print_accuracy)
