"""Text heads in the order of six ways to look for them: `python -m research.text_skew.comparison`.

What is done to a head: zero, its mean over the prompts (position by position, or where a text is read alone),
or a gate of the learned mask. What is to fall: the lean of `ccs.locate.towers`, of prompts centered and
scaled, or that of rankings, as on the image side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.batch.command_line import command, option
from ccs.batch.pages import table
from ccs.benchmark import variants
from ccs.benchmark.protocol import average_precision
from ccs.heads import Head, HeadSet
from ccs.locate.ablation import SQUARES, gated, mask
from ccs.locate.towers import groups_apart
from ccs.model.model import Model
from ccs.pruning.fairness import prompted
from ccs.sets import drawn_sets
from research.text_skew.__main__ import carriers_of
from research.text_skew.text_training import TELLING, family

Change = Callable[[int, Tensor], Tensor]
Lean = Callable[[Tensor, Tensor], Tensor]
"""From unit prompts [occupations, d], and how groups differ [groups, d], to [occupations, groups]."""


@dataclass(frozen=True)
class Settings:
    """Compare ways to find text heads on the models that `python -m research.text_skew` has trained."""

    models: int = option(16, "models with a skew in their text tower", least=1)
    runs: Path = option(Path("runs"), "folder that has them, in its text-skew")


def _of_tower(prompts: Tensor, apart: Tensor) -> Tensor:
    own = prompts - prompts.mean(0)
    leans: Tensor = own @ apart.T / own.norm().clamp_min(1e-12)
    return leans


LEANS: Mapping[str, Lean] = {
    "centered and scaled": _of_tower,
    "of rankings": lambda prompts, apart: prompts @ apart.T,
}


class Prompts:
    """A model's prompts for the occupations, embedded with what is done to text heads."""

    def __init__(self, model: Model) -> None:
        people = drawn_sets.bias_set("faces")
        self.heads, self.tower = model.text_heads, model.texts.tower
        self.shape = len(people.occupations), len(people.templates)
        texts = [one.replace("{}", name) for name in prompted(people) for one in people.templates]
        batches = model.texts.batches(texts)
        rows, self.trunks = zip(*((rows, self.tower.trunk(part)) for rows, part in batches), strict=True)
        self.order = np.argsort(np.concatenate(rows))

    def embed(self, change: Change) -> Tensor:
        """Unit embeddings [occupations, d], float64."""
        units = torch.cat([self.tower.with_values(one, change) for one in self.trunks])[self.order]
        return F.normalize(units.reshape(*self.shape, -1).mean(1), dim=-1).double()

    def means(self) -> dict[int, Tensor]:
        """Layer -> the heads' mean outputs [positions, H d], counted from where a text is read."""
        sums: dict[int, Tensor] = {}
        counts: dict[int, Tensor] = {}

        def add(layer: int, values: Tensor) -> Tensor:
            n, tokens, width = values.shape
            sums.setdefault(layer, torch.zeros(self.tower.n_tokens, width))[:tokens] += values.sum(0)
            counts.setdefault(layer, torch.zeros(self.tower.n_tokens, 1))[:tokens] += n
            return values

        self.embed(add)
        return {layer: own / counts[layer].clamp_min(1) for layer, own in sums.items()}

    def each(self, tokens: int | None, means: Mapping[int, Tensor] | None) -> list[Tensor]:
        """Embeddings with each head in turn at zero, or at its means: of the first tokens, or of all."""

        def changed(head: Head) -> Change:
            d = self.tower.layers[head.layer].head_dim
            columns = slice(head.head * d, head.head * d + d)

            def change(layer: int, values: Tensor) -> Tensor:
                if layer == head.layer:
                    values = values.clone()
                    some = values[:, :tokens, columns]
                    some[:] = 0 if means is None else means[layer][: some.shape[1], columns]
                return values

            return change

        return [self.embed(changed(head)) for head in self.heads]


def masked(prompts: Prompts, lean: Lean, apart: Tensor) -> dict[Head, float]:
    """How far the learned mask closes each head when it lowers this lean."""

    def square(gates: Tensor, _: int | None) -> Tensor:
        return SQUARES["lean"](lean(prompts.embed(gated(prompts.tower, prompts.heads, gates)), apart))

    return mask(prompts.heads, square)


def orders(model: Model, aparts: Mapping[str, Tensor]) -> Iterator[tuple[str, str, str, list[Head]]]:
    """Attribute, what is done, what is to fall, and the text heads in that order."""
    prompts = Prompts(model)
    with torch.no_grad():
        plain, means = prompts.embed(lambda _, values: values), prompts.means()
        done = {"zero": prompts.each(None, None), "mean": prompts.each(None, means)}
        done["mean where the text is read"] = prompts.each(1, means)
    for attribute, apart in aparts.items():
        for name, lean in LEANS.items():
            before = lean(plain, apart).norm()
            scores = {
                what: {
                    head: float(before - lean(one, apart).norm())
                    for head, one in zip(prompts.heads, own, strict=True)
                }
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
    for one in family(args.models):
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
