"""Ablate heads of a model that someone else built and runs, for the length of a `with` block.

A head's output is one slice of the input of its attention's output projection. That slice is multiplied or
replaced while the block lasts (`ccs.model.interception`), so a head with factor 0 adds nothing, later layers
react to that, and the projection's bias stays: the total effect, as of `Model.embed_images(images, heads)`.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from ccs.errors import InputError
from ccs.heads import ENCODERS, IMAGE, MEAN, TEXT, Heads, HeadSet, Intervention, changes
from ccs.model.interception import Ablation, applied, projection_name, require_heads
from ccs.model.structure import attention_modules, is_text_encoder, unread_heads, unwrapped


@contextmanager
def ablate(model: Any, heads: Heads) -> Iterator[HeadSet]:
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
            transformers built on CLIP or SigLIP, or one of its encoders (docs/models.md lists them); another
            module with one stack of attention layers; or what `ccs.load` returns. torch.compile, DDP, FSDP,
            and peft may wrap it.
        heads: "L10.H3 L9.H2=0.3", a HeadSet or Intervention, heads, or a mapping of heads to factors (0
            ablates, 1 changes nothing). T7.H3 is in the text encoder; for a text encoder alone, L7.H3 is the
            same. Layers and heads count from 0; a pool is the layer after the last block. Means need
            `Model.at_means` first.

    Yields:
        The heads.

    Raises:
        InputError: If the model lacks a head or its heads are unknown, or if a forward pass bypasses them.

    Examples:
        >>> import ccs, torch
        >>> module = ccs.load("organism").clip    # a CLIP module; any other works, too
        >>> with ccs.ablate(module, "L7.H1 L6.H2=0.3"):
        ...     features = module.encode_image(torch.zeros(1, 3, 72, 72))
    """
    ablated = Intervention.from_heads(heads)
    if is_text_encoder(model):  # its only heads can be called L too
        renamed = ((replace(head, encoder=TEXT), change) for head, change in changes(ablated))
        ablated = Intervention(dict(renamed), ablated.means)
    with ExitStack() as block:
        for encoder in ENCODERS:
            chosen = ablated.of_encoder(encoder)
            if not chosen and (ablated or encoder != IMAGE):
                continue
            root, modules = attention_modules(model, encoder)
            _require(chosen, list(modules.values()))
            unread = unread_heads(model, chosen, modules) if encoder == IMAGE else HeadSet()
            if unread:
                name = type(unwrapped(model)).__name__
                warnings.warn(
                    f"Ablating {unread} has no effect: {name} reads the image encoder before that layer.",
                    stacklevel=3,
                )
            check = _PassCheck(root)
            for layer in chosen.layers:
                path, module = list(modules.items())[layer]
                ablation = Ablation(module, path, chosen.of_layer(layer))
                block.enter_context(applied(ablation))
                if not ablation.heads <= unread:
                    check.expected.append(ablation)
            block.callback(root.register_forward_hook(check).remove)
        yield ablated


class _PassCheck:
    """A forward hook of an encoder: raise InputError unless the pass ran through all ablated heads."""

    def __init__(self, root: Any = None) -> None:
        self.root, self.expected = root, list[Ablation]()

    def __call__(self, module: Any, inputs: Any, output: Any) -> None:
        if torch.compiler.is_compiling():  # the pass is only traced now, and runs later
            return
        lasting = [part for part in self.expected if part.is_open]
        present = set(map(id, self.root.modules())) if lasting else set()
        missed = [part for part in lasting if not part.reached or id(part.module) not in present]
        if missed:
            heads = " ".join(str(ablation.heads) for ablation in missed)
            labels = ", ".join(ablation.label for ablation in missed)
            raise InputError(
                f"{heads} not ablated: the forward pass bypassed {labels}. Run the modules themselves, not a "
                "fused, scripted, or exported copy, and don't replace them inside the block."
            )

    def __reduce__(self) -> Any:  # a copy checks nothing
        return _PassCheck, ()


def _require(heads: HeadSet, modules: list[Any]) -> None:
    """Raise InputError for heads that a module lacks, or whose change can't be made in it."""
    projections = [getattr(module, projection_name(module)) for module in modules]
    require_heads(heads, [module.num_heads for module in modules])
    for head, change in changes(heads):
        if change.replacement == MEAN and head.encoder != IMAGE:
            raise InputError(
                f"{head}{change} acts on the token that is read, which differs from text to text. "
                "Use Model.embed_texts(texts, ablate=...), or a factor on all tokens."
            )
        if change.replacement:
            heads.mean_output(head)
        if [other is projections[head.layer] for other in projections].count(True) > 1:
            raise InputError(f"Layer {head.layer} shares its attention with another layer: copy it first.")


def has_class_token(encoder: Any) -> bool:
    """Return whether a Transformers encoder has a class token."""
    holders = (encoder, getattr(encoder, "embeddings", None), unwrapped(getattr(encoder, "trunk", None)))
    names = ("class_embedding", "cls_token")
    return any(getattr(holder, name, None) is not None for holder in holders for name in names)
