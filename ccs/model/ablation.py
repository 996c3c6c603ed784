"""Ablate heads of a model that someone else built and runs, for the length of a `with` block.

A head's output is one slice of the input of its attention's output projection. That slice is multiplied or
replaced while the block lasts (`ccs.model.interception`), so a head with factor 0 adds nothing, later layers
react to that, and the projection's bias stays: the total effect, as of `Model.embed_images(images, heads)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ccs.errors import InputError
from ccs.heads import ENCODERS, IMAGE, MEAN, TEXT, Head, HeadChange, HeadSet, Intervention, changes
from ccs.model.interception import Ablation, begin, bypassed, end, projection_name
from ccs.model.structure import Location, is_text_encoder, locations, unread_heads, unwrapped


@contextmanager
def ablate(
    model: Any, heads: HeadSet | Head | str | Mapping[Head, HeadChange | float] | Iterable[Head | str]
) -> Iterator[HeadSet]:
    """Ablate heads of `model` inside a `with` block; afterward the model is as before.

    Parameters are never touched. Train, shard (FSDP), adapt (LoRA), quantize, or save the model inside the
    block as you would outside: it keeps what it learns, an ablated head gets a gradient of zero and stays
    ablated, and what you save has all its heads (`clip-ccs export` writes a model without some). `backward`
    may come after the block, except under gradient checkpointing, which runs the forward pass again.

    Blocks may be nested or overlap, also across threads: a head is ablated while any of them lasts, and
    factors multiply. A copy made inside (`deepcopy`, DataParallel) stays ablated until the block ends.

    The first forward pass in the block is checked. If it doesn't run through an ablated head (a fused,
    scripted, or exported copy ran instead), it raises InputError.

    Args:
        model: An open_clip model (CLIP, CoCa) or one of its encoders; a timm Vision Transformer; a model of
            transformers built on CLIP or SigLIP, or one of its encoders (docs/models.md lists them); a module
            of a family added by `ccs.register_encoder`; or what `ccs.load` returns. torch.compile, DDP, FSDP,
            and peft may wrap it.
        heads: "L10.H3 L9.H2=0.3", a HeadSet or Intervention, heads, or a mapping of heads to factors (0
            ablates, 1 changes nothing). T7.H3 is in the text encoder; for a text encoder alone, L7.H3 is the
            same. Layers and heads count from 0; a pool is the layer after the last block. Means need
            `Model.at_means` first.

    Yields:
        The heads.

    Raises:
        InputError: If the model lacks a head or its heads are unknown, or if a forward pass bypasses them.

        >>> import ccs, torch
        >>> module = ccs.load("organism").clip    # an open_clip model, as create_model returns it
        >>> with ccs.ablate(module, "L7.H1 L6.H2=0.3"):
        ...     features = module.encode_image(torch.zeros(1, 3, 72, 72))
    """
    ablated = Intervention.from_heads(heads)
    if is_text_encoder(model):  # its only heads can be called L too
        renamed = ((replace(head, encoder=TEXT), change) for head, change in changes(ablated))
        ablated = Intervention(dict(renamed), getattr(ablated, "means", None))
    if unread := unread_heads(model, ablated.of_encoder(IMAGE)):
        name = type(unwrapped(model)).__name__
        warnings.warn(
            f"Ablating {HeadSet(unread)} has no effect: {name} reads the image encoder before that layer.",
            stacklevel=3,
        )
    with ExitStack() as block:
        for encoder in ENCODERS:
            chosen = ablated.of_encoder(encoder)
            if not chosen and (ablated or encoder != IMAGE):
                continue
            root, places = locations(model, encoder)
            check = _PassCheck()
            for layer, place in _changed_places(root, places, chosen):
                ablation = Ablation(place.module, root, chosen.of_layer(layer))
                begin(ablation)
                block.callback(end, ablation)
                if not ablation.heads <= unread:
                    check.expected.append((place, ablation))
            block.callback(root.register_forward_hook(check).remove)
            block.callback(check.expected.clear)
        yield ablated


class _PassCheck:
    """A forward hook of an encoder: raise InputError unless the pass ran through all ablated heads."""

    def __init__(self) -> None:
        self.expected: list[tuple[Location, Ablation]] = []

    def __call__(self, module: Any, inputs: Any, output: Any) -> None:
        if torch.compiler.is_compiling():  # then the pass is traced, and runs later
            return
        missed = [
            ablation
            for place, ablation in self.expected
            if not ablation.reached or place.module is not ablation.module
        ]
        if missed:
            raise bypassed(missed)

    def __deepcopy__(self, memo: dict[int, Any]) -> _PassCheck:
        return _PassCheck()

    def __reduce__(self) -> Any:
        return _PassCheck, ()


def _changed_places(root: Any, places: list[Location], heads: HeadSet) -> Iterator[tuple[int, Location]]:
    """The layers to change, each with its attention module; InputError for heads that can't be changed."""
    modules = [place.module for place in places]
    _require([int(module.num_heads) for module in modules], heads)
    for layer in heads.layers:
        module = modules[layer]
        sharing = [number for number, other in enumerate(modules) if other is module]
        if len({_changes(heads, number) for number in sharing}) > 1:
            numbers = ", ".join(map(str, sharing))
            raise InputError(
                f"Layers {numbers} share one attention module, so ablate the same heads in each of them."
            )
        projection = getattr(module, str(projection_name(module)))
        if not isinstance(module, nn.MultiheadAttention) and any(
            getattr(other, str(projection_name(other))) is projection
            for other in modules
            if other is not module
        ):
            raise InputError(f"Layer {layer} shares its output projection with another layer: copy it first.")
        if sharing[0] == layer:
            yield layer, places[layer]


def _changes(heads: HeadSet, layer: int) -> frozenset[tuple[int, HeadChange]]:
    return frozenset((head.head, change) for head, change in changes(heads.of_layer(layer)))


def _require(counts: list[int], heads: HeadSet) -> None:
    """Raise InputError unless each head is in the model and what is to be done to it can be done."""
    for head, change in changes(heads):
        if head.layer >= len(counts) or head.head >= counts[head.layer]:
            layers = ", ".join(f"{head.encoder}{layer}: {count}" for layer, count in enumerate(counts))
            raise InputError(f"{head} is outside this model; heads in each layer: {layers}.")
        if change.replacement == MEAN and head.encoder != IMAGE:
            raise InputError(
                f"{head}{change} acts on the token that is read, which differs from text to text. "
                "Use Model.embed_texts(texts, ablate=...), or a factor on all tokens."
            )
        if change.replacement:
            assert isinstance(heads, Intervention)
            heads.mean_output(head)


def has_class_token(encoder: Any) -> bool:
    """Whether a Transformers encoder has a class token."""
    holders = (encoder, getattr(encoder, "embeddings", None), unwrapped(getattr(encoder, "trunk", None)))
    names = ("class_embedding", "cls_token")
    return any(getattr(holder, name, None) is not None for holder in holders for name in names)
