"""Find the attention modules of a model of open_clip, timm, or transformers, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import nn

from ccs.errors import InputError
from ccs.heads import ENCODERS, IMAGE, HeadSet
from ccs.model.encoders import decompose_registered
from ccs.model.interception import projection_name

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module", "base_layer")
"""Where torch.compile, the parallel wrappers, checkpointing, and adapters (peft) keep a module."""
_IMAGE_ENCODERS = ("vision_tower", "vision_model", "visual")
"""Where models keep their image encoder."""
_HOLDERS = ("model", "clip")
"""Where models with a head of their own keep the model that has the encoders."""


@dataclass(frozen=True)
class Location:
    """An attention module's place in a model.

    Attributes:
        owner: The module that holds it.
        name: The name of the owner's attribute.
    """

    owner: Any
    name: str

    @property
    def module(self) -> Any:
        """The attention module that is there at present, without wrappers."""
        return unwrapped(getattr(self.owner, self.name))


def unwrapped(module: Any) -> Any:
    """Return the module inside torch.compile, parallel wrappers, checkpointing, peft, or a `Model`."""
    if hasattr(module, "encoder") and hasattr(module, "clip"):
        module = module.clip
    while True:
        if hasattr(module, "get_base_model"):  # peft
            module = module.get_base_model()
        candidates = (getattr(module, name, None) for name in _WRAPPERS)
        inner = next((candidate for candidate in candidates if candidate is not None), None)
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def image_encoder(model: Any) -> Any:
    """Return the image encoder inside a model, or the model itself."""
    model = unwrapped(model)
    holders = (model, *(unwrapped(getattr(model, name, None)) for name in _HOLDERS))
    inner = (getattr(holder, name, None) for holder in holders for name in _IMAGE_ENCODERS)
    encoder = next((module for module in inner if module is not None), model)
    return encoder if encoder is model else image_encoder(encoder)


def text_encoder(model: Any) -> Any:
    """Return the text encoder inside a model, or the model itself."""
    model = unwrapped(model)
    for holder in (model, *(unwrapped(getattr(model, name, None)) for name in _HOLDERS)):
        for name in ("text_model", "text"):  # transformers, open_clip's CustomTextCLIP
            inner = getattr(holder, name, None)
            if isinstance(inner, nn.Module):
                return unwrapped(inner)
    return model


def is_text_encoder(model: Any) -> bool:
    """True for CLIP's or SigLIP's text encoder alone, such as transformers' CLIPTextModel."""
    encoder = text_encoder(model)
    holders = (encoder, getattr(encoder, "embeddings", None))
    alone = image_encoder(model) is unwrapped(model)
    return alone and any(hasattr(holder, "token_embedding") for holder in holders)


def locations(model: Any, encoder: str) -> tuple[Any, list[Location]]:
    """Find the attention modules of one of a model's encoders.

    Args:
        model: A module of open_clip, timm, or transformers, in any wrapper.
        encoder: IMAGE or TEXT.

    Returns:
        The module whose forward pass runs all of them, and the place of the module of each layer. Where
        attention pools the tokens, the pool is the last layer.

    Raises:
        InputError: If the encoder isn't built like one whose heads are known.
    """
    if isinstance(model, str):
        raise InputError(f"ccs.ablate takes a model, not its name {model[:40]!r}: load it first.")
    module = image_encoder(model) if encoder == IMAGE else text_encoder(model)
    if not isinstance(module, nn.Module):
        raise InputError(f"ccs.ablate takes a torch module, not {type(module).__name__}.")
    if isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        raise InputError(
            f"{type(module).__name__} is a traced, scripted, or exported copy of a model, whose heads can't "
            "be ablated. Pass the model that it was made from."
        )
    try:
        root, places = _image_places(module) if encoder == IMAGE else _text_places(module)
        modules = [place.module for place in places]
        known = all(
            hasattr(module, "num_heads") and projection_name(module) is not None for module in modules
        )
    except (AttributeError, TypeError):
        known, places = False, []
    if not known or not places:
        raise InputError(_refusal(model, module, encoder))
    return root, places


