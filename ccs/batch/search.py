"""Find the smallest ablation that lowers MaxSkew: `clip-ccs search --model M --gallery G`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import ccs
from ccs import results
from ccs.analysis import ablation_sets
from ccs.analysis.ablation_sets import Plan
from ccs.analysis.search import HeldOut, Limits, SearchTable
from ccs.batch.pages import change, in_brackets, p_text, printed
from ccs.cli.command_line import Command
from ccs.cli.options import (
    ANALYSIS,
    MACHINE,
    OUTPUT,
    Attribute,
    Classes,
    Device,
    Gallery,
    MaxImages,
    ModelName,
    Occupations,
    Preserve,
    ResultsFolder,
    SkipUnreadable,
    Template,
    Top,
    at_least,
    to_folder,
)
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics.stats import minimum_detectable
from ccs.results import queries, searches
from ccs.results.searches import Search


@dataclass(frozen=True, kw_only=True)
class GallerySettings:
    """Options of commands that lower the bias of a ranking and preserve accuracy."""

    model: ModelName = "organism"
    gallery: Gallery = "world/faces"
    attribute: str | tuple[str, ...] | None = None
    occupations: Occupations = None
    template: Template = None
    top: Top = None
    preserve: Preserve = "world/subjects"
    classes: Classes = None
    max_images: MaxImages = None
    skip_unreadable: SkipUnreadable = False
    seed: Annotated[int, MACHINE, at_least(0)] = 0
    """Random seed of the halves: heads are chosen on one half and judged on the other"""
    device: Device = "auto"

    def arguments(self) -> dict[str, Any]:
        """Return these settings as arguments of `ccs.search`, `ccs.localize`, and `ccs.mitigate`."""
        names = [field.name for field in fields(GallerySettings) if field.name != "model"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Find the smallest ablation that lowers MaxSkew at a bounded loss of accuracy.

    It is chosen on one half of the prompts and images, and measured on the other.
    """

    attribute: Attribute = None
    max_loss: Annotated[float, ANALYSIS, at_least(0)] = 2.0
    """Largest loss of accuracy on --preserve, in points"""
    max_heads: Annotated[int, ANALYSIS, at_least(1)] = 8
    """Number of heads, at most"""
    results: ResultsFolder = None
    save: Annotated[bool, OUTPUT] = False
    """Save the ablation in --results, where the app finds it"""


def find_ablation(args: Settings) -> None:
    """Print the ablation and its effects, and save it."""
    tables = args.results or results.default_folder()
    print(f"Results: {tables}", file=sys.stderr)
    limits = Limits(max_loss=args.max_loss / 100, max_heads=args.max_heads)
    if args.save and not to_folder(str(tables)).is_dir():
        raise InputError(f"--results {tables} does not exist; compute it, or leave out --save.")
    model = ccs.load(args.model, device=args.device)
    compare_with = _beside(args, tables, model.name, model.heads)
    table = ccs.search(model, **args.arguments(), limits=limits, compare_with=compare_with, tell=print)
    for name in table.about["skipped"]:
        print(f"Skipped in {name}", file=sys.stderr)
    print(page(table))
    if args.save:
        about = table.about
        answer = Search(
            model=model.name,
            weights_hash=model.weights_hash,
            seed=args.seed,
            limits=limits,
            people=about["gallery"],
            attribute=about["attribute"],
            things=about["preserve"],
            prompts=about["occupations"],
            templates=about["templates"],
            k=about["k"],
            **vars(table.outcome),
        )
        print(f"Saved to {searches.keep(tables, answer)}.")


def _beside(args: Settings, tables: Path, name: str, heads: HeadSet) -> list[Plan]:
    """High, low and random sets from the model's tables; prints which there are not."""
    folder = tables / results.folder_name(name)
    if not folder.is_dir():
        print(f"There are no tables of {name} in {tables}: no high, low or random sets beside.")
        return []
    found = results.read(folder)
    scored, k = queries.head_scores(found), queries.main_k(found) or 5
    kinds = ("high", "low", "random")
    return ablation_sets.plans(scored, k, heads, args.seed, 5, kinds=kinds, notice=print)[1:]


def page(table: SearchTable) -> str:
    """Format the held-out results and the answer: confirmed, inconclusive, or rejected."""
    unseen = table.outcome.unseen
    answer = next((held for held in unseen if held.plan == "searched"), unseen[0])
    return printed(
        "search",
        rows=[_row(held) for held in unseen],
        chance=unseen[0].chance,
        off=str(table.heads),
        conclusion=table.conclusion,
        skew=change(answer.max_skew_change),
        accuracy=change(answer.accuracy_change, 100, 1),
        detectable=minimum_detectable(answer.max_skew_change),
        about=table.about,
    )


def _row(held_out: HeldOut) -> dict[str, str]:
    return {
        "set": f"{held_out.plan} {held_out.seed}" if held_out.plan == "random" else held_out.plan,
        "heads": str(len(held_out.heads)),
        "MaxSkew": in_brackets(held_out.max_skew),
        "its change": in_brackets(held_out.max_skew_change, sign="+"),
        "p": p_text(held_out.max_skew_change.p_value),
        "accuracy": in_brackets(held_out.accuracy),
        "change of accuracy": in_brackets(held_out.accuracy_change, sign="+"),
    }


main = Command(
    Settings,
    find_ablation,
    (
        "clip-ccs search --model organism --attribute gender",
        "clip-ccs search --model DIR --gallery DIR --preserve DIR --max-heads 4",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
