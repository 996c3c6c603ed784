"""open_clip_config.json, which anyone may have written: what must hold before open_clip builds from it.

Whether its entries fit together is for open_clip, timm and torch to say, which build the model without memory
first. Here numbers are bounded, keywords that are passed on are listed, and names of other models and
tokenizers must be ones that open_clip's own architectures use.
"""

from __future__ import annotations

import json
from functools import cache
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


Names = dict[str, frozenset[str]]


def read_config(text: bytes, names: Names) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration of the model and of the preprocessing: `model_cfg`, `preprocess_cfg`.

    text: the content of an open_clip_config.json. names: `used_by_open_clip`. Raises ValueError, and
    others, for anything that is not JSON, names what is not known, or is out of bounds.
    """
    found = json.loads(text)
    model, preprocess = found["model_cfg"], found.get("preprocess_cfg") or {}
    require_bounded(model, names)
    require_bounded(preprocess, names)
    if model["vision_cfg"].get("timm_model_name"):
        model["vision_cfg"]["timm_model_pretrained"] = False
    if model["text_cfg"].get("hf_model_name"):
        model["text_cfg"]["hf_model_pretrained"] = False
    return model, preprocess


def require_bounded(config: Any, names: Names, key: str = "") -> None:
    """Raise ValueError for a number, a keyword or a name in a configuration that is not allowed there."""
    if isinstance(config, dict):
        if unknown := set(config) - _KEYWORDS.get(key, set(config)):
            raise ValueError(f"{key} has an unknown entry {min(unknown)!r}")
        if key == "vision_cfg" and not config.get("timm_model_name"):
            _require_few_patches(config)
        for name, value in config.items():
            require_bounded(value, names, name)
    elif isinstance(config, list):
        for value in config:
            require_bounded(value, names, key)
    elif isinstance(config, int | float):
        most = _MOST.get(key, _MOST_OTHERWISE)
        if not _LEAST <= config <= most:  # NaN too
            raise ValueError(f"{key} is {config}; {most} is the most")
    elif key in _NAMES and config and config not in names.get(key, ()):
        raise ValueError(f"{key} is {config[:100]!r}, which no architecture of open_clip uses")


def _require_few_patches(vision: dict[str, Any]) -> None:
    side, patch = vision.get("image_size", 224), vision.get("patch_size") or 16
    if max(side if isinstance(side, list) else [side]) > _PATCHES * patch:
        raise ValueError(f"patches of {patch} cut {side} into more than {_PATCHES} a side")


@cache
def used_by_open_clip() -> Names:
    """The names that open_clip's architectures have in each field that names another model, and our own."""
    import open_clip

    from ccs.model.towers import convolutional  # not where this module is read behind the gate

    convolutional.register()
    towers = [
        tower
        for name in open_clip.list_models()
        for tower in open_clip.get_model_config(name).values()
        if isinstance(tower, dict)
    ]
    own = frozenset({convolutional.NAME})
    return {key: own | frozenset(tower[key] for tower in towers if tower.get(key)) for key in _NAMES}
