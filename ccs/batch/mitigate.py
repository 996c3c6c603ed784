"""Make a CLIP fairer: `clip-ccs mitigate --model M --gallery G --attribute A --out DIR`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ccs
from ccs.analysis.mitigate import MitigationTable, Option, choose, objection, unbeaten
from ccs.analysis.mitigations import METHODS, NOTHING, QUICK, as_change
from ccs.batch.pages import change, in_brackets, printed
from ccs.batch.search import GallerySettings
from ccs.cli.command_line import Command
from ccs.cli.options import ANALYSIS, DATA, OUTPUT, Attribute, at_least, describe, read, to_folder
from ccs.errors import InputError
from ccs.model.export import export
from ccs.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Compare ways to lower a model's bias, recommend one, or none, and save the model with it.

    Each is fitted on one half of the people and prompts, and measured on the other.
    """

    attribute: Attribute = None
    max_loss: Annotated[float, ANALYSIS, at_least(0)] = 2.0
    """Largest loss of accuracy on --preserve, in points"""
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
    table = ccs.mitigate(model, **args.arguments(), methods=methods, max_loss=args.max_loss / 100, tell=_tell)
    for name in table.about["skipped"]:
        print(f"Skipped in {name}", file=sys.stderr)
    saved = _saved(args, table) if args.out else None
    print(page(table, saved))
    if args.out:
        print(_save(args, model, table, saved))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def page(table: MitigationTable, saved: Option | None = None) -> str:
    """Format the table and the recommendation.

    Args:
        table: the methods' results.
        saved: the method that --out saves, which may be another than the recommended one.
    """
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
        saved=saved,
        changed=best and change(best.max_skew_change),
        lost=best and change(best.accuracy_change, 100, 1),
    )


def _saved(args: Settings, table: MitigationTable) -> Option | None:
    """Return the method of --only, or the best, if weights can hold it; otherwise the best that they can."""
    options = list(table.options.values())
    if args.only:
        return None if options[-1].reason else options[-1]
    return choose([option for option in options if not option.reason], args.max_loss / 100)


def _save(args: Settings, model: Model, table: MitigationTable, holds: Option | None) -> str:
    """Write the model with this method, and say what was written."""
    assert args.out is not None
    about, options, max_loss = table.about, list(table.options.values()), args.max_loss / 100
    best = options[-1] if args.only else choose(options, max_loss)
    why = "" if best is None or best is holds else f" The weights cannot hold {best.name}: {best.reason}"
    if holds is None:
        raise InputError(f"Nothing was written: none that weights can hold is recommended.{why}")
    against = objection(holds, max_loss)
    chosen = f"It is not recommended: {against}." if against else f"It was chosen among {len(options) - 1}."
    before, chance = options[0], float(table.rows["chance"].iloc[0])
    people, attribute = about["gallery"], about["attribute"]
    kind = "fresh" if about["fresh"] else "other"
    said = [
        f"{holds.name}, fitted on one half of {people} by {attribute}: {about['fitted_on']:,} people and "
        f"{about['fitted_prompts']} prompts.",
        f"MaxSkew by {attribute} on {table.people:,} {kind} people and {table.prompts} other prompts: "
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
