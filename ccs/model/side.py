"""A model's two sides, images and texts: embeddings under ablation, and contributions of heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import CLS_ONLY, MEAN, PROTOTYPE, TEXT, Head, Heads, HeadSet, Intervention, changes
from ccs.model.encoder import BATCH_TOKENS, Encoder, TextEncoder, Trunk
from ccs.model.inputs import as_sequence, batch_length

TOKENIZED = 8192
"""Texts tokenized at a time."""

Rows = slice | np.ndarray
AblationSets = HeadSet | Head | str | Mapping[Any, Any] | Sequence[Any] | None
"""Heads as `Intervention.of` reads them, or a list of such sets."""


class Contributions(NamedTuple):
    """The direct effects of heads, and the remainder; together they are the unit embeddings.

    Attributes:
        direct: [n, L, H, dim] for all heads, [n, heads, dim] for chosen ones. If a layer has fewer heads than
            H, its rows end in zeros. If attention pools the tokens, the effects of the last layer's heads
            include the outputs of other heads that they passed on; the remainder subtracts these once.
        remainder: [n, dim].
    """

    direct: np.ndarray
    remainder: np.ndarray


class Side:
    """One side of a model: inputs (images or texts) and the encoder that embeds them."""

    encoder: Encoder

    @property
    def weights_hash(self) -> str:
        """The hash that results are keyed by."""
        raise NotImplementedError

    @property
    def heads(self) -> HeadSet:
        """The heads that are scored, by default those of the last four layers; others can be ablated too."""
        return self.encoder.heads

    def batches(self, inputs: Any, batch_size: int | None = None) -> Iterator[tuple[Rows, Tensor | Trunk]]:
        """Yield bounded batches: their rows, and pixels [n, 3, s, s] or token numbers [n, context].

        Args:
            inputs: Images or texts.
            batch_size: Inputs in a batch.
        """
        raise NotImplementedError

    def contributions(
        self, inputs: Any, heads: Heads | None = None, batch_size: int | None = None
    ) -> Contributions:
        """Compute each head's contribution to the unit embeddings, and the remainder, always in float32.

        Args:
            inputs: Images or texts. Without `heads` they can't be a trunk.
            heads: The heads whose contributions are computed, in their order; the remainder includes those of
                all others. By default all heads, by layer.
            batch_size: Inputs in a batch.
        """
        return self.embed_with_contributions(inputs, [], heads, batch_size)[1]

    def embed_with_contributions(
        self,
        inputs: Any,
        ablate: AblationSets = None,
        heads: Heads | None = None,
        batch_size: int | None = None,
    ) -> tuple[np.ndarray, Contributions]:
        """Compute `embed` and `contributions` of the untouched model: one pass, two under autocast.

        Args:
            inputs: Images or texts.
            ablate: As in `embed`.
            heads: As in `contributions`.
            batch_size: Inputs in a batch.
        """
        inputs = as_sequence(inputs)
        ablation_sets, single = self._ablation_sets(ablate)
        heads = None if heads is None else Intervention.of(heads)
        chosen, n, dim = self.encoder.all_heads if heads is None else heads, len(inputs), self.encoder.dim
        self.encoder.require(chosen)
        embeddings = np.empty((len(ablation_sets), n, dim), np.float32)
        direct = np.empty((n, len(chosen), dim), np.float32)
        remainder = np.empty((n, dim), np.float32)
        for rows, part in self.batches(inputs, batch_size):
            units, readout = self.encoder.embed_and_read(part, ablation_sets, heads)
            effects, others = self.encoder.contributions(readout, heads)
            embeddings[:, rows] = units.cpu().numpy()
            direct[rows], remainder[rows] = effects.cpu().numpy(), _finite(others)
        parts = Contributions(direct if heads is not None else self._by_layer(direct), remainder)
        return embeddings[0] if single else embeddings, parts

    def embed(self, inputs: Any, ablate: AblationSets = None, batch_size: int | None = None) -> np.ndarray:
        """Compute unit embeddings, float32.

        Args:
            inputs: Images or texts.
            ablate: Heads, as `Intervention.of` reads them, or a list of such sets.
            batch_size: Inputs in a batch.

        Returns:
            [n, dim], or [sets, n, dim] for a list of ablation sets.
        """
        inputs = as_sequence(inputs)
        ablation_sets, single = self._ablation_sets(ablate)
        embeddings = np.empty((len(ablation_sets), len(inputs), self.encoder.dim), np.float32)
        for rows, part in self.batches(inputs, batch_size):
            embeddings[:, rows] = _finite(self.encoder.embed(part, ablation_sets))
        return embeddings[0] if single else embeddings

    def at_means(
        self, heads: Heads, inputs: Any, groups: Sequence[str] | np.ndarray | None = None
    ) -> Intervention:
        """Attach the mean outputs that an intervention needs, measured on the untouched model.

        Args:
            heads: The intervention, such as "L10.H0=mean L9.H2=prototype".
            inputs: The images or texts over which means are taken.
            groups: The group of each input [n], for prototypes, which weigh groups alike.

        Returns:
            The intervention with its means.

        Raises:
            InputError: If a prototype has no groups, or a mean over texts is not of the token that is read
                (`T7.H3=mean@cls`): texts differ in length.
        """
        inputs, heads = as_sequence(inputs), Intervention.of(heads)
        replaced = {
            head: change for head, change in changes(heads) if change.replacement and not change.attribute
        }
        self.encoder.require(heads)
        if self.encoder.letter == TEXT and not all(change.cls_only for change in replaced.values()):
            raise InputError(
                f"Texts differ in length: a mean over them is {CLS_ONLY}, of the token that is read."
            )
        if any(change.replacement == PROTOTYPE for change in replaced.values()) and groups is None:
            raise InputError(f"A {PROTOTYPE} is the mean over groups of people: give the group of each.")
        n = len(inputs)
        names = np.zeros(n, np.str_) if groups is None else np.asarray(groups, np.str_)
        if not replaced:
            return Intervention(heads)
        if names.shape != (n,) or not n:
            raise InputError(f"There are {len(names)} groups for {n} images; each image has one.")
        codes = np.unique(names, return_inverse=True)[1]
        shares = np.eye(codes.max() + 1)[codes] / np.bincount(codes) / (codes.max() + 1)
        weights = {MEAN: np.full(n, 1 / n), PROTOTYPE: shares.sum(axis=1)}
        sums: dict[Head, Tensor] = {}

        def add(layer: int, values: Tensor) -> Tensor:
            d = self.encoder.layers[layer].head_dim
            for head in HeadSet(replaced).of_layer(layer):
                tokens = slice(0, 1 if replaced[head].cls_only else None)
                outputs = values[:, tokens, head.head * d : head.head * d + d]
                weight = torch.from_numpy(weights[replaced[head].replacement][rows]).to(values.device)
                part = torch.einsum("n,ntd->td", weight, outputs.double())
                sums[head] = sums[head] + part if head in sums else part
            return values

        with torch.no_grad():
            for batch_rows, batch in self.batches(inputs):
                rows = batch_rows
                self.encoder.with_values(self.encoder.trunk(batch, min(replaced).layer), add)
        means = {
            at: {head: sums[head].float() for head in replaced if replaced[head].replacement == at}
            for at in weights
        }
        return Intervention(heads, {**(Intervention(heads).means or {}), **means})

    def _by_layer(self, direct: np.ndarray) -> np.ndarray:
        """Effects of all heads [n, heads, dim] as [n, L, H, dim]; layers may differ in number of heads."""
        heads, encoder = list(self.encoder.all_heads), self.encoder
        effects = np.zeros((len(direct), encoder.n_layers, encoder.n_heads, encoder.dim), np.float32)
        effects[:, [head.layer for head in heads], [head.head for head in heads]] = direct
        return effects

    def _ablation_sets(self, ablate: AblationSets) -> tuple[Sequence[HeadSet], bool]:
        """The sets to ablate, one if `ablate` is no list, and whether it is none."""
        single = ablate is None or isinstance(ablate, HeadSet | Head | str | Mapping)
        if not single and not isinstance(ablate, Iterable):
            raise InputError(f"Heads are written as in 'L8.H11 L9.H2=0.3'; {ablate!r} names none.")
        ablation_sets = [Intervention.of(heads) for heads in ([ablate] if single else ablate)]  # type: ignore
        for heads in ablation_sets:
            self.encoder.require(heads)
        return ablation_sets, single


def _finite(values: Tensor) -> np.ndarray:
    """Return an encoder's output [..., dim] as an array; InputError if it isn't finite."""
    output = values.cpu().numpy()
    if not np.isfinite(output.sum()):
        raise InputError("Embeddings are not finite, since the pixels are not, or are too large.")
    return output


class Texts(Side):
    """The text side of a model, `model.texts`. Head statistics and TEXTSPAN take it in place of a model.

    Args:
        model: The `Model`.

    Raises:
        InputError: If the heads of the model's text encoder are unknown, with the reason.
    """

    encoder: TextEncoder

    def __init__(self, model: Any) -> None:
        self.name, self.encoder, self._model = model.name, TextEncoder(model.clip), model

    @property
    def weights_hash(self) -> str:
        return str(self._model.weights_hash)

    def batches(
        self, inputs: Sequence[str], batch_size: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield bounded batches of texts that are read at the same token: their rows, and token numbers.

        Args:
            inputs: Texts.
            batch_size: Texts in a batch.
        """
        inputs = as_sequence(inputs)
        for start in range(0, len(inputs), TOKENIZED):
            tokens = self._model.tokenize(inputs[start : start + TOKENIZED])
            places = self.encoder.read_at(tokens)
            for place in torch.unique(places).tolist():
                rows = torch.nonzero(places == place)[:, 0]
                size = batch_length(batch_size, max(1, BATCH_TOKENS // (place + 1)))
                for batch_rows in torch.split(rows, size):
                    yield start + batch_rows.numpy(), tokens[batch_rows]
