"""Find the smallest ablation that lowers MaxSkew: `clip-ccs search --model M --gallery G`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ccs
from ccs import results
from ccs.analysis import ablation_sets, search
from ccs.analysis.ablation_sets import Plan
from ccs.analysis.bias import set_question
from ccs.analysis.inputs import require_readable
from ccs.analysis.search import Found, HeldOut, Limits, make_task
from ccs.batch.command_line import Command
from ccs.batch.options import (
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
from ccs.batch.pages import in_brackets, printed
from ccs.data import BiasSet, ClassificationSet
from ccs.data.open import open_dataset, open_gallery
from ccs.errors import InputError
from ccs.heads import HeadSet
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

    def open(self) -> tuple[BiasSet, ClassificationSet, tuple[str, ...]]:
        """Open the gallery and the images to preserve, and choose the attributes."""
        people = open_gallery(self.gallery, attribute=self.attribute or (), max_images=self.max_images)
        things = open_dataset(self.preserve, max_images=self.max_images, classes=self.classes)
        if not isinstance(things, ClassificationSet):
            raise InputError(f"--preserve {self.preserve} has no classes; give labeled images.")
        for data in (people, things):
            for name in require_readable(data, self.skip_unreadable):
                print(f"Skipped in {data.name}: {name}", file=sys.stderr)
        attributes = (self.attribute,) if isinstance(self.attribute, str) else self.attribute
        people = set_question(people, self.occupations, self.template, self.top)
        return people, things, attributes or (people.main,)


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Find the smallest ablation that lowers MaxSkew at a bounded loss of accuracy.

    It is chosen on one half of the prompts and images, and measured on the other.
    """

    attribute: Attribute = None
    max_loss: Annotated[float, ANALYSIS, at_least(0)] = 0.02
    """Largest loss of accuracy on --preserve, as a share (0.02 is 2 points)"""
    max_heads: Annotated[int, ANALYSIS, at_least(1)] = 8
    """Number of heads, at most"""
    results: ResultsFolder = None
    save: Annotated[bool, OUTPUT] = False
    """Save the ablation in --results, where the app finds it"""


def find_ablation(args: Settings) -> None:
    """Print the ablation and its effects, and save it."""
    tables = args.results or results.default_folder()
    print(f"Results: {tables}", file=sys.stderr)
    limits = Limits(max_loss=args.max_loss, max_heads=args.max_heads)
    if args.save and not to_folder(str(tables)).is_dir():
        raise InputError(f"--results {tables} does not exist; compute it, or leave out --save.")
    model = ccs.load(args.model, device=args.device)
    people, things, (attribute, *_) = args.open()
    task = make_task(model, people, things, attribute)
    beside = _beside(args, tables, model.name, model.heads)
    result = search.search(model, task, limits, beside=beside, seed=args.seed, tell=print)
    print(page(result, limits.max_loss))
    answer = Search(
        model=model.name,
        weights_hash=model.weights_hash,
        seed=args.seed,
        limits=limits,
        people=people.name,
        attribute=attribute,
        things=things.name,
        prompts=people.occupations,
        templates=people.templates,
        k=task.k,
        **vars(result),
    )
    if args.save:
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


def page(result: Found, max_loss: float) -> str:
    """The answer as a person reads it, confirmed if the unseen half bears it out; max_loss: of accuracy."""
    shown = next((one for one in result.unseen if one.plan == "searched"), result.unseen[0])
    skew, accuracy = shown.max_skew_change.value, shown.accuracy_change.value
    return printed(
        "search",
        rows=[_row(one) for one in result.unseen],
        chance=result.unseen[0].chance,
        off=str(result.heads),
        skew=skew,
        accuracy=accuracy,
        confirmed=skew < 0 and accuracy >= -max_loss - 1e-9,
        max_loss=max_loss,
    )


def _row(held_out: HeldOut) -> dict[str, str]:
    return {
        "set": f"{held_out.plan} {held_out.seed}" if held_out.plan == "random" else held_out.plan,
        "heads": str(len(held_out.heads)),
        "MaxSkew": in_brackets(held_out.max_skew),
        "its change": in_brackets(held_out.max_skew_change, sign="+"),
        "p": f"{held_out.max_skew_change.p_value:.3f}",
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
