"""Make a CLIP fairer: `clip-ccs mitigate --model M --gallery G --attribute A --out DIR`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ccs.batch.command_line import ATTRIBUTE, DEVICE, SKIP, command, option, read_names, to_folder
from ccs.batch.pages import change, in_brackets, printed
from ccs.batch.search import CLASSES, PEOPLE, THINGS, Asked
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


@dataclass(frozen=True)
class Settings(Asked):
    """Fit ways to lower a CLIP's bias on half of the people and prompts, show on the other half what each
    lowers and costs, and recommend one, or none. With --out the model is saved with it.
    """

    people: str = option("world/faces", PEOPLE, "--gallery", "--people", metavar="P")
    attribute: str | None = option(None, ATTRIBUTE)
    things: str = option("world/subjects", f"what must be told apart: {THINGS}", "--keep", metavar="SET")
    classes: Sequence[str] | None = option(None, CLASSES.replace("--things", "--keep"), read=read_names)
    budget: float = option(2.0, "points of accuracy on --keep that may be lost", least=0)
    quick: bool = option(False, "only what needs no search for heads")
    only: str | None = option(None, "only this way, by its name in the table; --out saves it", metavar="NAME")
    out: Path | None = option(None, "a new folder for the model with what is recommended", read=to_folder)
    max_images: int = option(400, "most images of each set; drawn people are all used", least=4)
    skip_unreadable: bool = option(False, SKIP)
    seed: int = option(0, "seed of the halves", least=0)
    device: str = option("auto", DEVICE)


def _mitigate(args: Settings) -> None:
    if args.out and args.out.exists():
        raise InputError(f"{args.out} is already there; name a new folder for --out.")
    if args.only not in (None, *judging.QUICK, *judging.SLOW):
        raise InputError(f"--only {args.only!r} is none of {', '.join((*judging.QUICK, *judging.SLOW))}.")
    if args.out and args.only in UNSAVED:
        raise InputError(f"--out cannot save {args.only}: {UNSAVED[args.only]}.")
    people, things, (attribute, *_) = args.sets(args.max_images, args.skip_unreadable)
    model = planted_models.load(args.model, device=args.device)
    trunks = _looked_at(model, people.images, "people"), _looked_at(model, things.images, "other images")
    half = Half(Subject(model, Sets(people=people, things=things), trunks), attribute, args.seed)
    _tell(f"{model.name}: {len(people.images):,} people by {attribute}, {len(things.images):,} other images")
    offers = judging.offers(half, [args.only] if args.only else judging.QUICK, args.seed, tell=_tell)
    if not args.quick and not args.only:
        print(page(offers, half, args.budget / 100, things.name, first=True), flush=True)
        offers += judging.offers(half, judging.SLOW, args.seed, tell=_tell)[1:]
    print(page(offers, half, args.budget / 100, things.name))
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
    budget, able = args.budget / 100, [offer for offer in offers if not offer.reason]
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


main = command(Settings, _mitigate)

if __name__ == "__main__":
    sys.exit(main())
