"""Text heads in the order of six ways to look for them: `python -m research.text_skew.comparison`.

What is done to a head: zero, its mean over the prompts (position by position, or where a text is read alone),
or a gate of the learned mask. What is to fall: the lean of `ccs.locate.towers`, of prompts centered and
scaled, or that of rankings, as on the image side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from ccs.batch.command_line import command, option
from ccs.batch.pages import table
from ccs.benchmark import variants
from ccs.benchmark.protocol import average_precision
from ccs.heads import Head, HeadSet
from ccs.locate.ablation import SQUARES, gated, mask
from ccs.locate.towers import Prompts, groups_apart
from ccs.model.model import Model
from ccs.pruning.fairness import prompted
from ccs.sets import drawn_sets
from research.text_skew.__main__ import carriers_of
from research.text_skew.text_training import TELLING, family

Lean = Callable[[Tensor, Tensor], Tensor]
"""From unit prompts [occupations, d], and how groups differ [groups, d], to [occupations, groups]."""


@dataclass(frozen=True)
class Settings:
    """Compare ways to find text heads on the models that `python -m research.text_skew` has trained."""

    models: int = option(16, "models with a skew in their text tower", least=1)
    after: int = option(0, "leave out the first so many, on which a choice was made", least=0)
    runs: Path = option(Path("runs"), "folder that has them, in its text-skew")


def _of_tower(prompts: Tensor, apart: Tensor) -> Tensor:
    own = prompts - prompts.mean(0)
    leans: Tensor = own @ apart.T / own.norm().clamp_min(1e-12)
    return leans


LEANS: Mapping[str, Lean] = {
    "centered and scaled": _of_tower,
    "of rankings": lambda prompts, apart: prompts @ apart.T,
}


def masked(prompts: Prompts, lean: Lean, apart: Tensor) -> dict[Head, float]:
    """How far the learned mask closes each head when it lowers this lean."""

    def square(gates: Tensor, _: int | None) -> Tensor:
        return SQUARES["lean"](lean(prompts.embed(gated(prompts.tower, prompts.heads, gates)), apart))

    return mask(prompts.heads, square)


def orders(model: Model, aparts: Mapping[str, Tensor]) -> Iterator[tuple[str, str, str, list[Head]]]:
    """Attribute, what is done, what is to fall, and the text heads in that order."""
    people = drawn_sets.bias_set("faces")
    prompts = Prompts(model, prompted(people), people.templates)
    means = prompts.means()
    with torch.no_grad():
        plain = prompts.embed(lambda _, values: values)
    done = {"zero": prompts.each({layer: torch.zeros_like(own) for layer, own in means.items()})}
    done |= {"mean": prompts.each(means), "mean where the text is read": prompts.each(means, 1)}
    for attribute, apart in aparts.items():
        for name, lean in LEANS.items():
            before = lean(plain, apart).norm()
            scores = {
                what: {head: float(before - lean(one, apart).norm()) for head, one in own.items()}
                for what, own in done.items()
            }
            scores["learned mask"] = masked(prompts, lean, apart)
            for what, own in scores.items():
                yield attribute, what, name, sorted(own, key=lambda head: -own[head])


def _run(args: Settings) -> None:
    def place(name: str) -> str:
        return str(args.runs / "text-skew" / f"{name}{variants.SUFFIX}")

    people, rows = drawn_sets.bias_set("faces"), []
    faces = variants.load(place(TELLING)).embed_images(people.images)
    aparts = {name: torch.from_numpy(groups_apart(faces, groups)) for name, groups in people.groups.items()}
    for one in family(args.models)[args.after :]:
        truth = variants.known(place(one.name))["truth"]
        for attribute, what, lean, order in orders(variants.load(place(one.name)), aparts):
            first, *_ = carriers = carriers_of(truth[attribute])
            precision = average_precision(order, HeadSet(carriers))
            rows.append([what, lean, precision, order.index(first) + 1])
    columns = ["done to a head", "lean", "average precision", "place"]
    found = pd.DataFrame(rows, columns=columns).groupby(columns[:2])
    shown = found[columns[2]].mean().map("{:.2f}".format).to_frame()
    shown["first carrier first"] = found["place"].apply(
        lambda places: f"{(places == 1).sum()} of {len(places)}"
    )
    shown["last place of it"] = found["place"].max()
    print(table(shown.reset_index()))


main = command(Settings, _run)

if __name__ == "__main__":
    sys.exit(main())
