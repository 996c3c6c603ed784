"""A model's two sides, of images and of texts: embeddings with heads off, and contributions of heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import FIRST, MEAN, PROTOTYPE, TEXT, Head, HeadSet, Intervention, changes
from ccs.model.encoder import BATCH_TOKENS, TextEncoder, Tower, Trunk

TOKENIZED = 8192
"""Texts tokenized at a time."""

Rows = slice | np.ndarray
Plans = HeadSet | Head | str | Mapping[Any, Any] | Sequence[Any] | None
"""Heads as `Intervention.of` reads them, or a list of such sets."""


class Contributions(NamedTuple):
    """Direct effects of heads and the remainder [n, dim]; together they are the unit embeddings.

    `direct` is [n, L, H, dim] for all heads or [n, heads, dim] for chosen ones. Where a layer has fewer heads
    than H its rows end in zeros. Where attention pools the tokens, the effects of the last layer's heads
    include what the other heads wrote and they passed on; the remainder subtracts that once.
    """

    direct: np.ndarray
    remainder: np.ndarray


class Side:
    """One side of a model: inputs (images or texts) and the tower that embeds them.

    heads: those that are scored, by default of the last four layers; others can be switched off too.
    """

    tower: Tower

    @property
    def weights_hash(self) -> str:
        """What results are keyed by."""
        raise NotImplementedError

    @property
    def heads(self) -> HeadSet:
        """The heads of this side that are scored."""
        return self.tower.heads

    def batches(self, inputs: Any, batch_size: int | None = None) -> Iterator[tuple[Rows, Tensor | Trunk]]:
        """Bounded batches of inputs: their rows, and pixels [n, 3, s, s] or tokens' numbers [n, context]."""
        raise NotImplementedError

    def count(self, inputs: Any) -> int:
        """The number of inputs."""
        if isinstance(inputs, Image.Image | str):
            raise InputError("Images and texts must be given as a list, even if there is only one.")
        return len(inputs)

    def contributions(
        self, inputs: Any, heads: HeadSet | str | None = None, batch_size: int | None = None
    ) -> Contributions:
        """Each head's contribution to the unit embedding, and the remainder; float32 also under autocast.

        heads: only their effects are computed, in their order, and the remainder includes those of all
        others. By default all heads by layer, for which `inputs` cannot be a trunk.
        """
        return self.embed_with_contributions(inputs, [], heads, batch_size)[1]

    def embed_with_contributions(
        self,
        inputs: Any,
        ablate: Plans = None,
        heads: HeadSet | str | None = None,
        batch_size: int | None = None,
    ) -> tuple[np.ndarray, Contributions]:
        """Embeddings [plans, n, dim] with heads off, and `contributions`: one pass, two under autocast."""
        plans, single = self._plans(ablate)
        heads = None if heads is None else Intervention.of(heads)
        chosen, n, dim = self.tower.all_heads if heads is None else heads, self.count(inputs), self.tower.dim
        self.tower.require(chosen)
        embedded = np.empty((len(plans), n, dim), np.float32)
        direct = np.empty((n, len(chosen), dim), np.float32)
        remainder = np.empty((n, dim), np.float32)
        for rows, part in self.batches(inputs, batch_size):
            units, readout = self.tower.embed_and_read(part, plans, heads)
            effects, rest = self.tower.contributions(readout, heads)
            embedded[:, rows] = units.cpu().numpy()
            direct[rows], remainder[rows] = effects.cpu().numpy(), _finite(rest)
        parts = Contributions(direct if heads is not None else self._by_layer(direct), remainder)
        return embedded[0] if single else embedded, parts

    def embed(self, inputs: Any, ablate: Plans = None, batch_size: int | None = None) -> np.ndarray:
        """Unit vectors float32: [n, dim] for one HeadSet or none, [plans, n, dim] for a list."""
        plans, single = self._plans(ablate)
        out = np.empty((len(plans), self.count(inputs), self.tower.dim), np.float32)
        for rows, part in self.batches(inputs, batch_size):
            out[:, rows] = _finite(self.tower.embed(part, plans))
        return out[0] if single else out

    def at_means(
        self, heads: HeadSet | str, inputs: Any, groups: Sequence[str] | np.ndarray | None = None
    ) -> Intervention:
        """The intervention with the means over these inputs that it needs, and with prototypes of `groups`.

        groups: one text for each input [n]; prototypes weigh groups alike. Means are those of the untouched
        model. Raises InputError for prototypes without groups, and for means over texts, which differ in
        length, at other tokens than the one that is read (`T7.H3=mean@cls`).
        """
        heads = Intervention.of(heads)
        wanted = {head: change for head, change in changes(heads) if change.at}
        self.tower.require(heads)
        if self.tower.letter == TEXT and not all(one.first for one in wanted.values()):
            raise InputError(
                f"Texts differ in length: a mean over them is {FIRST}, of the token that is read."
            )
        if any(one.at == PROTOTYPE for one in wanted.values()) and groups is None:
            raise InputError(f"A {PROTOTYPE} is the mean over groups of people: give the group of each.")
        n = self.count(inputs)
        names = np.zeros(n, np.str_) if groups is None else np.asarray(groups, np.str_)
        if not wanted:
            return Intervention(heads)
        if names.shape != (n,) or not n:
            raise InputError(f"There are {len(names)} groups for {n} images; each image has one.")
        codes, sums = np.unique(names, return_inverse=True)[1], dict[Head, Tensor]()
        shares = np.eye(codes.max() + 1)[codes] / np.bincount(codes) / (codes.max() + 1)
        weights = {MEAN: np.full(n, 1 / n), PROTOTYPE: shares.sum(axis=1)}

        def add(layer: int, values: Tensor) -> Tensor:
            d = self.tower.layers[layer].head_dim
            for head in HeadSet(wanted).of_layer(layer):
                own = values[:, : 1 if wanted[head].first else None, head.head * d : head.head * d + d]
                share = torch.from_numpy(weights[wanted[head].at][rows]).to(values.device)
                part = torch.einsum("n,ntd->td", share, own.double())
                sums[head] = sums[head] + part if head in sums else part
            return values

        with torch.no_grad():
            for where, batch in self.batches(inputs):
                rows = where
                self.tower.with_values(self.tower.trunk(batch, min(wanted).layer), add)
        held = {at: {head: sums[head].float() for head in wanted if wanted[head].at == at} for at in weights}
        return Intervention(heads, held)

    def _by_layer(self, direct: np.ndarray) -> np.ndarray:
        """Effects of all heads [n, heads, dim] as [n, L, H, dim]; layers may differ in number of heads."""
        heads, tower = list(self.tower.all_heads), self.tower
        out = np.zeros((len(direct), tower.n_layers, tower.n_heads, tower.dim), np.float32)
        out[:, [head.layer for head in heads], [head.head for head in heads]] = direct
        return out

    def _plans(self, ablate: Plans) -> tuple[Sequence[HeadSet], bool]:
        if ablate is None or isinstance(ablate, HeadSet | Head | str | Mapping):
            plans, single = [Intervention.of(ablate)], True
        else:
            plans, single = [Intervention.of(plan) for plan in ablate], False
        for plan in plans:
            self.tower.require(plan)
        return plans, single


