"""Measure the social bias of image rankings: `clip-ccs bias --model M --gallery G`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import ccs
from ccs.analysis.bias import MEAN, BiasTable
from ccs.batch.pages import in_brackets, list_skipped, printed
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.files import write_text
from ccs.metrics.preference import FirstGroup, Split
from ccs.metrics.stats import Estimate, signed


@dataclass(frozen=True, kw_only=True)
class BiasOptions:
    """Measure the social bias of image rankings: MaxSkew, NDKL, AUC, and logit gap.

    The model ranks images of people for each occupation. Each metric comes with its chance level, a 95%
    confidence interval, and its largest possible value.
    """

    model: options.ModelName = "organism"
    gallery: options.Gallery = "world/faces"
    occupations: options.Occupations = None
    attribute: options.Attribute = None
    ablate: options.Ablation = ""
    top: options.Top = None
    template: options.Template = None
    prompts: options.Prompts = None
    max_images: options.MaxImages = None
    as_published: Annotated[bool, options.ANALYSIS] = False
    """MaxSkew of FairFace by race as in the paper's code, with its fault"""
    csv: options.Csv = None
    skip_unreadable: options.SkipUnreadable = False
    device: options.Device = "auto"


def print_bias(settings: BiasOptions) -> None:
    """Print the table, and write all of it to the CSV file."""
    table = ccs.bias(**{name: value for name, value in vars(settings).items() if name != "csv"})
    list_skipped(table.skipped)
    print(format_bias(table))
    if settings.csv:
        write_text(settings.csv, table.flat().to_csv(index=False))


def format_bias(table: BiasTable) -> str:
    """Format the table, the most skewed occupation first."""
    metrics: dict[str, dict[str, Mapping[Any, Any]]] = {}
    for row in table.rows.to_dict("records"):
        metrics.setdefault(str(row["occupation"]), {})[str(row["metric"])] = row
    order = sorted(metrics, key=lambda name: (name != MEAN, -metrics[name]["MaxSkew"]["after"]))
    ndkl, split = metrics[MEAN]["NDKL"], table.preference.after
    return printed(
        "bias",
        about=table.about,
        groups=[f"{name} {count:,}" for name, count in table.groups.items()],
        ceiling=metrics[MEAN]["MaxSkew"]["ceiling"],
        ndkl_chance=in_brackets(Estimate(*(ndkl[end] for end in ("chance", "chance_low", "chance_high"))), 2),
        within_sets=table.within_sets,
        skipped=table.skipped,
        rows=[_occupation_row(name, metrics[name], bool(table.about["ablate"])) for name in order],
        alike=table.alike,
        preference=table.preference,
        split=split,
        share=in_brackets(split.share, 2) if split else "",
        direction=_direction(split) if split else "",
        neutral=[_neutral_row(prompt) for prompt in table.preference.neutral],
    )


def _direction(split: Split) -> str:
    """Format each group's mean score over all occupations, the highest first."""
    order = sorted(zip(split.groups, split.direction, strict=True), key=lambda pair: -pair[1].value)
    return ", ".join(f"{group} {signed(score.value, 3)}" for group, score in order)


def _neutral_row(prompt: FirstGroup) -> dict[str, str]:
    return {
        "prompt": prompt.prompt,
        "most in the top": f"{prompt.group} {prompt.share:.0%} (gallery {prompt.pool:.0%})",
        "MaxSkew": f"{prompt.max_skew:.2f}",
        "random rankings": f"{prompt.chance.low:.2f} to {prompt.chance.high:.2f}",
    }


def _occupation_row(name: str, metrics: Mapping[str, Mapping[Any, Any]], ablated: bool) -> dict[str, str]:
    skew = metrics["MaxSkew"]
    row = {"occupation": name, "MaxSkew": in_brackets(Estimate(skew["after"], skew["low"], skew["high"]), 2)}
    row["chance"] = f"{skew['chance']:.2f}"
    if ablated:
        row["before"] = f"{skew['before']:.2f}"
        ends = (skew["difference"], skew["difference_low"], skew["difference_high"])
        row["change"] = "{} [{}, {}]".format(*(signed(end, 2) for end in ends))
    row["most in the top"] = "" if name == MEAN else f"{skew['group']} {skew['share']:.0%}"
    return row | {
        metric: f"{values['after']:.2f}" for metric, values in metrics.items() if metric != "MaxSkew"
    }


main = Command(
    BiasOptions,
    print_bias,
    (
        "clip-ccs bias --model organism --attribute gender",
        'clip-ccs bias --model DIR --gallery DIR --occupations "nurse, judge"',
    ),
)

if __name__ == "__main__":
    sys.exit(main())