def _refusal(model: Any, module: Any, encoder: str) -> str:
    name, whole = type(module).__name__, type(unwrapped(model)).__name__
    inside = f" inside {whole}" if whole != name else ""
    hint = " If such an encoder is inside it, pass that module. ccs.register_encoder can describe others."
    return (
        f"{name}{inside} isn't built like CLIP's or SigLIP's {ENCODERS[encoder]} encoder, so its heads are "
        f"unknown.{hint if encoder == IMAGE else ''}"
    )


def _image_places(encoder: Any) -> tuple[Any, list[Location]]:
    if (parts := decompose_registered(encoder)) is not None:
        owners = {
            id(child): (owner, name) for owner in encoder.modules() for name, child in owner.named_children()
        }
        return encoder, [Location(*owners[id(layer.module)]) for layer in parts.layers]
    trunk = unwrapped(getattr(encoder, "trunk", encoder))
    if hasattr(trunk, "blocks"):  # timm, Qwen
        pool = getattr(trunk, "attn_pool", None)
        places = [Location(unwrapped(block), "attn") for block in trunk.blocks]
        return encoder, [*places, *([] if pool is None else [Location(trunk, "attn_pool")])]
    if hasattr(encoder, "conv1") and hasattr(encoder, "transformer"):  # open_clip
        if getattr(encoder, "attn_pool_contrastive", None) is not None:
            raise AttributeError("two pools")
        pool = getattr(encoder, "attn_pool", None)
        places = _resblocks(encoder.transformer)
        return encoder, [*places, *([] if pool is None else [Location(unwrapped(pool), "attn")])]
    if hasattr(encoder, "attnpool"):
        return encoder, [Location(encoder, "attnpool")]
    pool = getattr(encoder, "head", None)  # SigLIP's
    places = _transformers_places(encoder, "patch_embedding")
    return encoder, [*places, *([] if pool is None else [Location(unwrapped(pool), "attention")])]


def _text_places(encoder: Any) -> tuple[Any, list[Location]]:
    if hasattr(encoder, "transformer") and hasattr(encoder, "token_embedding"):  # open_clip
        transformer = unwrapped(encoder.transformer)
        return transformer, _resblocks(transformer)
    return encoder, _transformers_places(encoder, "token_embedding")


def _resblocks(transformer: Any) -> list[Location]:
    return [Location(unwrapped(block), "attn") for block in unwrapped(transformer).resblocks]


def _transformers_places(encoder: Any, embedding: str) -> list[Location]:
    getattr(encoder.embeddings, embedding)  # which the other encoder lacks
    return [Location(unwrapped(layer), "self_attn") for layer in unwrapped(encoder.encoder).layers]


def unread_heads(model: Any, heads: HeadSet) -> HeadSet:
    """Return the heads that change nothing, since the model reads the image encoder before them.

    A language model reads the last block, or those that its configuration names, and never a pool: LLaVA's
    "-2" is the block before the last. CLIPSeg's decoder reads the blocks of `extract_layers`.

    Args:
        model: A module of open_clip, timm, or transformers, in any wrapper.
        heads: Heads of the image encoder.
    """
    model = unwrapped(model)
    encoder: Any = image_encoder(model)
    config: Any = getattr(model, "config", None)
    if encoder is model or hasattr(model, "text_model") or not hasattr(config, "text_config"):
        return HeadSet()
    if not hasattr(encoder, "blocks") and not hasattr(getattr(encoder, "encoder", None), "layers"):
        return HeadSet()  # refused by `locations`
    blocks: Sequence[Any] = encoder.blocks if hasattr(encoder, "blocks") else encoder.encoder.layers
    layers = getattr(config, "vision_feature_layer", None)
    layers = [-1] if layers is None else [layers] if isinstance(layers, int) else layers
    if hasattr(config, "extract_layers"):
        layers = [layer + 1 for layer in config.extract_layers]
    last = max(layer if layer >= 0 else len(blocks) + 1 + layer for layer in layers)
    return HeadSet(head for head in heads if head.encoder == IMAGE and head.layer >= last)
