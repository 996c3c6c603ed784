"""Build a model from its source. Weights are read, and no code from its files is run."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ccs.errors import InputError
from ccs.model.loading.config import MAX_CONFIG_BYTES, OPEN_CLIP_TOKENS
from ccs.model.loading.fetching import Place, require_connection
from ccs.model.loading.footprint import memory, require_room
from ccs.model.loading.sources import UNTRAINED, Source, no_weights, untrained
from ccs.model.loading.tokens import MAX_BYTES, HubTokenizer, vocabulary
from ccs.model.loading.weights import (
    INDEX_FILE,
    WEIGHTS_FILE,
    WEIGHTS_FILES,
    WORDS,
    renamed,
    require_plain_names,
    shards,
    with_all_words,
)

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_WEIGHTS_BYTES = 24 * 2**30


def create(source: Source, device: torch.device) -> tuple[Any, Any]:
    """Build open_clip's model, ready for use, and its tokenizer.

    Args:
        source: The model.
        device: The device of its weights.

    Raises:
        InputError: If the weights can't be loaded or aren't finite.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            clip, tokenizer = _known(source) if source.place is None else _built(source, source.place)
        _require_finite(clip, source.name)
        if source.place is not None:
            _require_finite_outputs(clip.eval(), tokenizer)
    except InputError:
        raise
    except Exception as error:  # open_clip, safetensors, torch, and the Hub raise dozens of kinds
        raise InputError(no_weights(source.name, source.location, error)) from error
    return clip.to(device).eval().requires_grad_(False), tokenizer


def _require_finite(clip: Any, name: str) -> None:
    for parameter, values in clip.named_parameters():
        if not torch.isfinite(torch.stack(torch.aminmax(values))).all():  # without a copy of the largest
            raise InputError(f"The weights of {name} are not all finite numbers: {parameter} is not.")


def _known(source: Source) -> tuple[Any, Any]:
    """A model of open_clip's registry, loaded by open_clip."""
    import open_clip

    random = source.tag == UNTRAINED
    if source.repository:
        require_connection(source.repository, "open_clip_model.safetensors", "open_clip_pytorch_model.bin")
    clip = open_clip.create_model(
        source.architecture,
        None if random else source.tag,
        force_quick_gelu=source.config["quick_gelu"],
        require_pretrained=not random,
        weights_only=True,  # some tags have only a pickle; tensors are read from it, and no code is run
    )
    text = source.config["text_cfg"]
    if text.get("hf_model_name"):  # the text encoder itself is transformers' own
        return clip, open_clip.get_tokenizer(source.architecture)
    return clip, _tokenizer(text)


def _built(source: Source, place: Place) -> tuple[Any, Any]:
    """A model from a checked configuration and safetensors files only.

    open_clip's `create_model` isn't used: it would accept a pickle if there is no other file.
    """
    import open_clip
    from open_clip.model import set_model_preprocess_cfg
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict
    from safetensors.torch import load_file

    text = source.config["text_cfg"]
    is_siglip = source.checkpoint == "siglip"
    if source.checkpoint:
        files, missing = _shards(place), [] if source.preprocess else ["preprocessor_config.json"]
        if not is_siglip and text["vocab_size"] == OPEN_CLIP_TOKENS and vocabulary(place) is None:
            tokenizer = _tokenizer(text)  # CLIP's
            missing.append("tokenizer.json")
        else:
            clean = str.lower if is_siglip else str  # SigLIP was trained on texts without capitals
            tokenizer = HubTokenizer(place, text["context_length"], text["vocab_size"], clean)
        if missing:
            print(f"{source.name} has no {' and no '.join(missing)}: OpenAI's are used.", file=sys.stderr)
    else:
        files, tokenizer = [_first(place, WEIGHTS_FILES)], _tokenizer(text, place)
    shapes = {name: shape for file in files for name, shape in _shapes(file).items()}
    require_plain_names(shapes)
    wanted, held = source.values, sum(map(math.prod, shapes.values()))
    # Positions may be interpolated from fewer; otherwise the files hold what the configuration describes.
    if wanted > 2 * held + 10**7:
        raise ValueError(f"{wanted:,} weights are described, {files[0].name} holds {held:,}")
    size = sum(file.stat().st_size for file in files)
    require_room(source.name, memory(source, size, wanted))  # by the files that are read now
    clip = untrained(source)
    if source.checkpoint:
        tensors = itertools.chain.from_iterable(load_file(file).items() for file in files)
        clip.load_state_dict(renamed(tensors, is_siglip))
    elif WORDS in shapes:
        clip.load_state_dict(with_all_words(load_file(files[0]), text["vocab_size"]))
    else:
        open_clip.load_checkpoint(clip, str(files[0]))
    preprocess = merge_preprocess_dict(PreprocessCfg(), source.preprocess)
    set_model_preprocess_cfg(clip, preprocess | {"size": clip.visual.image_size})
    return clip, tokenizer


