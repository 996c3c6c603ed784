"""A model's two sides, images and texts: embeddings under ablation, and contributions of heads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import MEAN, TEXT, Head, Heads, HeadSet, Intervention, changes
from ccs.model.encoder import BATCH_TOKENS, Encoder, Trunk
from ccs.model.encoders import decompose_text_encoder
from ccs.model.inputs import as_sequence, batch_length

TOKENIZED = 8192
"""Texts tokenized at a time."""

Rows = slice | np.ndarray
AblationSets = HeadSet | Head | str | Mapping[Any, Any] | Sequence[Any] | None
"""Heads as `Intervention.from_heads` reads them, or a list of such sets."""


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
        heads = None if heads is None else Intervention.from_heads(heads)
        chosen, n, dim = self.encoder.all_heads if heads is None else heads, len(inputs), self.encoder.dim
        self.encoder.require_heads(chosen)
        embeddings = np.empty((len(ablation_sets), n, dim), np.float32)
        direct: np.ndarray = np.empty((n, len(chosen), dim), np.float32)
        remainder = np.empty((n, dim), np.float32)
        for rows, part in self.batches(inputs, batch_size):
            units, readout = self.encoder.embed_and_read(part, ablation_sets, heads)
            effects, others = self.encoder.contributions(readout, heads)
            embeddings[:, rows] = units.cpu().numpy()
            direct[rows], remainder[rows] = effects.cpu().numpy(), _finite(others)
        if heads is None:  # by layer; layers may differ in number of heads
            by_layer = np.zeros((n, self.encoder.n_layers, self.encoder.n_heads, dim), np.float32)
            by_layer[:, [head.layer for head in chosen], [head.head for head in chosen]] = direct
            direct = by_layer
        return embeddings[0] if single else embeddings, Contributions(direct, remainder)

    def embed(self, inputs: Any, ablate: AblationSets = None, batch_size: int | None = None) -> np.ndarray:
        """Compute unit embeddings, float32.

        Args:
            inputs: Images or texts.
            ablate: Heads, as `Intervention.from_heads` reads them, or a list of such sets.
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

    @torch.no_grad()
    def at_means(self, heads: Heads, inputs: Any, weights: np.ndarray | None = None) -> Intervention:
        """Attach the mean outputs that an intervention needs, measured on the untouched model.

        Args:
            heads: The intervention, such as "L10.H0=mean".
            inputs: The images or texts over which means are taken. Texts differ in length, so a mean over
                texts is taken only at the token that is read.
            weights: The weight of each input [n] in the means, which sum to 1; by default they are equal.

        Returns:
            The intervention with its means.

        Raises:
            InputError: If the encoder lacks a head, or there are no inputs.
        """
        inputs, heads, encoder = as_sequence(inputs), Intervention.from_heads(heads), self.encoder
        encoder.require_heads(heads)
        replaced = HeadSet(head for head, change in changes(heads) if change.replacement == MEAN)
        if not replaced:
            return Intervention(heads)
        if not len(inputs):
            raise InputError("A mean needs at least one image or text.")
        shares = np.full(len(inputs), 1 / len(inputs)) if weights is None else weights
        sums: dict[Head, Tensor] = defaultdict(lambda: torch.zeros((), device=encoder.device))
        first, last = replaced.layers[0], replaced.layers[-1]
        tokens = slice(0, 1 if encoder.letter == TEXT else None)
        for rows, batch in self.batches(inputs):
            trunk, share = encoder.trunk(batch, first), torch.from_numpy(shares[rows]).to(encoder.device)
            for layer in range(first, last + 1):
                values, d = encoder.head_outputs(trunk), encoder.layers[layer].head_dim
                for head in replaced.of_layer(layer):
                    outputs = values[:, tokens, head.head * d : head.head * d + d].double()
                    sums[head] = sums[head] + torch.einsum("n,ntd->td", share, outputs)
                trunk = encoder.next_trunk(trunk, values)
        means = {head: total.float() for head, total in sums.items()}
        return Intervention(heads, {**(heads.means or {}), MEAN: means})

    def _ablation_sets(self, ablate: AblationSets) -> tuple[Sequence[HeadSet], bool]:
        """Return the sets to ablate, and whether `ablate` is a single set and not a list."""
        single = ablate is None or isinstance(ablate, HeadSet | Head | str | Mapping)
        if not single and not isinstance(ablate, Iterable):
            raise InputError(f"Heads are written as in 'L8.H11 L9.H2=0.3'; {ablate!r} names none.")
        ablation_sets = [Intervention.from_heads(heads) for heads in ([ablate] if single else ablate)]  # type: ignore
        for heads in ablation_sets:
            self.encoder.require_heads(heads)
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

    def __init__(self, model: Any) -> None:
        parts, self._read_at = decompose_text_encoder(model.clip)
        self.name, self._model = model.name, model
        self.encoder = Encoder(model.clip, parts=parts, letter=TEXT)

    @property
    def weights_hash(self) -> str:
        """Hash of the model's weights."""
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
            places = self._read_at(tokens)
            for place in torch.unique(places).tolist():
                rows = torch.nonzero(places == place)[:, 0]
                size = batch_length(batch_size, max(1, BATCH_TOKENS // (place + 1)))
                for batch_rows in torch.split(rows, size):
                    yield start + batch_rows.numpy(), tokens[batch_rows]
