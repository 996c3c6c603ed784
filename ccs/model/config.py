"""open_clip_config.json, which anyone may have written: what must hold before open_clip builds from it.

Whether its entries fit together is for open_clip, timm and torch to say, which build the model without memory
first. Here numbers are bounded, keywords that are passed on are listed, and names of other models and
tokenizers must be ones that open_clip's own architectures use.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ccs.errors import InputError
from ccs.model.towers import convolutional

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


def read_config(text: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration of the model and of the preprocessing: `model_cfg`, `preprocess_cfg`.

    text: the content of an open_clip_config.json; name: its name in errors. Raises InputError for anything
    that is not JSON, names what is not known, or is out of bounds.
    """
    try:
        found = json.loads(text)
        model, preprocess = found["model_cfg"], found.get("preprocess_cfg") or {}
        require_bounded(model)
        require_bounded(preprocess)
        if model["vision_cfg"].get("timm_model_name"):
            model["vision_cfg"]["timm_model_pretrained"] = False
        if model["text_cfg"].get("hf_model_name"):
            model["text_cfg"]["hf_model_pretrained"] = False
    except Exception as error:  # JSON of any shape
        raise InputError(
            f"{name} is not an open_clip configuration that can be used: {reason(error)}."
        ) from None
    return model, preprocess


def require_bounded(config: Any, key: str = "") -> None:
    """Raise ValueError for a number, a keyword or a name in a configuration that is not allowed there."""
    if isinstance(config, dict):
        if unknown := set(config) - _KEYWORDS.get(key, set(config)):
            raise ValueError(f"{key} has an unknown entry {min(unknown)!r}")
        if key == "vision_cfg" and not config.get("timm_model_name"):
            _require_few_patches(config)
        for name, value in config.items():
            require_bounded(value, name)
    elif isinstance(config, list):
        for value in config:
            require_bounded(value, key)
    elif isinstance(config, int | float):
        most = _MOST.get(key, _MOST_OTHERWISE)
        if not _LEAST <= config <= most:  # NaN too
            raise ValueError(f"{key} is {config}; {most} is the most")
    elif key in _NAMES and config and config not in _used_by_open_clip(key):
        raise ValueError(f"{key} is {config[:100]!r}, which no architecture of open_clip uses")


def _require_few_patches(vision: dict[str, Any]) -> None:
    side, patch = vision.get("image_size", 224), vision.get("patch_size") or 16
    if max(side if isinstance(side, list) else [side]) > _PATCHES * patch:
        raise ValueError(f"patches of {patch} cut {side} into more than {_PATCHES} a side")


@cache
def _used_by_open_clip(key: str) -> frozenset[str]:
    """The names that open_clip's architectures have in that field, and our own."""
    import open_clip

    convolutional.register()
    towers = [
        tower
        for name in open_clip.list_models()
        for tower in open_clip.get_model_config(name).values()
        if isinstance(tower, dict)
    ]
    return frozenset(tower[key] for tower in towers if tower.get(key)) | {convolutional.NAME}


def reason(error: BaseException) -> str:
    """The error in words and in one line, with its kind where the words were not written for people."""
    words = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, KeyError):
        return f"there is no {words}"
    return words if type(error) is ValueError else f"{type(error).__name__}: {words}".rstrip(": ")
