"""Text heads in the order of six ways to look for them: `python -m research.text_skew.comparison`.

What is done to a head: zero, its mean over the prompts (position by position, or where a text is read alone),
or a gate of the learned mask. What is to fall: the lean of `which_encoder.py`, of centered and
scaled prompts, or that of rankings, as on the image side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.analysis.bias import in_prompts
from ccs.analysis.carriers import train_gates
from ccs.analysis.evidence import group_means
from ccs.batch.pages import table
from ccs.cli.command_line import Command
from ccs.cli.options import at_least
from ccs.data import synthetic
from ccs.heads import TEXT, Head, HeadSet
from ccs.model.model import Model
from ccs_benchmark import variants
from ccs_benchmark.interventions import SQUARES
from ccs_benchmark.protocol import average_precision
from research.text_skew.__main__ import carriers_of
from research.text_skew.text_training import TELLING, family

Change = Callable[[int, Tensor], Tensor]
"""From a layer and its heads' outputs [n, tokens, H d] to others."""
Lean = Callable[[Tensor, Tensor], Tensor]
"""From unit prompts [occupations, d], and how groups differ [groups, d], to [occupations, groups]."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Compare ways to find text heads on the models that `python -m research.text_skew` has trained."""

    models: Annotated[int, at_least(1)] = 16
    """Number of models with a skew in their text encoder"""
    after: Annotated[int, at_least(0)] = 0
    """Number of first models to leave out, on which a choice was made"""
    runs: Path = Path("runs")
    """Folder that has them, in its text-skew"""


def _of_encoder(prompts: Tensor, apart: Tensor) -> Tensor:
    centered = prompts - prompts.mean(0)
    leans: Tensor = centered @ apart.T / centered.norm().clamp_min(1e-12)
    return leans


LEANS: Mapping[str, Lean] = {
    "centered and scaled": _of_encoder,
    "of rankings": lambda prompts, apart: prompts @ apart.T,
}


class Prompts:
    """A model's prompts, names in templates, embedded with what is done to its text heads."""

    def __init__(self, model: Model, names: Sequence[str], templates: Sequence[str]) -> None:
        self.heads, self.encoder = model.text_heads, model.texts.encoder
        self._shape = len(names), len(templates)
        batches = model.texts.batches(
            [template.replace("{}", name) for name in names for template in templates]
        )
        rows, self._trunks = zip(*((rows, self.encoder.trunk(part)) for rows, part in batches), strict=True)
        self._order = np.argsort(np.concatenate(rows))

    def embed(self, change: Change) -> Tensor:
        """Unit embeddings [names, d], float64."""
        units = torch.cat([self.encoder.with_values(trunk, change) for trunk in self._trunks])[self._order]
        return F.normalize(units.reshape(*self._shape, -1).mean(1), dim=-1).double().cpu()

    @torch.no_grad()
    def means(self) -> dict[int, Tensor]:
        """Layer -> the heads' mean outputs [positions, H d], counted from where a text is read."""
        sums: dict[int, Tensor] = {}
        counts = torch.zeros(self.encoder.n_tokens, 1)

        def add(layer: int, values: Tensor) -> Tensor:
            n, tokens, width = values.shape
            if layer not in sums:
                sums[layer] = torch.zeros(self.encoder.n_tokens, width).to(values)
            sums[layer][:tokens] += values.sum(0)
            if layer == min(sums):
                counts[:tokens] += n
            return values

        self.embed(add)
        return {layer: layer_sums / counts.clamp_min(1).to(layer_sums) for layer, layer_sums in sums.items()}

    @torch.no_grad()
    def with_each_head(self, values: Mapping[int, Tensor], tokens: int | None = None) -> dict[Head, Tensor]:
        """Embed the prompts with each head in turn at given outputs.

        Args:
            values: layer -> outputs, as `means` has them.
            tokens: number of first tokens that change; all by default.
        """

        def changed(head: Head) -> Change:
            d = self.encoder.layers[head.layer].head_dim
            columns = slice(head.head * d, head.head * d + d)

            def change(layer: int, passed: Tensor) -> Tensor:
                if layer == head.layer:
                    passed = passed.clone()
                    head_values = passed[:, :tokens, columns]
                    head_values[:] = values[layer][: head_values.shape[1], columns]
                return passed

            return change

        return {head: self.embed(changed(head)) for head in self.heads}


