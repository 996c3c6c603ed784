"""Find heads to switch off so that rankings of people become fairer: `python -m batch.search --help`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch.options import command, option
from ccs import results
from ccs.errors import InputError
from ccs.files import write_text

if TYPE_CHECKING:
    from ccs.heads import HeadSet
    from ccs.image_sets import BiasSet, ClassificationSet
    from ccs.measures.stats import Effect, Estimate
    from ccs.model.model import Model
    from ccs.plans import Plan
    from ccs.search import HeldOut, SearchResult, Task


PEOPLE = "images of people: a name, a folder, a zip, a parquet file or a Hub id"
OCCUPATIONS = "a file with one per line, or \"judge, nurse\" (default: the set's, or the study's)"
TEMPLATE = 'the prompt of an occupation, such as "a photo of a {}"'
TOP = "K, the length of the list (default: the set's, or a tenth)"
THINGS = "images with classes: a name, a folder of classes, a zip, a parquet file or a Hub id"
CLASSES = 'names of the classes of --things: a file, or "cat, dog"'


@dataclass(frozen=True)
class Settings:
    """Find the smallest set of heads that lowers MaxSkew for given prompts at a bounded loss of accuracy. The
    set is chosen on one half of the prompts and images and reported on the other.
    """

    model: str = option("organism", "organism, an open_clip NAME/TAG or a folder")
    people: str = option("world/faces", PEOPLE, metavar="P")
    attribute: str | None = option(
        None, "attribute that groups people: gender, skin tone, race (default: the set's first)"
    )
    occupations: str | None = option(None, OCCUPATIONS)
    template: str | None = option(None, TEMPLATE)
    prompt: tuple[str, ...] = option(
        (), "a whole prompt; repeatable (default: the occupations in their template)", metavar="TEXT"
    )
    top: int | None = option(None, TOP, least=2)
    one_pool: bool = option(
        False, "each prompt ranks all of --people (default: its own images, where the set has such pools)"
    )
    things: str = option("world/subjects", THINGS, metavar="S")
    classes: str | None = option(None, CLASSES)
    max_loss: float = option(0.02, "accuracy that may be lost, as a share of 1")
    goal: float | None = option(None, "stop at this mean MaxSkew (default: as low as it gets)")
    least: float = option(
        0.02, "share of the lean (see ccs.measures.ranking) that each further head must take away"
    )
    max_heads: int = option(8, "most heads")
    screen: int = option(12, "heads tried together, the best single ones first")
    max_images: int | None = option(None, "most images of each set")
    seed: int = option(0, "seed of the halves")
    again: int = option(
        0,
        "repeat the search on the halves of this many other cuts, to count how often a head is found",
        least=0,
    )
    results: Path = option(results.PRECOMPUTED, "tables whose plans are shown with the answer")
    out: Path | None = option(None, "also write the answer to this JSON file")
    keep: bool = option(False, "save the answer beside --results, where batch.report shows it")
    device: str = option("auto", "cpu, cuda or cuda:N; auto is CCS_DEVICE, else cuda where there is a GPU")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    return command(Settings, argv, _search)


def _search(args: Settings) -> None:
    # Imported here: a mistake on the command line is answered at once, without loading PyTorch's world.
    import ccs
    from ccs import search
    from ccs.results import searches
    from ccs.results.searches import Search
    from ccs.search import Limits

    limits = Limits(**{one.name: getattr(args, one.name) for one in fields(Limits)})
    for flag, folder in (
        ("--out", args.out and args.out.parent),
        ("--results", args.keep and args.results),
    ):
        if folder and not folder.is_dir():
            raise InputError(f"The folder {folder} for {flag} is not there.")
    model = ccs.load(args.model, device=args.device)
    task, about = _task(args, model)
    beside, notice = _beside(args, model.name, model.heads)
    if notice:
        print(notice)
    found = search.search(model, task, limits, beside=beside, seed=args.seed, tell=print)
    print(page(found, limits.max_loss))
    others: list[HeadSet] = []
    if args.again:
        once = replace(task, people=model.trunk(task.people), things=model.trunk(task.things))
        seeds = range(args.seed + 1, args.seed + 1 + args.again)
        others = search.again(model, once, limits, seeds=seeds)
        print("On both halves of other cuts:", "; ".join(str(off) or "no head" for off in others))
    answer = Search(
        model=model.name,
        weights_hash=model.weights_hash,
        seed=args.seed,
        limits=limits,
        heads=found.off,
        seen=(*found.singles, *found.path),
        unseen=found.held_out,
        again=tuple(others),
        **about,
    )
    if args.out is not None:
        write_text(args.out, json.dumps(searches.as_data(answer), indent=1) + "\n")
    if args.keep:
        print(f"Kept in {searches.keep(args.results, answer)}.")


def open_sets(args: Any, attributes: Sequence[str]) -> tuple[BiasSet, ClassificationSet]:
    """The sets that --people and --things name, at most --max-images of each, with the names, template and K
    that were asked for; InputError for other kinds of sets, or people without one of the attributes.
    """
    from batch.bias import read_names
    from ccs.fairness import asked
    from ccs.image_sets import ClassificationSet
    from ccs.specs import open_gallery, open_set

    people = open_gallery(args.people, max_images=args.max_images)
    names = None if args.classes is None else read_names(args.classes)
    things = open_set(args.things, max_images=args.max_images, classes=names)
    if not isinstance(things, ClassificationSet):
        raise InputError(f"--things {args.things} is not a set of images with classes.")
    for attribute in attributes:
        if attribute not in people.groups:
            known = ", ".join(people.groups)
            raise InputError(f"{args.people} has no attribute {attribute!r}; it has {known}.")
    occupations = None if args.occupations is None else read_names(args.occupations)
    people = asked(people, occupations, args.template)
    return (people if args.top is None else replace(people, k=dict.fromkeys(people.groups, args.top))), things


def make_task(
    model: Model,
    people: BiasSet,
    things: ClassificationSet,
    attribute: str,
    names: Sequence[str],
    templates: Sequence[str],
    *,
    one_pool: bool = False,
) -> Task:
    """The task of making the rankings of these people for the names, put into the templates, fairer."""
    from ccs.fairness import cut_off
    from ccs.measures import accuracy as zeroshot
    from ccs.measures import ranking
    from ccs.search import Task

    pools = None if one_pool else people.own_pools(names)
    k = people.k[attribute] if pools is not None else cut_off(people, attribute, len(people.images), None)
    prompts = zeroshot.class_weights(model, names, templates)
    if pools is None:  # prompts that are one text to the model count once
        prompts = prompts[sorted(set(ranking.first_alike(prompts).tolist()))]
    return Task(
        people=people.images,
        groups=people.groups[attribute],
        prompts=prompts,
        k=k,
        pools=pools,
        units=people.units,
        things=things.images,
        labels=things.labels,
        class_weights=zeroshot.class_weights(model, things.classes, things.templates),
    )


def _task(args: Settings, model: Model) -> tuple[Task, dict[str, Any]]:
    """The task that is searched, and the names of its parts."""
    people, things = open_sets(args, [args.attribute] if args.attribute else [])
    attribute = args.attribute or next(iter(people.groups))
    names, templates = (args.prompt, ("{}",)) if args.prompt else (people.occupations, people.templates)
    task = make_task(model, people, things, attribute, names, templates, one_pool=args.one_pool)
    about = {"people": people.name, "attribute": attribute, "things": things.name, "prompts": tuple(names)}
    return task, about | {"templates": tuple(templates), "k": task.k}


def _beside(args: Settings, name: str, heads: HeadSet) -> tuple[list[Plan], str]:
    """High, low and random sets from the model's tables, and a notice where there are none."""
    from ccs import plans as pruning
    from ccs.results import queries

    folder = args.results / results.folder_name(name)
    if not folder.is_dir():
        return [], f"There are no tables of {name} in {args.results}: no high, low or random sets beside."
    found = results.read(folder)
    scored, k = queries.head_scores(found), queries.main_k(found) or 5
    kinds = ("high", "low", "random")
    notices: list[str] = []
    made = pruning.plans(scored, k, heads, args.seed, 5, kinds=kinds, notice=notices.append)
    return made[1:], " ".join(notices)


