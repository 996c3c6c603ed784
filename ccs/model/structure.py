"""Find the attention modules of any model, layer by layer, by their heads and output projection."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.fx
from torch import nn

from ccs.errors import InputError
from ccs.heads import ENCODERS, IMAGE, TEXT, HeadSet
from ccs.model.interception import projection_name

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module", "base_layer")
"""Attributes in which torch.compile, parallel wrappers, checkpointing, and adapters (peft) keep a module."""
_ENCODERS = {IMAGE: ("vision_tower", "vision_model", "visual"), TEXT: ("text_model", "text")}
"""Attributes in which models keep their encoders."""
_HOLDERS = ("model", "clip")
"""Attributes in which models with their own head keep the model that has the encoders."""


def unwrapped(module: Any) -> Any:
    """Return the module inside torch.compile, parallel wrappers, checkpointing, peft, or a `Model`."""
    if hasattr(module, "tokenize") and hasattr(module, "clip"):
        module = module.clip
    while True:
        if hasattr(module, "get_base_model"):  # peft
            module = module.get_base_model()
        candidates = (getattr(module, name, None) for name in _WRAPPERS)
        inner = next((candidate for candidate in candidates if candidate is not None), None)
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def encoder_inside(model: Any, encoder: str) -> Any:
    """Return an encoder inside a model, or the model itself.

    Args:
        model: A module, in any wrapper.
        encoder: IMAGE or TEXT.
    """
    model = unwrapped(model)
    holders = (model, *(unwrapped(getattr(model, name, None)) for name in _HOLDERS))
    inner = (getattr(holder, name, None) for holder in holders for name in _ENCODERS[encoder])
    module = next((unwrapped(module) for module in inner if isinstance(module, nn.Module)), model)
    return module if module is model else encoder_inside(module, encoder)


def is_text_encoder(model: Any) -> bool:
    """Return whether this is CLIP's or SigLIP's text encoder alone, such as transformers' CLIPTextModel."""
    return encoder_inside(model, IMAGE) is unwrapped(model) and _reads_tokens(encoder_inside(model, TEXT))


def _reads_tokens(encoder: Any) -> bool:
    return any(hasattr(at, "token_embedding") for at in (encoder, getattr(encoder, "embeddings", None)))


def attention_modules(model: Any, encoder: str) -> tuple[Any, dict[str, Any]]:
    """Find the attention modules of one of a model's encoders.

    They must be one stack of layers. If attention pools the tokens, the pool is the last layer.

    Args:
        model: A module of any library, in any wrapper.
        encoder: IMAGE or TEXT.

    Returns:
        The module whose forward pass runs all of them, and the modules of the layers by name, unwrapped.

    Raises:
        InputError: If the encoder isn't built of one stack of such modules.
    """
    if isinstance(model, str):
        raise InputError(f"ccs.ablate takes a model, not its name {model[:40]!r}: load it first.")
    module = encoder_inside(model, encoder)
    if not isinstance(module, nn.Module):
        raise InputError(f"ccs.ablate takes a torch module, not {type(module).__name__}.")
    if isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        raise InputError(
            f"{type(module).__name__} is a traced, scripted, or exported copy of a model, whose heads can't "
            "be ablated. Pass the model that it was made from."
        )
    # open_clip's CLIP reads texts by calling its transformer
    root = module if encoder == IMAGE else unwrapped(getattr(module, "transformer", module))
    modules = dict(_attention(root, "")) if encoder == IMAGE or _reads_tokens(module) else {}
    *blocks, _ = [re.sub(r"\d+", "#", path) for path in modules] or [""]
    if not modules or len(set(blocks)) > 1:
        raise InputError(_refusal(model, module, encoder))
    return root, modules


def _attention(owner: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Return the attention modules below a module, by their paths without wrappers."""
    for name, child in owner._modules.items():
        module = unwrapped(child)
        if isinstance(getattr(module, "num_heads", None), int) and projection_name(module):
            yield f"{path}{name}", module
        elif module is not None:
            yield from _attention(module, f"{path}{name}.")


def _refusal(model: Any, module: Any, encoder: str) -> str:
    name, whole = type(module).__name__, type(unwrapped(model)).__name__
    inside = f" inside {whole}" if whole != name else ""
    hint = " If such an encoder is inside it, pass that module. ccs.register_encoder can describe others."
    return (
        f"{name}{inside} isn't built like CLIP's or SigLIP's {ENCODERS[encoder]} encoder, so its heads are "
        f"unknown.{hint if encoder == IMAGE else ''}"
    )


def unread_heads(model: Any, heads: HeadSet, paths: Iterable[str]) -> HeadSet:
    """Return the heads that change nothing, since the model reads the image encoder before them.

    A language model reads the last block, or the blocks that its configuration names, but never a pool. In
    LLaVA, "-2" is the block before the last. CLIPSeg's decoder reads the blocks of `extract_layers`.

    Args:
        model: A module of open_clip, timm, or transformers, in any wrapper.
        heads: Heads of the image encoder.
        paths: The names of its attention modules.
    """
    model = unwrapped(model)
    config: Any = getattr(model, "config", None)
    alone = encoder_inside(model, IMAGE) is model or hasattr(model, "text_model")
    if alone or not hasattr(config, "text_config"):
        return HeadSet()
    names = [path.rpartition(".")[2] for path in paths]
    blocks = names.count(names[0])
    layers = getattr(config, "vision_feature_layer", None)
    layers = [-1] if layers is None else [layers] if isinstance(layers, int) else layers
    if hasattr(config, "extract_layers"):
        layers = [layer + 1 for layer in config.extract_layers]
    last = max(layer if layer >= 0 else blocks + 1 + layer for layer in layers)
    return HeadSet(head for head in heads if head.layer >= last)
