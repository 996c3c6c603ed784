"""Model configurations: open_clip's, and a Hugging Face checkpoint's translated to open_clip's.

A configuration is untrusted. Here numbers are bounded, keywords that are passed on are listed, and names of
other models and tokenizers must be ones that open_clip's architectures use. open_clip, timm, and torch decide
whether entries fit together: they build the model without memory first.

A `CLIPModel` or `SiglipModel` of transformers computes the same as open_clip's model, so a checkpoint is a
configuration and weights under other names. transformers reads the files, with its defaults and those of
older versions, builds no model, and looks for no code.
"""

import json
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

MAX_CONFIG_BYTES = 2**20
OPEN_CLIP_TOKENS = 49_408
"""The size of the vocabulary of open_clip's own tokenizer."""

_MOST = {"layers": 128, "image_size": 1024} | dict.fromkeys(("vocab_size", "eos_id", "pad_id"), 2_000_000)
_MOST_OTHERWISE, _LEAST, _PATCHES = 8192, -100, 64
_NAMES = ("timm_model_name", "hf_model_name", "hf_tokenizer_name")
_KEYWORDS = {
    "act_kwargs": {"approximate"},
    "norm_kwargs": {"eps"},
    "tokenizer_kwargs": {"clean", "strip_sep_token"},
}


