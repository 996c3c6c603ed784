"""How biased is a CLIP's ranking of people? `clip-ccs bias --model M --gallery G`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ccs
from ccs.analysis.bias import MEAN, BiasTable
from ccs.batch.command_line import ATTRIBUTE, DEVICE, OFF, SKIP, command, option, read_names, to_file
from ccs.batch.pages import in_brackets, printed
from ccs.files import write_text
from ccs.metrics.preference import FirstGroup, Split
from ccs.metrics.stats import Estimate, signed


@dataclass(frozen=True)
class Settings:
    """Rank images of people for occupations and measure whom the ranking prefers: MaxSkew, NDKL, AUC and
    logit gap, with the level of chance, 95% intervals and the largest value possible.
    """

    model: str = option("organism", "an embedded name, open_clip's NAME/TAG, a folder or hf-hub:USER/NAME")
    gallery: str = option("world/faces", "fairface-1.25, a labeled folder, zip, Parquet file or USER/NAME")
    occupations: Sequence[str] | None = option(
        None, 'a file with one per line, or "judge, nurse" (default: the gallery\'s)', read=read_names
    )
    attribute: str | None = option(None, ATTRIBUTE)
    ablate: str = option("", OFF)
    top: int | None = option(None, "K, the length of the list (default: the gallery's, or a tenth)", least=1)
    template: str | None = option(None, 'the prompt, such as "a photo of a {}" (default: the gallery\'s)')
    max_images: int | None = option(None, "measure on so many images; drawn people are all used", least=1)
    as_published: bool = option(False, "with the faults of the study's code, where it has one")
    csv: Path | None = option(None, "write every figure to this file", read=to_file)
    skip_unreadable: bool = option(False, SKIP)
    device: str = option("auto", DEVICE)
    seed: int = option(0, "of resampling", least=0)


def measure(settings: Settings) -> None:
    table = ccs.bias(**{name: value for name, value in vars(settings).items() if name != "csv"})
    for name in table.skipped:
        print(f"Left out: {name}", file=sys.stderr)
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


main = command(Settings, measure)

if __name__ == "__main__":
    sys.exit(main())
