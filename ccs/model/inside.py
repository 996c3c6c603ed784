"""The CLIP inside a language model that sees: its image tower, with the text tower it was trained with."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from ccs.errors import InputError
from ccs.gate import reason
from ccs.model import finding
from ccs.model.loading.sources import HUB, without_folders
from ccs.model.loading.weights import renamed, siglip_renamed
from ccs.model.model import Model, load
from ccs.model.tower import ChosenLayers


def take_apart(
    model: Any,
    text_tower: str,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    layers: ChosenLayers | None = None,
) -> Model:
    """The image tower inside a model as a `Model`, for TEXTSPAN, maps and everything else.

    model: a transformers model that holds CLIP's or SigLIP's image tower (LLaVA, LLaVA-OneVision, PaliGemma,
    Gemma 3), that tower, or the folder or repository of such a model. text_tower: the CLIP that the tower
    comes from, as `ccs.load` takes it, for LLaVA 1.5 "hf-hub:openai/clip-vit-large-patch14-336". Its texts
    are used, its preprocessing, its projection and pool where the model has none, and the model's image
    tower. A warning says where that was trained further, since the texts were not. The rest is as in
    `ccs.load`.

    Raises InputError for a model that cannot be loaded or has no such tower, and for one that does not fit.

        >>> from ccs import load
        >>> from transformers import CLIPVisionConfig, CLIPVisionModel
        >>> sizes = {"hidden_size": 192, "intermediate_size": 384, "image_size": 72, "patch_size": 12}
        >>> sizes |= {"num_hidden_layers": 8, "num_attention_heads": 6, "hidden_act": "gelu"}
        >>> inside = CLIPVisionModel(CLIPVisionConfig(**sizes))
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):    # it is not the organism's own tower
        ...     take_apart(inside, "organism").heads == load("organism").heads
        True
    """
    held = finding.unwrapped(_loaded(model) if isinstance(model, str) else model)
    finding.layers(held, "L")  # says what is wrong with a model without a tower
    tower = finding.image_tower(held)
    made = load(text_tower, device=device, precision=precision, layers=layers)
    visual, name = made.clip.visual, Path(model).name if isinstance(model, str) else type(held).__name__
    own = visual.state_dict()
    rename = siglip_renamed if hasattr(visual, "trunk") else renamed
    named = ((f"vision_model.{key}", value) for key, value in tower.state_dict().items())
    try:
        theirs = {key.removeprefix("visual."): value for key, value in rename(named).items()}
    except ValueError as error:
        raise InputError(f"The image tower of {name} cannot be read: {error}.") from None
    unlike = [key for key, value in theirs.items() if key not in own or value.shape != own[key].shape]
    missing = [key for key in own if key not in theirs and (".blocks." in key or "resblocks" in key)]
    if unlike or missing:
        which = ", ".join(sorted([*unlike, *missing])[:3])
        raise InputError(f"The image tower of {name} is not built as {text_tower}'s: {which} does not fit.")
    if (act := getattr(tower.config, "hidden_act", "")) and (act == "quick_gelu") != made.config[
        "quick_gelu"
    ]:
        raise InputError(f"The image tower of {name} uses {act}, and that of {text_tower} does not.")
    moved = {key: value.to(own[key]) for key, value in theirs.items()}
    if any(not torch.allclose(value, own[key], atol=1e-3) for key, value in moved.items()):
        sentence = f"The image tower of {name} was trained further than {text_tower}'s, whose texts are used."
        warnings.warn(sentence, stacklevel=2)
    visual.load_state_dict({**own, **moved})
    made.name = f"{name} with {made.name}"
    return made


def _loaded(name: str) -> Any:
    """transformers' model of that name, from safetensors, without code of its own."""
    from transformers import AutoModelForImageTextToText

    place = name.removeprefix(HUB)
    try:
        return AutoModelForImageTextToText.from_pretrained(place, dtype="auto", use_safetensors=True)
    except Exception as error:  # its reader raises dozens of kinds
        why = without_folders(reason(error))[:300]
        raise InputError(f"{name[:100]!r} cannot be loaded as a language model that sees ({why}).") from None
