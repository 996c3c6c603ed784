"""Make a CLIP fairer: `clip-ccs mitigate --model M --gallery G --attribute A --out DIR`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ccs
from ccs.analysis.mitigate import MitigationTable, Option, choose, objection, unbeaten
from ccs.analysis.mitigations import METHODS, NOTHING, QUICK, as_change
from ccs.batch.command_line import Command
from ccs.batch.options import ANALYSIS, DATA, OUTPUT, Attribute, at_least, describe, read, to_folder
from ccs.batch.pages import change, in_brackets, printed
from ccs.batch.search import GallerySettings
from ccs.errors import InputError
from ccs.model.export import export
from ccs.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Compare ways to lower a model's bias, recommend one, or none, and save the model with it.

    Each is fitted on one half of the people and prompts, and measured on the other.
    """

    attribute: Attribute = None
    max_loss: Annotated[float, ANALYSIS, at_least(0)] = 0.02
    """Largest loss of accuracy on --preserve, as a share (0.02 is 2 points)"""
    quick: Annotated[bool, ANALYSIS] = False
    """Only the methods that need no search for heads"""
    only: Annotated[str | None, ANALYSIS, describe(f"Only this method: {', '.join(METHODS)}")] = None
    out: Annotated[Path | None, OUTPUT, read(to_folder)] = None
    """New folder for the model with the recommended method, or with --only"""
    max_images: Annotated[int, DATA, at_least(4)] = 400
    """Number of images of each dataset, at most"""


def mitigate(args: Settings) -> None:
    """Print the table and the recommendation, and save the model."""
    if args.out and args.out.exists():
        raise InputError(f"{args.out} is already there; name a new folder for --out.")
    model = ccs.load(args.model, device=args.device)
    methods = (args.only,) if args.only else QUICK if args.quick else tuple(METHODS)
    table = ccs.mitigate(model, **args.arguments(), methods=methods, max_loss=args.max_loss, tell=_tell)
    for name in table.about["skipped"]:
        print(f"Skipped in {name}", file=sys.stderr)
    print(page(table))
    if args.out:
        print(_save(args, model, table))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def page(table: MitigationTable) -> str:
    """The table and the recommendation."""
    options = list(table.options.values())
    front = unbeaten(options)
    rows = [
        {
            "": "*" if one.name in front else "",
            "what": one.name,
            "MaxSkew": in_brackets(one.max_skew),
            "its change": in_brackets(one.max_skew_change, sign="+") if one.name != NOTHING else "",
            "accuracy": f"{one.accuracy.value:.1%}",
            "change": f"{100 * one.accuracy_change.value:+.1f}" if one.name != NOTHING else "",
            "group accuracy": f"{one.group_accuracy:.0%}",
            "moved": f"{one.moved:.3f}",
            "in weights": "no" if one.reason else "yes",
        }
        for one in options
    ]
    best = table.options[table.best] if table.best else None
    return printed(
        "mitigate",
        rows=rows,
        table=table,
        about=table.about,
        chance=float(table.rows["chance"].iloc[0]),
        best=best,
        changed=best and change(best.max_skew_change),
        lost=best and change(best.accuracy_change, 100, 1),
    )


def _save(args: Settings, model: Model, table: MitigationTable) -> str:
    """Write the model with --only, or the best that weights can hold, and say what was written."""
    assert args.out is not None
    about, options, max_loss = table.about, list(table.options.values()), args.max_loss
    best: Option | None = choose(options, max_loss)
    holds = choose([one for one in options if not one.reason], max_loss)
    if args.only:
        best = options[-1]
        holds = None if best.reason else best
    why = "" if best is None or best is holds else f" The weights cannot hold {best.name}: {best.reason}"
    if holds is None:
        raise InputError(f"Nothing was written: none that weights can hold is recommended.{why}")
    against = objection(holds, max_loss)
    chosen = f"It is not recommended: {against}." if against else f"It was chosen among {len(options) - 1}."
    before, chance = options[0], float(table.rows["chance"].iloc[0])
    people, attribute = about["gallery"], about["attribute"]
    said = [
        f"{holds.name}, fitted on {about['fitted_on']:,} people of {people} by {attribute}.",
        f"MaxSkew by {attribute} on {table.people:,} other people and {table.prompts} other prompts: "
        f"{in_brackets(before.max_skew)} before, {in_brackets(holds.max_skew)} after; "
        f"by chance {chance:.3f}. {chosen}",
        f"Accuracy on {about['preserve']}: {before.accuracy.value:.1%} before, "
        f"{holds.accuracy.value:.1%} after.",
        f"The text of a person's own group is the nearest for {before.group_accuracy:.0%} before, "
        f"{holds.group_accuracy:.0%} after, by chance {1 / about['groups']:.0%}.",
    ]
    export(model, as_change(holds.fitted, said), args.out, args.model)
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
