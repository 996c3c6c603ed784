"""A Hugging Face checkpoint's configuration and preprocessing in open_clip's words.

A `CLIPModel` of transformers and open_clip's model compute the same from the same numbers, so a checkpoint is
a configuration and weights under other names. transformers reads the files, with its defaults and those of
older versions; no model of its own is built, and no code is looked for.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from ccs.model.config import require_bounded

CONFIG_FILE = "config.json"
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
_FILTERS = {2: "bilinear", 3: "bicubic"}
LEGACY_EOS = 2
"""The end token in configurations before transformers 4.31, which read out at the largest token."""


def read_config(text: bytes) -> dict[str, Any]:
    """open_clip's configuration of the checkpoint whose config.json is `text`.

    Raises ValueError, and others, for anything but the configuration of a CLIPModel.
    """
    from transformers import CLIPConfig

    said = json.loads(text)
    kind = said.get("model_type")
    if kind != "clip":
        raise ValueError(f"model_type is {str(kind)[:40]!r}, not clip")
    if said.get("quantization_config"):
        raise ValueError("its weights are quantized")
    config = _translated(CLIPConfig.from_dict(said))
    require_bounded(config, {})
    return config


def _translated(config: Any) -> dict[str, Any]:
    vision, text = config.vision_config, config.text_config
    quick = {tower.hidden_act == "quick_gelu" for tower in (vision, text)}
    if len(quick) > 1:
        raise ValueError(f"its towers use {vision.hidden_act} and {text.hidden_act}; both QuickGELU or none")
    if vision.num_channels != 3:
        raise ValueError(f"num_channels is {vision.num_channels}, not 3")
    if text.eos_token_id == LEGACY_EOS:
        end = {"pool_type": "argmax"}
    else:
        end = {"pool_type": "eos", "eos_id": text.eos_token_id}
    return {
        "embed_dim": config.projection_dim,
        "quick_gelu": quick.pop(),
        "vision_cfg": _tower(vision)
        | {
            "image_size": vision.image_size,
            "patch_size": vision.patch_size,
            "head_width": vision.hidden_size // vision.num_attention_heads,
        },
        "text_cfg": _tower(text)
        | {
            "context_length": text.max_position_embeddings,
            "vocab_size": text.vocab_size,
            "heads": text.num_attention_heads,
            **end,
        },
    }


def _tower(tower: Any) -> dict[str, Any]:
    """The settings that both towers have."""
    width, inner = tower.hidden_size, tower.intermediate_size
    if width % tower.num_attention_heads:
        raise ValueError(f"hidden_size {width} is not a multiple of {tower.num_attention_heads} heads")
    if tower.hidden_act not in ("quick_gelu", "gelu"):
        raise ValueError(f"hidden_act is {tower.hidden_act[:40]!r}")
    ratio = inner / width
    named: dict[str, Any] = {
        "width": width,
        "layers": tower.num_hidden_layers,
        # open_clip cuts the product to a whole number
        "mlp_ratio": ratio if int(width * ratio) == inner else (inner + 0.5) / width,
    }
    if tower.layer_norm_eps != 1e-5:
        named["norm_kwargs"] = {"eps": tower.layer_norm_eps}
    return named


def read_preprocessing(folder: Path, side: int) -> dict[str, Any]:
    """open_clip's preprocessing configuration from the processor's files in a folder.

    side: the images' side in pixels. Raises ValueError, and others.
    """
    from transformers import CLIPImageProcessorPil

    processor: Any = CLIPImageProcessorPil.from_pretrained(folder, local_files_only=True)
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


def cropping(transform: Any) -> Any:
    """open_clip's transform with the crop of transformers, which cuts an odd pixel off at the end."""
    from torchvision.transforms import CenterCrop, Compose

    steps = [
        partial(_crop, size=step.size) if isinstance(step, CenterCrop) else step
        for step in transform.transforms
    ]
    return Compose(steps)


def _crop(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    height, width = size
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
