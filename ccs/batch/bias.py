"""Measure the social bias of image rankings: `clip-ccs bias --model M --gallery G`."""

from dataclasses import dataclass
from typing import Annotated

import ccs
from ccs.analysis.inputs import MEAN
from ccs.batch.pages import in_brackets, printed, show
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.metrics.stats import Estimate, signed


@dataclass(frozen=True, kw_only=True)
class BiasOptions(options.RankingOptions):
    """Measure the social bias of image rankings: MaxSkew, NDKL, AUC, and logit gap.

    The model ranks images of people for each occupation. Each metric comes with its chance level, a 95%
    confidence interval, and its largest possible value.

    Examples:
        clip-ccs bias --model organism --attribute gender
        clip-ccs bias --model DIR --gallery DIR --occupations "nurse, judge"
    """

    ablate: options.Ablation = ""
    as_published: Annotated[bool, options.ANALYSIS] = False
    """MaxSkew of FairFace by race as in the paper's code, with its fault"""
    csv: options.Csv = None


def print_bias(settings: BiasOptions) -> None:
    """Print the table, the most skewed occupation first, and write all of it to the CSV file."""
    table = ccs.bias(**options.arguments(settings))
    skews, ndkl, split = table.of("MaxSkew"), table.of("NDKL").loc[MEAN], table.preference.after
    order = [MEAN, *skews.drop(MEAN).sort_values("after", ascending=False, kind="stable").index]
    others = table.table.drop(columns="MaxSkew").map("{:.2f}".format)
    rows = []
    for name in order:
        skew = skews.loc[name]
        after = in_brackets(Estimate(*skew[["after", "low", "high"]]), 2)
        row = {"occupation": name, "MaxSkew": after, "chance": f"{skew['chance']:.2f}"}
        if table.about["ablate"]:
            change = [signed(skew[f"difference{end}"], 2) for end in ("", "_low", "_high")]
            row |= {"before": f"{skew['before']:.2f}", "change": "{} [{}, {}]".format(*change)}
        row["most in the top"] = "" if name == MEAN else f"{skew['group']} {skew['share']:.0%}"
        rows.append(row | others.loc[name].to_dict())
    neutral = [
        {
            "prompt": prompt.prompt,
            "most in the top": f"{prompt.group} {prompt.share:.0%} (gallery {prompt.pool:.0%})",
            "MaxSkew": f"{prompt.max_skew:.2f}",
            "random rankings": f"{prompt.chance.low:.2f} to {prompt.chance.high:.2f}",
        }
        for prompt in table.preference.neutral
    ]
    scores = zip(split.groups, split.direction, strict=True) if split else []
    directions = sorted(scores, key=lambda pair: -pair[1].value)
    text = printed(
        "bias",
        table,
        ceiling=skews.loc[MEAN, "ceiling"],
        ndkl_chance=in_brackets(Estimate(*ndkl[["chance", "chance_low", "chance_high"]]), 2),
        rows=rows,
        split=split,
        direction=", ".join(f"{group} {signed(score.value, 3)}" for group, score in directions),
        neutral=neutral,
    )
    show(text, table, settings.csv)


main = Command(BiasOptions, print_bias)
