"""Score heat maps by masks of synthetic scenes or of photographs: `python -m research.maps --help`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from ccs.batch.pages import in_brackets, markdown_table
from ccs.cli.command_line import Command
from ccs.cli.options import at_least, describe
from ccs.heads import Head
from ccs.metrics.stats import Estimate
from ccs_benchmark.documents import bring_up_to_date

PAGE = Path(__file__).with_name("README.md")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Score heat maps on synthetic scenes, whose masks are known, and update research/maps/README.md.

    With --photographs, score them on photographs instead and print the table.
    """

    model: str = "organism"
    """Model of the synthetic world; with --photographs, any model"""
    photographs: str | None = None
    """Parquet file with columns image and mask"""
    images: Annotated[int | None, at_least(1), describe("Maximum number of --photographs", "all")] = None
    cards: Annotated[int, at_least(2)] = 100
    """Number of scenes per concept"""
    page: Path = PAGE
    """Page whose table is updated"""


def _run(args: Settings) -> None:
    from ccs.model.model import load
    from research.maps import judged_maps, photographs
    from research.world.head_lessons import CONCEPTS

    model = load(args.model)
    if args.photographs:
        columns = [
            photographs.read_column(args.photographs, name)[: args.images] for name in ("image", "mask")
        ]
        print(photographs.summary(photographs.run(model, *columns)))
        return
    of = judged_maps.labels(model)
    judged_by_concept = {concept: judged_maps.run(model, of, args.cards, concept) for concept in CONCEPTS}
    text = summary(judged_maps.figures(judged_by_concept), of)
    bring_up_to_date(args.page, f"maps of {args.model}", text, "research.maps")
    print(text)


def summary(figures: Mapping[tuple[str, str], tuple[Estimate, Estimate]], of: Mapping[Head, str]) -> str:
    """Write the tables in Markdown: all concepts together, then average precision and mIoU of each.

    Args:
        figures: (method, concept) -> average precision and mIoU.
        of: Head -> its label.
    """
    from research.maps.judged_maps import METHODS

    names = [name for name in METHODS if (name, "mean") in figures]
    whole = [
        {
            "map": name,
            "average precision": in_brackets(figures[name, "mean"][0], 2),
            "mIoU": in_brackets(figures[name, "mean"][1], 2),
        }
        for name in names
    ]
    parts = []
    for concept in sorted({concept for _, concept in figures} - {"mean"}):
        row = {"concept": f"{concept} (heads: {sum(label == concept for label in of.values())})"}
        for name in names:
            estimates = figures.get((name, concept))
            row[name] = (
                "–" if estimates is None else " · ".join(in_brackets(estimate, 2) for estimate in estimates)
            )
        parts.append(row)
    caption = "Average precision · mIoU by concept, with the number of heads whose texts get this label."
    return "\n\n".join([markdown_table(pd.DataFrame(whole)), caption, markdown_table(pd.DataFrame(parts))])


main = Command(Settings, _run)

if __name__ == "__main__":
    sys.exit(main())