def read_config(text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the configurations of a model and of its preprocessing, from an open_clip_config.json.

    Returns:
        `model_cfg` and `preprocess_cfg`.

    Raises:
        ValueError: If it has an unknown name, or a number out of bounds. Anything that is not JSON raises
            other errors.
    """
    content = json.loads(text)
    model, preprocess = content["model_cfg"], content.get("preprocess_cfg") or {}
    require_bounded([model, preprocess])
    for key, library in (("vision_cfg", "timm"), ("text_cfg", "hf")):
        if model[key].get(f"{library}_model_name"):
            model[key][f"{library}_model_pretrained"] = False
    return model, preprocess


def require_bounded(config: Any, key: str = "") -> None:
    """Check numbers, keywords, and names in a configuration.

    Args:
        config: The configuration, or an entry of it.
        key: The key of the entry.

    Raises:
        ValueError: If one isn't allowed there.
    """
    if isinstance(config, dict):
        if unknown := set(config) - _KEYWORDS.get(key, set(config)):
            raise ValueError(f"{key} has an unknown entry {min(unknown)!r}")
        if key == "vision_cfg" and not config.get("timm_model_name"):
            side, patch = config.get("image_size", 224), config.get("patch_size") or 16
            if max(side if isinstance(side, list) else [side]) > _PATCHES * patch:
                raise ValueError(f"patches of {patch} cut {side} into more than {_PATCHES} a side")
        for name, value in config.items():
            require_bounded(value, name)
    elif isinstance(config, list):
        for value in config:
            require_bounded(value, key)
    elif isinstance(config, int | float):
        limit = _MOST.get(key, _MOST_OTHERWISE)
        if not _LEAST <= config <= limit:  # NaN too
            raise ValueError(f"{key} is {config}; {limit} is the most")
    elif key in _NAMES and config and config not in used_by_open_clip()[key]:
        raise ValueError(f"{key} is {config[:100]!r}, which no architecture of open_clip uses")


@cache
def used_by_open_clip() -> dict[str, frozenset[str]]:
    """Return the names of other models in each field of open_clip's architectures, and ours."""
    import open_clip

    from ccs.model.encoders import convolutional  # imports PyTorch

    convolutional.register()
    configs = map(open_clip.get_model_config, open_clip.list_models())
    encoders = [encoder for config in configs for encoder in config.values() if isinstance(encoder, dict)]
    ours = frozenset({convolutional.NAME})
    return {key: ours | frozenset(encoder[key] for encoder in encoders if encoder.get(key)) for key in _NAMES}


# Checkpoints of Hugging Face ------------------------------------------------------------------------------

CONFIG_FILE = "config.json"
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
SAVED = "AutoProcessor.from_pretrained(NAME).save_pretrained(DIR), of transformers, writes it."
KINDS = ("clip", "siglip")
"""The `model_type` of the checkpoints that are read."""

_SIGLIP = "vit_base_patch16_siglip_224"
_ANY = "test_vit"  # timm's smallest; open_clip's wrapper needs a name, and its trunk is replaced
_FILTERS = {2: "bilinear", 3: "bicubic"}
LEGACY_EOS = 2
"""The end token in configurations before transformers 4.31, which read out at the largest token."""


def read_checkpoint(file: bytes, processor: Path | None) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Translate a checkpoint's files to open_clip's configuration.

    Args:
        file: The content of its config.json.
        processor: The folder of its processor's files, if there are any.

    Returns:
        `model_cfg`, the checkpoint's `model_type`, and `preprocess_cfg`.

    Raises:
        ValueError: If it isn't a CLIPModel or SiglipModel, or open_clip has no such preprocessing. Anything
            that is not JSON raises other errors.
    """
    from transformers import CLIPConfig, SiglipConfig

    content = json.loads(file)
    kind = content.get("model_type")
    if kind not in KINDS:
        raise ValueError(f"model_type is {str(kind)[:40]!r}, not {' or '.join(KINDS)}")
    if content.get("quantization_config"):
        raise ValueError("its weights are quantized")
    config: Any = (SiglipConfig if kind == "siglip" else CLIPConfig).from_dict(content)
    vision, text = config.vision_config, config.text_config
    if vision.num_channels != 3:
        raise ValueError(f"num_channels is {vision.num_channels}, not 3")
    image_settings = _settings(vision, image_size="image_size", patch_size="patch_size")
    image_settings["head_width"] = vision.hidden_size // vision.num_attention_heads
    sizes = {"context_length": "max_position_embeddings", "vocab_size": "vocab_size"}
    text_settings = _settings(text, **sizes, heads="num_attention_heads")
    quick = vision.hidden_act == "quick_gelu"
    if quick != (text.hidden_act == "quick_gelu") or (quick and kind == "siglip"):
        raise ValueError(f"its encoders use {vision.hidden_act}, {text.hidden_act}; both QuickGELU or none")
    require_bounded({"vision_cfg": image_settings, "text_cfg": text_settings})
    if kind == "siglip":  # as in open_clip's SigLIPs, but with the encoder's sizes next to timm's name
        if text.projection_size != vision.hidden_size or not vision.vision_use_head:
            raise ValueError(f"its texts and pooled images do not both have {vision.hidden_size} dimensions")
        image_settings |= {"timm_model_name": _SIGLIP, "timm_pool": "map", "timm_proj": "none"}
        text_settings |= {"no_causal_mask": True, "proj_bias": True, "pool_type": "last"}
        further = {"init_logit_bias": -10.0, "custom_text": True, "embed_dim": vision.hidden_size}
    else:
        by_largest, end = text.eos_token_id == LEGACY_EOS, text.eos_token_id
        text_settings |= {"pool_type": "argmax"} if by_largest else {"pool_type": "eos", "eos_id": end}
        further = {"quick_gelu": quick, "embed_dim": config.projection_dim}
    require_bounded(further)
    preprocess = {} if processor is None else _read_preprocessing(processor, kind, vision.image_size)
    return further | {"vision_cfg": image_settings, "text_cfg": text_settings}, kind, preprocess


def _settings(encoder: Any, **names: str) -> dict[str, Any]:
    """Return an encoder's settings by open_clip's names: its own and those of both."""
    width, inner = encoder.hidden_size, encoder.intermediate_size
    if width % encoder.num_attention_heads:
        raise ValueError(f"hidden_size {width} is not a multiple of {encoder.num_attention_heads} heads")
    if encoder.hidden_act not in ("quick_gelu", "gelu", "gelu_pytorch_tanh"):
        raise ValueError(f"hidden_act is {encoder.hidden_act[:40]!r}")
    names |= {"width": "hidden_size", "layers": "num_hidden_layers"}
    settings: dict[str, Any] = {ours: getattr(encoder, theirs) for ours, theirs in names.items()}
    settings["mlp_ratio"] = (inner + 0.5) / width  # open_clip rounds the product down
    if encoder.layer_norm_eps != 1e-5:
        settings["norm_kwargs"] = {"eps": encoder.layer_norm_eps}
    if encoder.hidden_act == "gelu_pytorch_tanh":
        settings["act_kwargs"] = {"approximate": "tanh"}
    return settings


def timm_vit(vision: Mapping[str, Any], **options: Any) -> Any:
    """Build a Vision Transformer of timm with an attention pool.

    Args:
        vision: Sizes as in open_clip's `vision_cfg`.
        options: Further arguments.
    """
    from timm.models.vision_transformer import VisionTransformer

    names = {"image_size": "img_size", "width": "embed_dim", "layers": "depth"}
    sizes = {names.get(key, key): vision[key] for key in (*names, "patch_size", "mlp_ratio")}
    heads = vision["width"] // vision["head_width"]
    return VisionTransformer(**sizes, num_heads=heads, num_classes=0, global_pool="map", **options)


def siglip_model(config: Mapping[str, Any]) -> Any:
    """Build open_clip's model around a timm ViT of a checkpoint's sizes, before weights are loaded."""
    from open_clip.model import CustomTextCLIP
    from torch import nn

    settings = {key: value for key, value in config.items() if key != "custom_text"}
    vision = settings["vision_cfg"]
    clip = CustomTextCLIP(**settings | {"vision_cfg": {**vision, "timm_model_name": _ANY}})
    clip.visual.trunk = timm_vit(
        vision,
        class_token=False,
        norm_layer=partial(nn.LayerNorm, **vision.get("norm_kwargs", {})),
        act_layer="gelu_tanh" if vision.get("act_kwargs") else "gelu",
    )
    return clip


def _read_preprocessing(folder: Path, kind: str, side: int) -> dict[str, Any]:
    """Translate a processor's files, for images of some pixels a side, to open_clip's configuration."""
    from transformers import CLIPImageProcessorPil, SiglipImageProcessorPil

    processor_class = SiglipImageProcessorPil if kind == "siglip" else CLIPImageProcessorPil
    processor: Any = processor_class.from_pretrained(folder, local_files_only=True)
    size, crop, square = processor.size, processor.crop_size, (side, side)
    squashed = size.shortest_edge is None and (size.height, size.width) == square
    cropped = size.shortest_edge == side and processor.do_center_crop and (crop.height, crop.width) == square
    if not processor.do_resize or not (squashed or cropped):
        raise ValueError(
            f"images must become {side} by {side} pixels, by their shorter edge and a crop or as a whole"
        )
    if not processor.do_rescale or abs(processor.rescale_factor * 255 - 1) > 1e-5:
        raise ValueError("pixels must be divided by 255")
    if processor.resample not in _FILTERS:
        raise ValueError(f"resample is {processor.resample}, neither 2 (bilinear) nor 3 (bicubic)")
    mean, std = [0.0] * 3, [1.0] * 3
    if processor.do_normalize:
        mean, std = list(processor.image_mean), list(processor.image_std)
    return {
        "mean": mean,
        "std": std,
        "interpolation": _FILTERS[processor.resample],
        "resize_mode": "squash" if squashed else "shortest",
    }
