"""Find the heads that carry a bias, and score methods that do: `clip-ccs localize --help`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd

from ccs.batch.command_line import Command
from ccs.batch.options import (
    ANALYSIS,
    DATA,
    OUTPUT,
    Images,
    ModelName,
    Texts,
    at_least,
    describe,
    read,
    to_file,
)
from ccs.batch.pages import change, in_brackets, printed
from ccs.batch.search import GallerySettings
from ccs.benchmark import natural, planted_models, scoring
from ccs.benchmark.protocol import Answer, Sets, Subject, answer, own
from ccs.data.open import open_gallery
from ccs.errors import InputError
from ccs.locate import DEFAULT, GRID, METHODS, RANDOM
from ccs.locate.base import Method
from ccs.locate.encoders import which_tower
from ccs.metrics.stats import Effect, Estimate


@dataclass(frozen=True, kw_only=True)
class Settings(GallerySettings):
    """Find the heads that carry a bias, and measure their ablation on held-out images and prompts.

    The result states how reliable the method is on models whose biased heads are known. Without --model,
    methods are scored on these models.
    """

    model: ModelName = ""
    attribute: Annotated[tuple[str, ...], DATA, describe("Column of the groups of people; repeatable")] = ()
    images: Images = "world"
    texts: Texts = "world"
    method: Annotated[
        tuple[str, ...],
        ANALYSIS,
        describe("Method: a name, or package.module:function for yours; repeatable"),
    ] = ()
    max_images: Annotated[int, DATA, at_least(4)] = 1000
    """Number of images of each dataset, at most"""
    models: tuple[str, ...] = ("planted",)
    """Models with known heads: planted, natural, files, a folder, or hf://USER/NAME; repeatable"""
    encoders: Annotated[Literal["image", "both"], ANALYSIS] = "image"
    """both: also the shares of the group score gap that come from the images and from the prompts"""
    pictures: Annotated[str, DATA] = "world/counterfactuals"
    """With --encoders both: images of each occupation in all groups"""
    splits: Annotated[int, at_least(1)] = 4
    """Random halves on which --models are scored"""
    cells: Annotated[Path | None, OUTPUT, read(to_file)] = None
    """File of scores; an interrupted run continues from it"""


CARRIES = 0.1
"""The share of the lean that goes with a text head, for it to be named."""


def localize(args: Settings) -> int:
    """Print each method's heads and their effects."""
    methods = {name: method_of(name) for name in args.method or ([DEFAULT] if args.model else METHODS)}
    return _ask(args, args.model, methods) if args.model else _score(args, methods)