def masked(prompts: Prompts, lean: Lean, apart: Tensor) -> dict[Head, float]:
    """Score heads by how far the learned mask closes them to lower a score gap.

    Args:
        prompts: of the occupations.
        lean: from embeddings to the gaps.
        apart: directions between groups.
    """
    place = {head: number for number, head in enumerate(prompts.heads)}

    def square(gates: Tensor, _: int | None) -> Tensor:
        def gated(layer: int, passed: Tensor) -> Tensor:
            attention = prompts.encoder.layers[layer]
            gate_numbers = (place.get(Head(layer, number, TEXT)) for number in range(attention.n_heads))
            factors = torch.stack([torch.ones(()) if gate is None else gates[gate] for gate in gate_numbers])
            return passed * factors.repeat_interleave(attention.head_dim).to(passed.device)

        return SQUARES["score gap"](lean(prompts.embed(gated), apart))

    return train_gates(prompts.heads, square)


def orders(model: Model, aparts: Mapping[str, Tensor]) -> Iterator[tuple[str, str, str, list[Head]]]:
    """Rank the text heads in each way.

    Args:
        model: the model.
        aparts: attribute -> directions between groups.

    Returns:
        Attribute, intervention, statistic, and the heads in that order.
    """
    people = synthetic.bias_set("faces")
    prompts = Prompts(model, in_prompts(people), people.templates)
    means = prompts.means()
    with torch.no_grad():
        plain = prompts.embed(lambda _, values: values)
    done = {
        "zero": prompts.with_each_head(
            {layer: torch.zeros_like(layer_means) for layer, layer_means in means.items()}
        )
    }
    done |= {
        "mean": prompts.with_each_head(means),
        "mean where the text is read": prompts.with_each_head(means, 1),
    }
    for attribute, apart in aparts.items():
        for name, lean in LEANS.items():
            before = lean(plain, apart).norm()
            scores = {
                treatment: {
                    head: float(before - lean(embedded, apart).norm()) for head, embedded in by_head.items()
                }
                for treatment, by_head in done.items()
            }
            scores["learned mask"] = masked(prompts, lean, apart)
            for treatment, head_scores in scores.items():
                yield attribute, treatment, name, sorted(head_scores, key=lambda head: -head_scores[head])


def _run(args: Settings) -> None:
    def place(name: str) -> str:
        return str(args.runs / "text-skew" / f"{name}{variants.SUFFIX}")

    people, rows = synthetic.bias_set("faces"), []
    faces = variants.load(place(TELLING)).embed_images(people.images)
    means = {name: group_means(faces, groups) for name, groups in people.groups.items()}
    aparts = {name: torch.from_numpy(by_group - by_group.mean(axis=0)) for name, by_group in means.items()}
    for member in family(args.models)[args.after :]:
        truth = variants.known(place(member.name))["truth"]
        for attribute, treatment, lean, order in orders(variants.load(place(member.name)), aparts):
            first, *_ = carriers = carriers_of(truth[attribute])
            precision = average_precision(order, HeadSet(carriers))
            rows.append([treatment, lean, precision, order.index(first) + 1])
    columns = ["done to a head", "lean", "average precision", "place"]
    grouped = pd.DataFrame(rows, columns=columns).groupby(columns[:2])
    display = grouped[columns[2]].mean().map("{:.2f}".format).to_frame()
    display["first carrier first"] = grouped["place"].apply(
        lambda places: f"{(places == 1).sum()} of {len(places)}"
    )
    display["last place of it"] = grouped["place"].max()
    print(table(display.reset_index()))


main = Command(Settings, _run)

if __name__ == "__main__":
    sys.exit(main())
