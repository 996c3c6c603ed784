"""The forward pass of a CLIP encoder with ablated heads; ablation sets share the work they have in common.

It is written out over the parts of an encoder (`ccs.model.encoders`), without hooks, and no weight changes,
so any number of threads may run different ablation sets on one encoder. A head is ablated by setting its
output to zero before the output projection (an `Intervention` scales or replaces it); later layers react to
that. Only the parts know the encoder's family.

Shapes: n images or texts, T tokens, W width, L layers, H heads of dimension d in a layer, D embedding
dimension.
"""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import ENCODERS, IMAGE, HeadSet
from ccs.model.encoders import decompose_image_encoder
from ccs.model.encoders.decomposition import Decomposition, Readout, Record, autocast, without_tf32
from ccs.model.encoders.parts import Layer
from ccs.model.encoders.readouts import Parts
from ccs.model.interception import changed_values, require_heads

NO_HEADS = HeadSet()
BATCH_TOKENS = 8_192
"""Tokens of all images of a pass on a CPU, by default."""
ChosenLayers = Collection[int] | Literal["all"]


@dataclass(frozen=True)
class Trunk:
    """Activations [n, T, W] that enter `layer`, shared by all ablation sets that touch no earlier layer."""

    tokens: Tensor
    layer: int

    @classmethod
    def joined(cls, parts: Sequence[Trunk]) -> Trunk:
        """Return one trunk from those of one or more batches."""
        return cls(torch.cat([part.tokens for part in parts]), parts[0].layer)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Trunk:
        return Trunk(self.tokens[rows], self.layer)


