"""Heads switched off in a model of the user's own, for the length of a `with` block.

What a head adds to the residual stream passes through its columns of the attention's output projection. Where
the projection is read these columns are multiplied by the head's factor, 0 for a head that is off: the head
adds nothing, later layers see that, and the projection's bias stays (the total effect, as of
`embed_images(images, off)`). The parameter itself is never written: its gradient is masked as the head is.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ccs.errors import InputError
from ccs.heads import IMAGE, TOWERS, Head, HeadSet
from ccs.intervention import Intervention
from ccs.intervention import factors as factors_of
from ccs.model.inside import layers_of, unread

_LOCK = threading.RLock()


@contextmanager
def heads_off(model: Any, heads: HeadSet | str) -> Iterator[HeadSet]:
    """Switch off heads of the towers of `model`; afterwards it is as before, to the bit.

        >>> import torch
        >>> from ccs import load
        >>> model = load("organism").clip    # an open_clip model, as create_model gives it
        >>> with heads_off(model, "L7.H1"):
        ...     features = model.encode_image(torch.zeros(1, 3, 72, 72))

    model: open_clip's CLIP, CoCa or one of its towers; transformers' CLIPModel, SiglipModel or
    MetaClip2Model, or one of their towers, with or without projection; what `ccs.load` returns; or
    transformers' LLaVA, LLaVA-OneVision, PaliGemma, Gemma 3, Idefics 3 or Qwen2.5-VL, whose image tower is
    inside. heads: names or a HeadSet, of any layer (T7.H3 is in the text tower); layers and heads count from
    0, and a pool is the layer after the last block. L9.H2=0.3 multiplies what a head writes. Blocks may be
    nested or overlap, in other threads too: a
    head is off while any of them lasts. Where a language model reads the image tower at an earlier layer
    than a head's (LLaVA at the one before the last), that head does nothing, and a warning says so.

    The weights stay whole. A model that is trained inside keeps what it learned; a head that is off gets a
    gradient of zero and stays off whatever the optimizer does; a loss may call `backward` after the block
    (under gradient checkpointing, which runs the model again, it must be inside). What is saved inside has
    all its heads (`clip-ccs export` writes a model without some). A copy made inside, as by `deepcopy` or
    DataParallel, has these heads off for as long as the block lasts.

    Raises InputError for a head that the model does not have, or a model without heads that can be told
    apart.
    """
    off = Intervention.of(heads)
    with heads_scaled(model, factors_of(off, "A block of heads_off")):
        yield off


@contextmanager
def heads_scaled(model: Any, factors: Mapping[Head, float]) -> Iterator[None]:
    """Multiply what heads of `model` write by their factors; afterwards it is as before, to the bit.

        >>> import torch
        >>> from ccs import Head, load
        >>> model = load("organism").clip
        >>> with heads_scaled(model, {Head.parse("L7.H1"): 0.3}):
        ...     features = model.encode_image(torch.zeros(1, 3, 72, 72))

    model, and the errors: as in `heads_off`. factors: 0 is off, 1 untouched; those of nested blocks multiply.
    """
    opened: list[tuple[Any, _Block]] = []
    for tower in TOWERS:
        chosen = HeadSet(factors).of_tower(tower)
        layers = layers_of(model, tower) if chosen or (tower == IMAGE and not factors) else []
        for head in chosen:
            if head.layer >= len(layers) or head.head >= layers[head.layer][0]:
                counts = ", ".join(f"{tower}{number}: {count}" for number, (count, _) in enumerate(layers))
                raise InputError(f"{head} is outside this model; heads in each layer: {counts}.")
        if tower == IMAGE and (idle := unread(model, chosen)):
            said = f"{type(model).__name__} reads its image tower before {idle}: off or on, all is the same."
            warnings.warn(said, stacklevel=4)
        for number in chosen.layers:
            count, projection = layers[number]
            each = torch.tensor([factors.get(Head(number, head, tower), 1.0) for head in range(count)])
            weight = projection.weight
            columns = each.repeat_interleave(weight.shape[1] // count).to(weight.device)
            opened.append((projection, _Block(columns)))
    try:
        for projection, block in opened:
            _open(projection, block)
        yield
    finally:
        for projection, block in opened:
            _close(projection, block)


@dataclass(eq=False)
class _Block:
    """The factors [H d] by which a `with` block multiplies a projection's inputs; none once it is over."""

    columns: Tensor | None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Block:
        return self


class _Masked(nn.Module):
    """A projection inside a block. Its class alone is another, so parameters, names and optimizers stay."""

    _ccs_blocks: list[_Block]

    def masked(self, values: Tensor) -> Tensor:
        """Values [..., H d] times the factors of the blocks that last."""
        for block in tuple(self.__dict__.get("_ccs_blocks", ())):
            if (columns := block.columns) is not None:
                values = values * columns.to(values.device, values.dtype)
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> _Masked:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled with all heads."""
        state = {name: value for name, value in self.__dict__.items() if name != "_ccs_blocks"}
        return object.__new__, (type(self).__bases__[1],), state


class _MaskedWeight(_Masked):
    """For a projection whose weight is a parameter: nn.MultiheadAttention reads it and calls no module."""

    @property
    def weight(self) -> Tensor:
        whole = self._parameters.get("weight")
        return self.masked(self.__dict__["weight"] if whole is None else whole)

    @weight.setter
    def weight(self, values: Tensor) -> None:  # DataParallel's replicas hold theirs so
        self.__dict__["weight"] = values


class _MaskedInput(_Masked):
    """For a projection made of several modules, as an adapter (LoRA) is."""

    def forward(self, values: Tensor, *args: Any, **keywords: Any) -> Any:
        return super().forward(self.masked(values), *args, **keywords)


@cache
def _masked_class(plain: Any, by_weight: bool) -> type:
    return type(plain.__name__, (_MaskedWeight if by_weight else _MaskedInput, plain), {})


def _open(projection: nn.Module, block: _Block) -> None:
    with _LOCK:
        projection.__dict__.setdefault("_ccs_blocks", []).append(block)
        if not isinstance(projection, _Masked):
            plain: Any = type(projection)
            projection.__class__ = _masked_class(plain, "weight" in projection._parameters)


def _close(projection: nn.Module, block: _Block) -> None:
    with _LOCK:
        block.columns = None
        blocks = projection.__dict__.get("_ccs_blocks", [])
        blocks[:] = [one for one in blocks if one.columns is not None]
        if not blocks and isinstance(projection, _Masked):
            projection.__class__ = type(projection).__bases__[1]
            projection.__dict__.pop("_ccs_blocks", None)