def page(found: SearchResult, max_loss: float) -> str:
    """The answer as a person reads it. max_loss: the accuracy that the search might lose."""
    lines = ["", "On the half that the search did not see (95% intervals; changes are from nothing off):"]
    rows: list[tuple[str, ...]] = [("set", "heads", "MaxSkew", "change", "p", "accuracy", "change", "")]
    rows += [_row(one) for one in found.held_out]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    chance = found.held_out[0].chance
    lines.append(
        f"Chance: MaxSkew {chance.value:.3f} ({chance.low:.3f} to {chance.high:.3f}). * no set beats it."
    )
    lines.append(answer(found, max_loss))
    return "\n".join(lines)


def answer(found: SearchResult, max_loss: float) -> str:
    """The answer in a sentence: confirmed if the half that the search did not see bears it out."""
    from ccs.measures.stats import signed

    if not found.off:
        return "Answer: no head helps within these limits."
    shown = next(one for one in found.held_out if one.plan == "searched")
    skew, accuracy = shown.max_skew_change.value, shown.accuracy_change.value
    confirmed = skew < 0 and accuracy >= -max_loss - 1e-9
    by = f"MaxSkew {signed(skew, 3)}, accuracy {signed(100 * accuracy, 1)} points"
    return (
        f"Answer: {'switch off' if confirmed else 'not confirmed:'} {found.off}. On the half that the search "
        f"did not see: {by}, where it may lose {100 * max_loss:.1f}."
    )


def _row(one: HeldOut) -> tuple[str, ...]:
    seed = f" {one.seed}" if one.plan == "random" else ""
    return (
        f"{one.plan}{seed}",
        str(len(one.heads)),
        _figure(one.max_skew),
        _figure(one.max_skew_change, "+"),
        f"{one.max_skew_change.p_value:.3f}",
        _figure(one.accuracy),
        _figure(one.accuracy_change, "+"),
        "*" if one.front else "",
    )


def _figure(found: Estimate | Effect, sign: str = "") -> str:
    return f"{found.value:{sign}.3f} ({found.low:{sign}.3f} to {found.high:{sign}.3f})"


if __name__ == "__main__":
    raise SystemExit(main())