class Encoder(Decomposition):
    """An encoder of one model.

    Args:
        module: The open_clip module of an image encoder. Its weights are read and never written.
        autocast: The type (bfloat16, float16) in which `embed` and `trunk` run; contributions are always
            float32.
        chosen: The layers whose heads are scored, "all" or their numbers; by default the last four blocks and
            the pool.
        parts: The parts of another module, such as a text encoder.
        letter: The encoder's letter in the names of its heads.

    Raises:
        InputError: If a layer does not exist, or the module can't be decomposed by head, with the reason.
    """

    def __init__(
        self,
        module: Any,
        autocast: torch.dtype | None = None,
        chosen: ChosenLayers | None = None,
        parts: Parts | None = None,
        letter: str = IMAGE,
    ) -> None:
        parts = decompose_image_encoder(module) if parts is None else parts
        super().__init__(parts, letter)
        self._module = module
        self._autocast = autocast
        self._stem = parts.stem
        self.n_heads = max(layer.n_heads for layer in self.layers)
        self.head_dim = max(layer.head_dim for layer in self.layers)
        self.width, self.image_size = parts.width, parts.image_size
        self.n_tokens, self.prefix = parts.tokens, parts.prefix
        if chosen is None or (isinstance(chosen, str) and chosen == "all"):
            chosen = range(0 if chosen else max(0, self._n_blocks - 4), self.n_layers)
        layers = tuple(chosen) if isinstance(chosen, Iterable) else (chosen,)
        if not layers or not set(layers) <= set(range(self.n_layers)):
            names = ", ".join(map(str, layers)) or "none"
            raise InputError(f"The layers are {names}, but must be some of 0 to {self.n_layers - 1}, or all.")
        self.chosen_layers = frozenset(layers)
        self.first_prunable_layer = min(self.chosen_layers)

    @property
    def heads(self) -> HeadSet:
        """The heads of the chosen layers, by default those of the last four blocks and the pool."""
        return HeadSet(head for head in self.all_heads if head.layer in self.chosen_layers)

    @property
    def attention_bytes(self) -> int:
        """The most bytes that attention takes in one pass: each head's scores and weights, tokens squared."""
        images = max(1, BATCH_TOKENS // self.n_tokens)
        return 2 * 4 * images * self.n_heads * self.n_tokens**2

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return torch.device(next(self._module.parameters()).device)

    def require_heads(self, heads: HeadSet) -> None:
        """Raise InputError if a head is not in this encoder."""
        for head in heads:
            if head.encoder != self.letter:
                theirs, ours = ENCODERS[head.encoder], ENCODERS[self.letter]
                raise InputError(f"{head} is a head of the {theirs} encoder, not of the {ours} encoder.")
        require_heads(heads, [layer.n_heads for layer in self.layers])

    @torch.no_grad()
    def embed(self, images: Tensor | Trunk, ablation_sets: Sequence[HeadSet] = (NO_HEADS,)) -> Tensor:
        """Compute unit embeddings under ablation.

        Ablation sets form a tree: they share one pass up to the layer in which they differ. Memory is that of
        one path.

        Args:
            images: Pixels [n, 3, s, s], token numbers [n, T] of texts, or a trunk, in which case no set may
                touch a layer below the trunk's.
            ablation_sets: The sets of heads to ablate.

        Returns:
            [sets, n, D], float32.
        """
        with self._precision():
            return self._embed(images, ablation_sets)[0]

    @torch.no_grad()
    def trunk(self, images: Tensor | Trunk, layer: int | None = None) -> Trunk:
        """Compute the activations that enter a layer.

        Args:
            images: As in `embed`.
            layer: The layer, by default the first of the chosen layers.
        """
        layer = self.first_prunable_layer if layer is None else layer
        with self._precision():
            return Trunk(self._tokens(images, layer), layer)

    @torch.no_grad()
    def attention(self, images: Tensor | Trunk, layer: int) -> Tensor:
        """Compute the attention [n, H, T] of one layer's heads.

        It is that of the query that is read out, the CLS token's or the pool's; otherwise the mean over all
        queries.

        Args:
            images: As in `embed`.
            layer: The layer.
        """
        with self._precision():
            x = self._tokens(images, layer)
            return self.layers[layer].attention_weights(x, self._readout.first_only).float()

    @torch.no_grad()
    def head_outputs(self, trunk: Trunk) -> Tensor:
        """Compute the outputs [n, T, H d], before the projection, of the heads of a trunk's layer."""
        with self._precision():
            return self._values(trunk.tokens.to(self.device), trunk.layer)

    @torch.no_grad()
    def next_trunk(self, trunk: Trunk, outputs: Tensor) -> Trunk:
        """Compute the trunk of the next layer.

        Args:
            trunk: The trunk.
            outputs: The heads' outputs [n, T, H d], as `head_outputs` returns them, or their replacement.
        """
        with self._precision():
            tokens = self.layers[trunk.layer].finish(trunk.tokens.to(self.device), outputs)
            return Trunk(tokens, trunk.layer + 1)

    def with_values(
        self,
        images: Trunk,
        change: Callable[[int, Tensor], Tensor],
        values: Callable[[Layer, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Compute unit embeddings [n, D] float32 with the heads' outputs replaced; gradients flow.

        Args:
            images: The trunk to start from.
            change: Called for each layer from the trunk's on, with its number and its values [n, T, H d]: the
                heads' outputs side by side before the output projection, in the last layer only of the tokens
                that are read. It returns the values to use instead.
            values: Computes the values of all tokens from the tokens [n, T, W] that enter a layer.
        """
        x = images.tokens.to(self.device)
        with self._precision():
            for layer in range(images.layer, self.n_layers):
                computed = self._values(x, layer, computed=values)
                x = self.layers[layer].finish(x, change(layer, computed))
            return F.normalize(self._readout.project(x).float(), dim=-1)

    def _embed(
        self, images: Tensor | Trunk, ablation_sets: Sequence[HeadSet], record: Record | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the unit embeddings [sets, n, D], and their lengths [sets, n] before normalization."""
        for heads in ablation_sets:
            self.require_heads(heads)
        changed = [head.layer for heads in ablation_sets for head in heads]
        layer = min([self.n_layers - 1, *changed, *(record.layers if record else ())])
        out = torch.empty(len(ablation_sets), len(images), self.dim, device=self.device)
        if ablation_sets and len(images):
            x = self._tokens(images, layer)
            self._descend(x, layer, list(enumerate(ablation_sets)), out, record)
        return F.normalize(out, dim=-1), out.norm(dim=-1)

    def _descend(
        self,
        x: Tensor,
        layer: int,
        ablation_sets: list[tuple[int, HeadSet]],
        out: Tensor,
        record: Record | None,
    ) -> None:
        """Write the embeddings of `ablation_sets`, which agree below `layer`, to their rows of `out`."""
        while layer < self.n_layers:
            # Up to the output projection a layer is the same for all ablation sets that agree below it.
            part, values = self.layers[layer], self._values(x, layer, record)
            branches: dict[HeadSet, list[tuple[int, HeadSet]]] = defaultdict(list)
            for index, heads in ablation_sets:
                branches[heads.of_layer(layer)].append((index, heads))
            *others, (off, ablation_sets) = branches.items()
            for heads, members in others:
                after = part.finish(x, changed_values(values, heads, part.n_heads))
                self._descend(after, layer + 1, members, out, None if heads else record)
            x = part.finish(x, changed_values(values, off, part.n_heads))
            record = None if off else record
            layer += 1
        if record is not None and self._readout.pool is None:
            record.last = x
        out[[index for index, _ in ablation_sets]] = self._readout.project(x).float()

    def _tokens(self, images: Tensor | Trunk, layer: int) -> Tensor:
        """Return tokens [n, T, W] as they enter `layer`; InputError if a trunk begins above it."""
        if isinstance(images, Trunk):
            x, first = images.tokens.to(self.device), images.layer
            if layer < first:
                raise InputError(f"Layer {layer} lies below layer {first}, where this trunk ends.")
        else:
            with without_tf32():
                inputs = images.to(self.device)  # token ids stay integers
                x, first = self._stem(inputs.float() if self.letter == IMAGE else inputs).float(), 0
        for below in range(first, layer):
            x = self.layers[below].finish(x, self._values(x, below))
        return x

    def _values(
        self,
        x: Tensor,
        layer: int,
        record: Record | None = None,
        computed: Callable[[Layer, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the heads' outputs [n, T, H d]; only the first token's if no other is read afterwards."""
        alone = self._readout.first_only and layer == self._n_blocks - 1
        part = self.layers[layer]
        values = part.unprojected_outputs(x, alone) if computed is None else computed(part, x)
        values = self.ablate_outputs(values, layer)
        if record is not None:
            pool = layer == self._n_blocks
            if pool:
                record.last, record.pooled = x, part.finish(x, values)
            if layer in record.layers:
                if record.entering is not None:
                    record.entering[layer] = x
                coordinates = part.account(values)
                record.values[layer] = coordinates if pool else self._readout.pool_tokens(coordinates).clone()
        return values

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        return autocast(self.device.type, self._autocast)

    def ablated(self, heads: HeadSet) -> Self:
        """Return this encoder with heads ablated in all that it computes; InputError for heads it lacks."""
        self.require_heads(heads)
        encoder = copy.copy(self)
        encoder._ablated = heads
        return encoder

    def in_float32(self) -> Self:
        """Return this encoder without autocast."""
        exact = copy.copy(self)
        exact._autocast = None
        return exact

    @torch.no_grad()
    def contributions_of(self, other: Self, readout: Readout, heads: HeadSet) -> Tensor:
        """Compute contributions [n, heads, D] of heads of another encoder, in this encoder's place.

        Args:
            other: The encoder whose layers replace this one's, one at a time.
            readout: This encoder's read-out, with the tokens that enter each layer.
            heads: The heads.
        """
        mixed, record = copy.copy(self), Record(readout.entering)
        mixed.layers = other.layers
        with autocast(self.device.type, None):
            for layer, x in readout.entering.items():
                mixed._values(x, layer, record)
        return mixed.contributions(replace(readout, values=record.values), heads)[0]

    @torch.no_grad()
    def embed_and_read(
        self,
        images: Tensor | Trunk,
        ablation_sets: Sequence[HeadSet] = (),
        heads: HeadSet | None = None,
        entering: bool = False,
    ) -> tuple[Tensor, Readout]:
        """Compute `embed` and the `Readout` of the same images: one pass for both, or two under autocast.

        Args:
            images: At least one image or text, as in `embed`.
            ablation_sets: As in `embed`; the read-out is of the untouched model, always in float32.
            heads: The heads whose contributions will be computed, all by default.
            entering: Keep the tokens that enter their layers, for `by_token`.
        """
        layers = range(self.n_layers) if heads is None else heads.layers
        record = Record(layers, {} if entering else None)
        with autocast(self.device.type, None):
            if self._autocast is None:
                embedded, norms = self._embed(images, [*ablation_sets, NO_HEADS], record)
            else:
                unit, norms = self._embed(images, [NO_HEADS], record)
                embedded = torch.cat([self.embed(images, ablation_sets), unit])
            readout = Readout(
                values=record.values,
                tokens=self._readout.pool_tokens(record.last),
                routes=self._routes(record.last, record.pooled),
                norm=norms[-1],
                unit=embedded[-1],
                entering=record.entering or {},
            )
        return embedded[:-1], readout
