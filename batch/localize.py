"""Rank heads by every method that looks for those that carry a bias: `python -m batch.localize --help`."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch.options import command, option
from batch.search import CLASSES, OCCUPATIONS, PEOPLE, TEMPLATE, THINGS, TOP, make_task, open_sets
from ccs import results
from ccs.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from ccs.heads import Head
    from ccs.image_sets import BiasSet, ClassificationSet
    from ccs.locate import Evidence
    from ccs.locate.base import Method, Scores
    from ccs.model.model import Model
    from ccs.search import Task

Row = dict[str, Any]
_SHOWN = (1, 2, 4)
"""Numbers of heads off in the printed table."""


@dataclass(frozen=True)
class Settings:
    """Rank a model's heads by every method that looks for those that carry a bias, using one half of the
    people and prompts, and measure on the other half what switching the first ones off does.
    """

    model: tuple[str, ...] = option(
        (),
        "organism, an open_clip NAME/TAG or a folder; repeatable (default: the models of ccs.benchmark in "
        "which a skew was planted)",
    )
    people: str = option("world/faces", PEOPLE, metavar="P")
    attribute: tuple[str, ...] = option(
        (), "attribute that groups people; repeatable (default: those planted, else all of the set's)"
    )
    occupations: str | None = option(None, OCCUPATIONS)
    template: str | None = option(None, TEMPLATE)
    top: int | None = option(None, TOP, least=2)
    things: str = option("world/subjects", THINGS, metavar="S")
    classes: str | None = option(None, CLASSES)
    images: str = option("world", "images that TEXTSPAN reads")
    texts: str = option("world", "its pool of texts")
    method: tuple[str, ...] = option(
        (),
        "use this method only, one of the program's or package.module:function of your own; repeatable "
        "(default: all)",
    )
    max_images: int = option(186, "most images of each set; drawn people are always all used", least=4)
    moments: int = option(500, "most images that TEXTSPAN reads", least=2)
    splits: int = option(4, "splits into halves, each searched and measured anew", least=1)
    out: Path = option(results.PRECOMPUTED, "folder of results whose localization.parquet is extended")
    force: bool = option(False, "redo what is there")
    device: str = option("auto", "cpu, cuda or cuda:N; auto is CCS_DEVICE, else cuda where there is a GPU")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    interrupted = "Interrupted. What is finished is kept; the same command continues."
    return command(Settings, argv, _localize, interrupted)


def _localize(args: Settings) -> None:
    # Imported here: a mistake on the command line is answered at once, without loading PyTorch's world.
    from ccs import benchmark
    from ccs.locate import METHODS

    methods = {name: _method(name) for name in args.method or METHODS}
    people, things = open_sets(args, args.attribute)
    names = args.model or [name for name in benchmark.names() if planted_heads(name, people.groups)]
    if not names:
        raise InputError("No model with planted skew comes with this program; name one with --model.")
    for name in names:
        _one(args, name, people, things, methods)


def _method(name: str) -> Method:
    """One of the program's methods, or a function of the user's; InputError for neither."""
    from ccs.locate import METHODS

    module, colon, function = name.partition(":")
    if name in METHODS:
        return METHODS[name]
    if not colon:
        raise InputError(
            f"There is no method {name!r}; there are {', '.join(METHODS)}, or package.module:function."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), function, None)
    except Exception as error:  # whatever a file of somebody's own does
        raise InputError(f"The method {name} cannot be imported: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(found):
        raise InputError(f"The module {module} has no function {function!r}.")
    return own(name, found)


def own(name: str, method: Method) -> Method:
    """A method of a user's own, which ends in an InputError where it fails or does not score each head."""

    def scored(evidence: Evidence) -> Scores:
        try:
            found = dict(method(evidence))
            scores = {head: float(found[head]) for head in evidence.model.heads}
        except KeyError as error:
            raise InputError(f"The method {name} gives no score for {error.args[0]}.") from error
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(line.filename).name}, line {line.lineno}"
            raise InputError(
                f"The method {name} failed: {type(error).__name__}: {error} ({where})."
            ) from error
        if wrong := [head for head, score in scores.items() if not math.isfinite(score)]:
            raise InputError(
                f"The method {name} gives {scores[wrong[0]]} for {wrong[0]}, not a finite number."
            )
        return scores

    return scored


def _one(
    args: Settings,
    name: str,
    people: BiasSet,
    things: ClassificationSet,
    methods: Mapping[str, Method],
) -> None:
    """Find what is missing of one model, by attribute and split, and keep it."""
    import ccs
    from ccs.benchmark import planted_models
    from ccs.results import localization

    load = ccs.load if planted_models.file_of(name) is None else planted_models.load
    model = load(name, device=args.device)
    truth = planted_heads(name, people.groups)
    wanted = args.attribute or tuple(truth) or tuple(people.groups)
    about = {"model": model.name, "weights": model.weights_hash[:16], "dataset": people.name}
    shared: dict[str, Any] = {}
    for attribute, seed in product(wanted, range(args.splits)):
        asked = about | {"attribute": attribute, "seed": seed}
        there = {} if args.force else localization.orders(localization.read(args.out), **asked)
        # A function of the user's own may have changed since it was run.
        missing = [method for method in methods if method not in there or ":" in method]
        split = f"split {seed + 1} of {args.splits}"
        print(f"{model.name}, {attribute}, {split}: {len(missing)} of {len(methods)} methods", flush=True)
        if not missing:
            continue
        evidence, unseen = prepare(args, model, people, things, attribute, seed, shared)
        scores = {}
        for method in missing:
            scores[method] = methods[method](evidence)
        rows = list(_rows(model, unseen, scores, seed, truth.get(attribute)))
        localization.keep(args.out, [asked | row for row in rows])
    for attribute in wanted:
        print(page(localization.read(args.out), about | {"attribute": attribute}, args.splits))


