"""Find the heads that carry a bias: `clip-ccs localize --model M --gallery G`."""

from dataclasses import dataclass
from typing import Annotated

import ccs
from ccs.analysis.carriers import DEFAULT, METHODS
from ccs.analysis.localize import CARRIERS, RANDOM, CarrierTable
from ccs.batch.pages import format_effect, printed, show
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.metrics.stats import Effect


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions(options.GalleryOptions):
    """Find the heads that carry a bias, and measure their ablation on held-out images and prompts.

    The result states how reliable the method is on models whose biased heads are known.

    Examples:
        clip-ccs localize --model organism --attribute gender
        clip-ccs localize --model DIR --gallery DIR --method "activation patching"
    """

    method: Annotated[str, options.ANALYSIS, options.describe(f"Method: {', '.join(METHODS)}")] = DEFAULT
    max_images: Annotated[int, options.DATA, options.at_least(4)] = 1000
    """Largest number of images of each dataset"""


def print_carriers(settings: LocalizeOptions) -> None:
    """Print the heads and their effects."""
    table = ccs.localize(**options.arguments(settings))
    show(format_carriers(table), table)


def format_carriers(table: CarrierTable) -> str:
    """Format the heads and their effects in about ten lines."""
    effects = {name: rows.iloc[0] for name, rows in table.effects.groupby(["ablation", "metric"])}
    drawn = table.effects[(table.effects["ablation"] == RANDOM) & (table.effects["metric"] == "MaxSkew")]

    def changed(metric: str) -> str:
        row = effects[CARRIERS, metric]
        effect = Effect(*row[["difference", "difference_low", "difference_high", "p_value"]])
        return f"{row['before']:.3f} -> {row['after']:.3f}, {format_effect(effect)}"

    return printed(
        "localize",
        table,
        changed=changed,
        chance=effects["none", "MaxSkew"]["chance"],
        random_changes=list(drawn["difference"]),
    )


main = Command(LocalizeOptions, print_carriers)