def _first(place: Place, names: Sequence[str]) -> Path:
    """The first of these files that exists; ValueError if there is only a pickle, or nothing."""
    for name in names:
        if (file := place.file(name, MAX_WEIGHTS_BYTES)) is not None:
            return file
    inside = [] if place.folder is None else place.folder.iterdir()
    if pickles := sorted(path.name for path in inside if path.suffix in PICKLES):
        raise ValueError(
            f"{pickles[0]} is a pickle, which can run any program when it is read; "
            "convert it to safetensors if you trust it"
        )
    raise ValueError(f"there is no {names[0]}")


def _shards(place: Place) -> list[Path]:
    """The safetensors files of a checkpoint: one, or those that its index names."""
    index = place.read(INDEX_FILE, MAX_CONFIG_BYTES)
    if index is None:
        return [_first(place, (WEIGHTS_FILE,))]
    files, left = [], MAX_WEIGHTS_BYTES
    for name in shards(index):
        if (file := place.file(name, left)) is None:
            raise ValueError(f"there is no {name}")
        files.append(file)
        left -= file.stat().st_size
    return files


def _shapes(weights: Path) -> dict[str, list[int]]:
    """The shapes of what a safetensors file holds, from its header."""
    from safetensors import safe_open

    with safe_open(weights, "pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118


def _tokenizer(text: dict[str, Any], weights_place: Place | None = None) -> Any:
    """The tokenizer of a text encoder: open_clip's, or the one that its configuration names.

    The latter is read from files next to the weights, otherwise from the Hub.
    """
    from open_clip.tokenizer import get_clean_fn

    length, size = text.get("context_length", 77), text.get("vocab_size", OPEN_CLIP_TOKENS)
    if not (name := text.get("hf_tokenizer_name")):
        if size < OPEN_CLIP_TOKENS and not text.get("hf_model_name"):
            raise ValueError(f"vocab_size {size} is less than the tokenizer's {OPEN_CLIP_TOKENS}")
        return _clips_tokenizer(length)
    if text.get("tokenizer_mode"):
        raise ValueError(f"its tokenizer's mode {text['tokenizer_mode']!r} is not supported")
    keywords = text.get("tokenizer_kwargs") or {}
    clean = get_clean_fn(keywords.get("clean", "whitespace"))
    rows = sys.maxsize if text.get("hf_model_name") else size
    try:
        place = weights_place
        if place is None or place.file("tokenizer.json", MAX_BYTES) is None:
            require_connection(name, "tokenizer.json")
            place = Place(repository=name)
        return HubTokenizer(place, length, rows, clean, bool(keywords.get("strip_sep_token")))
    except Exception as error:  # the Hub's client raises dozens of kinds
        raise ValueError(f"its tokenizer, the Hub's {name}, can't be loaded: {error}") from error


@lru_cache(maxsize=2)  # its 49,000 words take a tenth of a second and some megabytes
def _clips_tokenizer(length: int) -> Any:
    from open_clip.tokenizer import SimpleTokenizer

    return SimpleTokenizer(context_length=length)


def _require_finite_outputs(clip: Any, tokenizer: Any) -> None:
    """Embed an image and a text: finite weights may still overflow, and preprocessing may divide by zero."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    side = clip.visual.image_size
    size = tuple(side) if isinstance(side, tuple | list) else (side, side)
    transform = image_transform_v2(PreprocessCfg(**clip.visual.preprocess_cfg), is_train=False)
    with torch.no_grad():
        out = clip(transform(Image.new("RGB", size[::-1]))[None], tokenizer(["a photo"]))
    if not all(torch.isfinite(part).all() for part in out[:3]):
        raise ValueError("their embeddings are not finite numbers")
