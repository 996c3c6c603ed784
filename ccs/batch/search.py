"""Find heads to switch off so that rankings of people become fairer: `clip-ccs search --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ccs
from ccs import results
from ccs.analysis import ablation_sets, search
from ccs.analysis.ablation_sets import Plan
from ccs.analysis.bias import set_question
from ccs.analysis.inputs import require_readable
from ccs.analysis.search import Found, HeldOut, Limits, make_task
from ccs.batch.command_line import ATTRIBUTE, DEVICE, FOLDER, SKIP, command, option, read_names, to_folder
from ccs.batch.pages import in_brackets, printed
from ccs.data import BiasSet, ClassificationSet
from ccs.data.open import open_dataset, open_gallery
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.results import queries, searches
from ccs.results.searches import Search

PEOPLE = "images of people: a name, a folder, a zip, a parquet file or a Hub id"
THINGS = "images with classes: a name, a folder of classes, a zip, a parquet file or a Hub id"
CLASSES = 'names of the classes of --things: a file, or "cat, dog"'


@dataclass(frozen=True)
class Asked:
    """The model, the people that it ranks for occupations, and the things that it must still tell apart."""

    model: str = option("organism", "organism, open_clip's NAME/TAG, a folder or hf-hub:USER/NAME")
    people: str = option("world/faces", PEOPLE, metavar="P")
    attribute: str | tuple[str, ...] | None = option(None)
    occupations: Sequence[str] | None = option(
        None,
        "a file with one per line, or \"judge, nurse\" (default: the set's, or the study's)",
        read=read_names,
    )
    template: str | None = option(None, 'the prompt of an occupation, such as "a photo of a {}"')
    top: int | None = option(None, "K, the length of the list (default: the set's, or a tenth)", least=2)
    things: str = option("world/subjects", THINGS, metavar="S")
    classes: Sequence[str] | None = option(None, CLASSES, read=read_names)

    def sets(
        self, max_images: int | None, skip_unreadable: bool
    ) -> tuple[BiasSet, ClassificationSet, tuple[str, ...]]:
        """The people, the things and the attributes that are meant. InputError for other sets."""
        people = open_gallery(self.people, attribute=self.attribute or (), max_images=max_images)
        things = open_dataset(self.things, max_images=max_images, classes=self.classes)
        if not isinstance(things, ClassificationSet):
            raise InputError(f"--things {self.things} is not a set of images with classes.")
        for one in (people, things):
            for name in require_readable(one, skip_unreadable):
                print(f"Left out of {one.name}: {name}", file=sys.stderr)
        attributes = (self.attribute,) if isinstance(self.attribute, str) else self.attribute
        people = set_question(people, self.occupations, self.template, self.top)
        return people, things, attributes or (people.main,)


@dataclass(frozen=True)
class Settings(Asked):
    """Find the smallest set of heads that lowers MaxSkew for given prompts at a bounded loss of accuracy. The
    set is chosen on one half of the prompts and images and reported on the other.
    """

    attribute: str | None = option(None, ATTRIBUTE)
    max_loss: float = option(0.02, "accuracy that may be lost, as a share of 1")
    max_heads: int = option(8, "most heads")
    max_images: int | None = option(None, "most images of each set; drawn people are all used")
    skip_unreadable: bool = option(False, SKIP)
    seed: int = option(0, "seed of the halves", least=0)
    results: Path | None = option(None, f"its plans are shown with the answer: {FOLDER}")
    keep: bool = option(False, "save the answer beside --results, where the app finds it")
    device: str = option("auto", DEVICE)


def _search(args: Settings) -> None:
    tables = args.results or results.default_folder()
    print(f"Results: {tables}", file=sys.stderr)
    limits = Limits(max_loss=args.max_loss, max_heads=args.max_heads)
    if args.keep and not to_folder(str(tables)).is_dir():
        raise InputError(f"The folder {tables} for --results is not there.")
    model = ccs.load(args.model, device=args.device)
    people, things, (attribute, *_) = args.sets(args.max_images, args.skip_unreadable)
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
    if args.keep:
        print(f"Kept in {searches.keep(tables, answer)}.")


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


main = command(Settings, _search)

if __name__ == "__main__":
    sys.exit(main())
