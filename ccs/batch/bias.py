"""Measure the social bias of image rankings: `clip-ccs bias --model M --gallery G`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import ccs
from ccs.analysis.bias import MEAN, BiasTable
from ccs.batch.pages import in_brackets, printed
from ccs.cli.command_line import Command
from ccs.cli.options import (
    ANALYSIS,
    Ablation,
    Attribute,
    Csv,
    Device,
    Gallery,
    MaxImages,
    ModelName,
    Occupations,
    Prompts,
    Seed,
    SkipUnreadable,
    Template,
    Top,
)
from ccs.files import write_text
from ccs.metrics.preference import FirstGroup, Split
from ccs.metrics.stats import Estimate, signed


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Measure the social bias of image rankings: MaxSkew, NDKL, AUC, and logit gap.

    The model ranks images of people for each occupation. Each measure comes with its chance level, a 95%
    confidence interval, and its largest possible value.
    """

    model: ModelName = "organism"
    gallery: Gallery = "world/faces"
    occupations: Occupations = None
    attribute: Attribute = None
    ablate: Ablation = ""
    top: Top = None
    template: Template = None
    prompts: Prompts = None
    max_images: MaxImages = None
    as_published: Annotated[bool, ANALYSIS] = False
    """MaxSkew as in the paper's released code, with its faults"""
    csv: Csv = None
    skip_unreadable: SkipUnreadable = False
    device: Device = "auto"
    seed: Seed = 0


def measure(settings: Settings) -> None:
    """Print the table, and write all of it to the CSV file."""
    table = ccs.bias(**{name: value for name, value in vars(settings).items() if name != "csv"})
    for name in table.skipped:
        print(f"Skipped: {name}", file=sys.stderr)
    print(page(table))
    if settings.csv:
        write_text(settings.csv, table.flat().to_csv(index=False))


def page(table: BiasTable) -> str:
    """The table for a person to read: the most skewed occupation first."""
    figures: dict[str, dict[str, Mapping[Any, Any]]] = {}
    for row in table.rows.to_dict("records"):
        figures.setdefault(str(row["occupation"]), {})[str(row["metric"])] = row
    order = sorted(figures, key=lambda name: (name != MEAN, -figures[name]["MaxSkew"]["after"]))
    ndkl = figures[MEAN]["NDKL"]
    return printed(
        "bias",
        about=table.about,
        groups=[f"{name} {count:,}" for name, count in table.groups.items()],
        ceiling=figures[MEAN]["MaxSkew"]["ceiling"],
        ndkl_chance=in_brackets(Estimate(*(ndkl[end] for end in ("chance", "chance_low", "chance_high"))), 2),
        skipped=table.skipped,
        rows=[_line(name, figures[name], bool(table.about["ablate"])) for name in order],
        alike=table.alike,
        preference=table.preference,
        split=table.preference.after,
        share=in_brackets(table.preference.after.share, 2) if table.preference.after else "",
        direction=_direction(table.preference.after),
        neutral=[_neutral(prompt) for prompt in table.preference.neutral],
    )


def _direction(split: Split | None) -> str:
    """Return each group's mean score over all occupations, the highest first."""
    if split is None:
        return ""
    order = sorted(zip(split.groups, split.direction, strict=True), key=lambda pair: -pair[1].value)
    return ", ".join(f"{group} {signed(score.value, 3)}" for group, score in order)


def _neutral(prompt: FirstGroup) -> dict[str, str]:
    """Return a line about a neutral prompt."""
    return {
        "prompt": prompt.prompt,
        "most in the top": f"{prompt.group} {prompt.share:.0%} (gallery {prompt.pool:.0%})",
        "MaxSkew": f"{prompt.max_skew:.2f}",
        "random rankings": f"{prompt.chance.low:.2f} to {prompt.chance.high:.2f}",
    }


def _line(name: str, figures: Mapping[str, Mapping[Any, Any]], ablated: bool) -> dict[str, str]:
    skew = figures["MaxSkew"]
    estimate = Estimate(skew["after"], skew["low"], skew["high"])
    line = {"occupation": name, "MaxSkew": in_brackets(estimate, 2)}
    line["chance"] = f"{skew['chance']:.2f}"
    if ablated:
        line["before"] = f"{skew['before']:.2f}"
        ends = (skew["difference"], skew["difference_low"], skew["difference_high"])
        line["change"] = "{} [{}, {}]".format(*(signed(end, 2) for end in ends))
    line["most in the top"] = "" if name == MEAN else f"{skew['group']} {skew['share']:.0%}"
    return line | {metric: f"{row['after']:.2f}" for metric, row in figures.items() if metric != "MaxSkew"}


main = Command(
    Settings,
    measure,
    (
        "clip-ccs bias --model organism --attribute gender",
        'clip-ccs bias --model DIR --gallery DIR --occupations "nurse, judge"',
    ),
)

if __name__ == "__main__":
    sys.exit(main())