def method_of(name: str) -> Method:
    """One of the program's methods, or a function of the user's; InputError for neither."""
    module, colon, function = name.partition(":")
    if method := {**GRID, **METHODS}.get(name):
        return method
    if not colon:
        raise InputError(
            f"There is no method {name!r}; there are {'; '.join(METHODS)}; what is done to a head and what "
            f"is measured: {', '.join(GRID)}; or package.module:function."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        method = getattr(import_module(module), function, None)
    except Exception as error:  # whatever a file of somebody's own does
        raise InputError(f"The method {name} cannot be imported: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(method):
        raise InputError(f"The module {module} has no function {function!r}.")
    return own(name, method)


def _score(args: Settings, methods: Mapping[str, Method]) -> int:
    """Score methods on models in which it is known who carries a skew; 2 if one of them failed."""
    track = scoring.NATURAL if args.models == ("natural",) else scoring.PLANTED_HEADS
    places = natural.located() if track is scoring.NATURAL else planted_models.located(args.models)
    listed = {name: method for name, method in methods.items() if ":" not in name}
    theirs = {name: method for name, method in methods.items() if ":" in name}
    found, failed = [], dict[str, str]()
    for some, file in ((listed, args.cells), (theirs, None)):  # a user's function may have changed
        cells, bad = scoring.run(some, places, args.splits, file=file, attributes=args.attribute, track=track)
        found.append(cells)
        failed |= bad
        if args.cells and file is None and len(cells):
            scoring.keep(cells, args.cells)
    for sentence in failed.values():
        print(f"error: {sentence}", file=sys.stderr)
    if sum(map(len, found)):
        cells = scoring.with_kept(scoring.joined(found), track.file)
        against = next((name for name in [*theirs, *listed] if name not in failed), None)
        print(page(scoring.table(cells, against, track), track))
    return 2 if failed else 0


def page(table: pd.DataFrame, track: scoring.Track = scoring.PLANTED_HEADS) -> str:
    """The table of `ccs.benchmark.score`, a line per method."""
    first, second, *_ = track.figures
    rows = [
        {
            "method": str(name),
            first.replace("_", " "): "the truth"
            if name == track.oracle
            else in_brackets(estimate(row, first), 2),
            second: f"{row[second]:.2f}",
            "MaxSkew taken": f"{row['max_skew_taken']:.3f}",
            "accuracy lost": f"{100 * row['accuracy_lost']:.1f}",
            "passes": f"{row['passes']:.1f}",
        }
        for name, row in table.iterrows()
    ]
    return printed("benchmark", models=int(table["models"].max()), rows=rows)


def _ask(args: Settings, name: str, methods: Mapping[str, Method]) -> int:
    """Say for each method and attribute which heads of a model it finds, and what they do."""
    people, things, attributes = args.open()
    sets = Sets(people=people, things=things, images=args.images, texts=args.texts or "world")
    subject = Subject(planted_models.load(name, device=args.device), sets)
    for attribute in attributes:
        for called, method in methods.items():
            found = answer(subject, attribute, called, method, args.seed)
            print(said(found, subject, attribute, called))
        if args.encoders == "both":
            pictures = open_gallery(args.pictures, attribute=attribute, max_images=args.max_images)
            towers = which_tower(subject.model, people, pictures, attribute, args.seed)
            heads = [f"{head} ({far:.0%})" for head, far in towers.carried.items() if far >= CARRIES]
            print(printed("towers", found=towers, attribute=attribute, pictures=pictures.name, heads=heads))
    return 0


def said(found: Answer, subject: Subject, attribute: str, method: str) -> str:
    """An answer in ten lines or so."""
    none, off, *drawn = found.held_out
    changes = [one.max_skew_change.value for one in drawn]
    as_low = sum(value <= off.max_skew_change.value for value in changes)
    return printed(
        "localize",
        model=subject.model.name,
        sets=subject.sets,
        attribute=attribute,
        method=method,
        reliability=reliability(method),
        found=found,
        before=none,
        off=off,
        drawn=drawn,
        mean=sum(changes) / max(1, len(changes)),
        as_low=as_low,
        p=(1 + as_low) / (1 + len(drawn)),
        changed=_change,
    )


def _change(before: Estimate, after: Estimate, difference: Effect) -> str:
    return f"{before.value:.3f} -> {after.value:.3f}, {change(difference)}"


def reliability(method: str) -> str:
    """What the benchmark says about a method, on bases that no method was developed on."""
    words = []
    for track, what in (
        (scoring.PLANTED_HEADS, "small models with a planted skew its average precision"),
        (scoring.NATURAL, "that learned one by themselves its area"),
    ):
        cells = scoring.kept(track.file)
        cells = cells[~cells["base"].isin(scoring.DEVELOPMENT)]
        if method not in set(cells["method"]):
            return "The benchmark has no score of it; `clip-ccs localize --method` without --model gives one."
        table, figure = scoring.table(cells, track=track), track.figures[0]
        its, chance = (
            in_brackets(estimate(table.loc[[name]].iloc[0], figure), 2) for name in (method, RANDOM)
        )
        words.append(f"{int(table['models'].max())} {what} is {its} (at random {chance})")
    return f"On {words[0]}, on {words[1]}; 1 is what the heads that carry the skew reach."


def estimate(row: pd.Series, figure: str = "average_precision") -> Estimate:
    """A figure in a row of `ccs.benchmark.table`, with its interval."""
    return Estimate(row[figure], row[f"{figure}_low"], row[f"{figure}_high"])


main = Command(
    Settings,
    localize,
    (
        "clip-ccs localize --model organism --attribute gender",
        "clip-ccs localize --model DIR --gallery DIR --method my_methods:gap",
    ),
    "Interrupted; the same command continues from --cells.",
)

if __name__ == "__main__":
    sys.exit(main())