def _finite(values: Tensor) -> np.ndarray:
    """What comes out of a tower [..., dim]; InputError where it is no number, since pixels were none."""
    found = values.cpu().numpy()
    if not np.isfinite(found.sum()):
        raise InputError("Embeddings are not finite, since the pixels are not, or are too large.")
    return found


class Texts(Side):
    """The text side of a model: `model.texts`. Moments and TEXTSPAN take it where they take a model.

    Raises InputError, with the reason, where the tower of `model`, a `Model`, cannot be taken apart by head.
    """

    tower: TextEncoder

    def __init__(self, model: Any) -> None:
        self.name, self.tower, self._model = model.name, TextEncoder(model.clip), model

    @property
    def weights_hash(self) -> str:
        return str(self._model.weights_hash)

    def batches(
        self, inputs: Sequence[str], batch_size: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """The texts in bounded batches that are read at the same token: their rows, and tokens' numbers."""
        for start in range(0, self.count(inputs), TOKENIZED):
            tokens = self._model.tokenize(inputs[start : start + TOKENIZED])
            places = self.tower.read_at(tokens)
            for place in torch.unique(places).tolist():
                rows = torch.nonzero(places == place)[:, 0]
                size = batch_size or max(1, BATCH_TOKENS // (place + 1))
                for some in torch.split(rows, size):
                    yield start + some.numpy(), tokens[some]
