"""Make a CLIP fairer: `clip-ccs mitigate --model M --gallery G --attribute A --out DIR`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from PIL import Image

from ccs.batch.command_line import Command
from ccs.batch.options import ANALYSIS, DATA, OUTPUT, Attribute, at_least, read, to_folder
from ccs.batch.pages import change, in_brackets, printed
from ccs.batch.search import GallerySettings
from ccs.benchmark import planted_models
from ccs.benchmark.protocol import Sets, Subject
from ccs.errors import InputError
from ccs.mitigate import judging
from ccs.mitigate.judging import Half, Offer, as_change
from ccs.mitigate.methods import NOTHING, UNLABELED, UNSAVED
from ccs.model.encoder import Trunk
from ccs.model.export import export
from ccs.model.model import Model
from ccs.progress import Bar

PART = 50
"""Images between two steps of a bar."""


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Compare ways to lower a model's bias, recommend one, or none, and save the model with it.

    Each is fitted on one half of the people and prompts, and measured on the other.
    """

    attribute: Attribute = None
    max_loss: Annotated[float, ANALYSIS, at_least(0)] = 0.02
    """Largest loss of accuracy on --preserve, as a share (0.02 is 2 points)"""
    quick: Annotated[bool, ANALYSIS] = False
    """Only the ways that need no search for heads"""
    only: Annotated[str | None, ANALYSIS] = None
    """Only this way, by its name in the table"""
    out: Annotated[Path | None, OUTPUT, read(to_folder)] = None
    """New folder for the model with the recommended way, or with --only"""
    max_images: Annotated[int, DATA, at_least(4)] = 400
    """Number of images of each dataset, at most"""


def mitigate(args: Settings) -> None:
    """Print the table and the recommendation, and save the model."""
    if args.out and args.out.exists():
        raise InputError(f"{args.out} is already there; name a new folder for --out.")
    if args.only not in (None, *judging.QUICK, *judging.SLOW):
        raise InputError(f"--only {args.only!r} is none of {', '.join((*judging.QUICK, *judging.SLOW))}.")
    if args.out and args.only in UNSAVED:
        raise InputError(f"--out cannot save {args.only}: {UNSAVED[args.only]}.")
    people, things, (attribute, *_) = args.open()
    model = planted_models.load(args.model, device=args.device)
    trunks = _looked_at(model, people.images, "people"), _looked_at(model, things.images, "other images")
    half = Half(Subject(model, Sets(people=people, things=things), trunks), attribute, args.seed)
    _tell(f"{model.name}: {len(people.images):,} people by {attribute}, {len(things.images):,} other images")
    offers = judging.offers(half, [args.only] if args.only else judging.QUICK, args.seed, tell=_tell)
    if not args.quick and not args.only:
        print(page(offers, half, args.max_loss, things.name, first=True), flush=True)
        offers += judging.offers(half, judging.SLOW, args.seed, tell=_tell)[1:]
    print(page(offers, half, args.max_loss, things.name))
    if args.out:
        print(_save(args, model, offers, half, people.name, things.name))


def _looked_at(model: Model, images: Sequence[Image.Image], what: str) -> Trunk:
    """Activations below the first head, with a bar."""
    rows = range(0, len(images), PART)
    parts = [
        model.trunk([images[i] for i in range(start, min(start + PART, len(images)))])
        for start in Bar(rows, desc=f"looking at {len(images):,} {what}", disable=None)
    ]
    return Trunk.joined(parts) if parts else model.trunk([])


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def page(offers: Sequence[Offer], half: Half, budget: float, things: str, *, first: bool = False) -> str:
    """The table and the recommendation. first: heads are still to come."""
    front = judging.front(offers)
    rows = [
        {
            "": "*" if offer.name in front else "",
            "what": offer.name,
            "MaxSkew": in_brackets(offer.max_skew),
            "its change": in_brackets(offer.max_skew_change, sign="+") if offer.name != NOTHING else "",
            "accuracy": f"{offer.accuracy.value:.1%}",
            "change": f"{100 * offer.accuracy_change.value:+.1f}" if offer.name != NOTHING else "",
            "asked": f"{offer.asked:.0%}",
            "moved": f"{offer.moved:.3f}",
            "labels": "no" if offer.name in UNLABELED else "yes",
            "in weights": "no" if offer.reason else "yes",
        }
        for offer in offers
    ]
    chance = half.chance["max_skew_chance"]
    best = judging.best(offers, budget)
    return printed(
        "mitigate",
        rows=rows,
        half=half,
        chance=chance,
        best=best,
        things=things,
        budget=100 * budget,
        groups=len(half.names),
        first=first,
        changed=best and change(best.max_skew_change),
        lost=best and change(best.accuracy_change, 100, 1),
    )


def _save(args: Settings, model: Model, offers: Sequence[Offer], half: Half, people: str, things: str) -> str:
    """Write the model with --only, or the best that weights can hold, and say what was written."""
    assert args.out is not None
    budget, able = args.max_loss, [offer for offer in offers if not offer.reason]
    best, holds = judging.best(offers, budget), judging.best(able, budget)
    if args.only:
        best = offers[-1]
        holds = None if best.reason else best
    why = "" if best is None or best is holds else f" The weights cannot hold {best.name}: {best.reason}"
    if holds is None:
        raise InputError(f"Nothing was written: none that weights can hold is recommended.{why}")
    against = judging.objection(holds, budget)
    among = f"It was chosen there among {len(offers) - 1}."
    chosen = f"It is not recommended: {against}." if against else among
    said = [
        f"{holds.name}, fitted on {len(half.evidence.people):,} people of {people} by {half.attribute}.",
        f"MaxSkew by {half.attribute} on {len(half.task.people):,} other people and {len(half.task.prompts)} "
        f"other prompts: {in_brackets(offers[0].max_skew)} before, {in_brackets(holds.max_skew)} after; by "
        f"chance {half.chance['max_skew_chance']:.3f}. {chosen}",
        f"Accuracy on {things}: {offers[0].accuracy.value:.1%} before, {holds.accuracy.value:.1%} after.",
        f"The text of a person's own group is the nearest for {offers[0].asked:.0%} before, "
        f"{holds.asked:.0%} after, by chance {1 / len(half.names):.0%}.",
    ]
    made = as_change(holds.fitted, said)
    export(model, made, args.out, args.model)
    return f"Written to {args.out}: {model.name} with {holds.name}.{why}{f' {chosen}' if against else ''}"


main = Command(
    Settings,
    mitigate,
    (
        "clip-ccs mitigate --model organism --attribute gender --quick",
        "clip-ccs mitigate --model DIR --gallery DIR --preserve DIR --out fairer",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
