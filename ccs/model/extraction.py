"""The image encoder inside a vision-language model, as a `Model`."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import torch

from ccs.errors import InputError
from ccs.heads import IMAGE
from ccs.model.encoder import ChosenLayers
from ccs.model.encoders import decompose_registered
from ccs.model.loading.sources import HUB, without_folders
from ccs.model.loading.weights import renamed
from ccs.model.model import Model, load
from ccs.model.structure import attention_modules, encoder_inside, unwrapped
from ccs.sandbox import reason


def extract_image_encoder(
    model: Any,
    text_encoder: str,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    layers: ChosenLayers | None = None,
) -> Model:
    """Make a `Model` of the image encoder inside a model, for TEXTSPAN, maps, and everything else.

    A warning says if the encoder was trained further than `text_encoder`'s, whose texts are used.

    Args:
        model: A transformers model that holds a CLIP or SigLIP image encoder (LLaVA, LLaVA-OneVision,
            PaliGemma, Gemma 3), that encoder, or the folder or repository of such a model; or a module of a
            family added by `register_encoder`, with embeddings in the space of `text_encoder`.
        text_encoder: The CLIP that the encoder comes from, as `ccs.load` takes it. For LLaVA 1.5 it is
            "hf-hub:openai/clip-vit-large-patch14-336". Its texts and preprocessing are used, and its
            projection and pool if the model has none.
        device: As in `ccs.load`.
        precision: As in `ccs.load`.
        layers: As in `ccs.load`.

    Returns:
        The model.

    Raises:
        InputError: If the model can't be loaded, has no such encoder, or doesn't fit `text_encoder`.

    Examples:
        >>> from ccs import load
        >>> from transformers import CLIPVisionConfig, CLIPVisionModel
        >>> sizes = {"hidden_size": 192, "intermediate_size": 384, "image_size": 72, "patch_size": 12}
        >>> sizes |= {"num_hidden_layers": 8, "num_attention_heads": 6, "hidden_act": "gelu"}
        >>> inner = CLIPVisionModel(CLIPVisionConfig(**sizes))
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):    # it isn't the organism's encoder
        ...     extract_image_encoder(inner, "organism").heads == load("organism").heads
        True
    """
    whole = unwrapped(_loaded(model) if isinstance(model, str) else model)
    attention_modules(whole, IMAGE)  # refuses a model without an image encoder
    encoder = encoder_inside(whole, IMAGE)
    extracted = load(text_encoder, device=device, precision=precision, layers=layers)
    visual, name = extracted.clip.visual, Path(model).name if isinstance(model, str) else type(whole).__name__
    extracted.name = f"{name} with {extracted.name}"
    if decompose_registered(encoder) is not None:
        extracted.use_image_encoder(copy.deepcopy(encoder), layers)
        return extracted
    originals = {key: values.clone() for key, values in visual.state_dict().items()}
    prefixed = ((f"vision_model.{key}", value) for key, value in encoder.state_dict().items())
    new_names = renamed(prefixed, siglip=hasattr(visual, "trunk"))
    weights = {key.removeprefix("visual."): value for key, value in new_names.items()}
    try:
        missing, different = visual.load_state_dict(weights, strict=False)
        different += [key for key in missing if "blocks." in key]  # a pool may be missing
    except RuntimeError as error:  # other sizes
        different = str(error).splitlines()[1:]
    if different:
        names = ", ".join(map(str.strip, different[:3]))
        raise InputError(f"The image encoder of {name} is not built like {text_encoder}'s: {names}.")
    act = getattr(encoder.config, "hidden_act", "")
    if act and (act == "quick_gelu") != extracted.config["quick_gelu"]:
        raise InputError(f"The image encoder of {name} uses {act}, and that of {text_encoder} doesn't.")
    pairs = ((value, originals[key]) for key, value in weights.items())
    if any(not torch.allclose(value.to(original), original, atol=1e-3) for value, original in pairs):
        warnings.warn(
            f"The image encoder of {name} was trained further than {text_encoder}'s, whose texts are used.",
            stacklevel=2,
        )
    return extracted


def _loaded(name: str) -> Any:
    """Load transformers' model of that name, from safetensors and without the repository's code."""
    from transformers import AutoModelForImageTextToText

    path = name.removeprefix(HUB)
    try:
        return AutoModelForImageTextToText.from_pretrained(path, dtype="auto", use_safetensors=True)
    except Exception as error:  # its reader raises dozens of exception types
        explanation = without_folders(reason(error))[:300]
        raise InputError(
            f"{name[:100]!r} can't be loaded as a vision-language model ({explanation})."
        ) from None