def page(rows: pd.DataFrame, asked: Mapping[str, object], splits: int) -> str:
    """A line for each method, means over the splits: its first heads, and the figures without them."""
    from ccs.results import localization

    for column, value in asked.items():
        rows = rows[rows[column] == value]
    rows = rows[rows["seed"] < splits]
    if rows.empty:
        return ""
    orders, none = localization.orders(rows), rows.iloc[0]
    lines = [
        "",
        f"{asked['attribute']}, the half that methods do not see: MaxSkew {none['max_skew_none']:.3f} "
        f"(chance {none['chance']:.3f}), accuracy {none['accuracy_none']:.3f}. With the first heads off:",
        f"{'method':32s} {'first heads':24s} " + "  ".join(f"MaxSkew, accuracy: {n}" for n in _SHOWN),
    ]
    means: dict[Any, Any] = rows.groupby(["method", "rank"])[["max_skew", "accuracy"]].mean().to_dict("index")
    found = []
    for method, order in orders.items():
        cells = [means[method, n] for n in _SHOWN if (method, n) in means]
        figures = "  ".join(f"{one['max_skew']:10.3f} {one['accuracy']:9.3f}" for one in cells)
        line = f"{method:32s} {' '.join(map(str, order[:3])):24s} {figures}"
        found.append((cells[-1]["max_skew"], line))
    return "\n".join([*lines, *(line for _, line in sorted(found))])


def prepare(
    args: Settings,
    model: Model,
    people: BiasSet,
    things: ClassificationSet,
    attribute: str,
    seed: int,
    shared: dict[str, Any],
) -> tuple[Evidence, Task]:
    """The evidence that the methods see of one attribute, and the half that they do not see.

    seed: of the split into halves. shared: filled with what the next split or attribute of the same model
    needs too.
    """
    from ccs.locate import Evidence
    from ccs.locate.base import group_names
    from ccs.model.moments import collect_moments
    from ccs.search import halves
    from ccs.specs import open_images
    from ccs.texts.labels import score_by_tags
    from ccs.texts.pools import load_pool
    from ccs.texts.textspan import textspan

    if not shared:
        pool = load_pool(args.texts)
        images = open_images(args.images, args.moments)
        moments = collect_moments(model, [images.images])
        embeddings = model.embed_texts(pool.texts)
        spans = textspan(moments, pool.texts, embeddings, 5)
        shared |= {"pool": pool, "pool_embeddings": embeddings, "moments": moments, "spans": spans}
        shared["scores"] = score_by_tags(spans, pool)
    whole = make_task(model, people, things, attribute)
    seen, unseen = (
        replace(half, people=model.trunk(half.people), things=model.trunk(half.things))
        for half in halves(whole, seed)
    )
    groups = sorted(set(people.groups[attribute].tolist()))
    names = group_names(attribute, groups)
    return Evidence(model=model, task=seen, names=names, seed=seed, **shared), unseen


def _rows(
    model: Model,
    unseen: Task,
    scores: Mapping[str, Mapping[Any, float]],
    seed: int,
    planted: Mapping[Head, float] | None,
) -> Iterator[Row]:
    """Rows of the table, without what names the model, the set and the attribute."""
    import numpy as np

    from ccs.heads import HeadSet
    from ccs.locate.base import ranking
    from ccs.locate.scoring import first
    from ccs.measures import bias
    from ccs.results.localization import PLANTED
    from ccs.search import measure

    if planted:
        scores = {**scores, PLANTED: {head: np.nan_to_num(share) for head, share in planted.items()}}
    orders = {method: ranking(found, seed) for method, found in scores.items()}
    sets = sorted({off for order in orders.values() for off in first(order)}, key=str)
    none, *points = measure(model, unseen, [HeadSet(), *sets])
    reached = {point.off: point for point in points}
    before = bias.measure(
        *(model.embed_images(unseen.people), unseen.prompts, unseen.groups, unseen.k),
        pools=unseen.pools,
        units=unseen.units,
        draws=40,
    )
    fixed = {"max_skew_none": none.max_skew, "accuracy_none": none.accuracy}
    fixed["chance"] = before.max_skew.chance_mean.value
    for method, order in orders.items():
        for rank, head in enumerate(order, 1):
            point = reached.get(HeadSet(order[:rank]))
            yield {
                "method": method,
                "layer": head.layer,
                "head": head.head,
                "rank": rank,
                "score": scores[method][head],
                "planted": None if planted is None else head in planted,
                "carries": None if planted is None else planted.get(head, 0.0),
                "max_skew": None if point is None else point.max_skew,
                "accuracy": None if point is None else point.accuracy,
                **fixed,
            }


def planted_heads(name: str, attributes: Container[str]) -> Mapping[str, Mapping[Head, float]]:
    """Attribute -> the heads in which its skew was planted, each with its share of what they carry (NaN where
    that was not measured); none for a model in which nothing was planted.
    """
    from ccs.benchmark import planted_models

    if (known := planted_models.known(name)) is None:
        return {}
    return {
        what: {head: known.shares.get(what, {}).get(head, math.nan) for head in heads}
        for what, heads in known.carries.items()
        if what in attributes
    }


if __name__ == "__main__":
    raise SystemExit(main())
