"""Where the attention heads are in a user's own model, open_clip's or transformers'."""

from __future__ import annotations

from typing import Any

from ccs.errors import InputError
from ccs.heads import TEXT, HeadSet
from ccs.model.towers import take_apart, take_texts_apart

_WRAPPERS = ("_orig_mod", "module", "clip")
"""Where torch.compile, the parallel wrappers and `ccs.load` keep the model."""
_INSIDE = ("vision_tower", "vision_model", "visual")
"""Where models keep their image tower."""
_UNLOADED = "The model's weights are quantized or not loaded, so no head can be switched off."

Layers = list[tuple[int, Any]]
"""The number of heads of each layer, and the projection that reads their outputs."""


def layers(model: Any, tower: str) -> Layers:
    """The layers of one of the model's towers. Raises InputError where its heads cannot be told apart."""
    if isinstance(model, str):
        raise InputError("heads_off takes a model, not its name; load it first.")
    found = _of_texts(unwrapped(model)) if tower == TEXT else _of_images(unwrapped(model))
    if any(not one.weight.is_floating_point() or one.weight.is_meta for _, one in found):
        raise InputError(_UNLOADED)
    return found


def unwrapped(model: Any) -> Any:
    for name in _WRAPPERS:
        model = getattr(model, name, model)
    return model


def image_tower(model: Any) -> Any:
    """The image tower inside a model, or the model itself."""
    holders = (model, getattr(model, "model", None))
    found = (getattr(one, name, None) for one in holders for name in _INSIDE)
    return next((one for one in found if one is not None), model)


def unread(model: Any, heads: HeadSet) -> HeadSet:
    """The heads that change nothing: those of layers of an image tower that a language model does not read.

    It reads the last block, or those that its configuration names, and never a pool: LLaVA's "-2" is the
    block before the last.
    """
    model = unwrapped(model)
    tower, config = image_tower(model), getattr(model, "config", None)
    if tower is model or hasattr(model, "text_model") or not hasattr(config, "text_config"):
        return HeadSet()
    blocks = tower.blocks if hasattr(tower, "blocks") else tower.encoder.layers
    places = getattr(config, "vision_feature_layer", None)
    places = [-1] if places is None else [places] if isinstance(places, int) else places
    last = max(place if place >= 0 else len(blocks) + 1 + place for place in places)
    return HeadSet(head for head in heads if head.layer >= last)


def _of_images(model: Any) -> Layers:
    tower = image_tower(model)
    if hasattr(tower, "blocks") and hasattr(tower, "merger"):  # Qwen's
        return [(int(one.attn.num_heads), one.attn.proj) for one in tower.blocks]
    if hasattr(tower, "encoder") and hasattr(tower, "embeddings"):
        return _of_transformers(tower, "image", "patch_embedding")
    if hasattr(tower, "config"):
        raise InputError(
            f"{type(model).__name__} has no image tower that is known here. If there is a CLIP's or SigLIP's "
            "inside it, pass that module."
        )
    return [(layer.n_heads, layer.projection) for layer in take_apart(tower).layers]


def _of_texts(model: Any) -> Layers:
    tower = getattr(model, "text_model", model)
    if hasattr(tower, "config"):
        return _of_transformers(tower, "text", "token_embedding")
    return [(layer.n_heads, layer.projection) for layer in take_texts_apart(model)[0].layers]


def _of_transformers(tower: Any, kind: str, embedding: str) -> Layers:
    """embedding: what a tower of this kind, image or text, alone has among its embeddings."""
    try:
        _, blocks = getattr(tower.embeddings, embedding), tower.encoder.layers
        attentions = [one.self_attn for one in blocks]
        if kind == "image" and (pool := getattr(tower, "head", None)) is not None:  # SigLIP's
            attentions.append(pool.attention)
        return [(int(each.num_heads), each.out_proj) for each in attentions]
    except AttributeError:
        said = f"{type(tower).__name__} is not built like CLIP's or SigLIP's {kind} tower"
        raise InputError(f"{said}, so its heads cannot be told apart.") from None
