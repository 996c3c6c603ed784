"""Build a model from its source. Weights are read, and no code from its files is run."""

import itertools
import json
import re
import runpy
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import torch

from ccs.errors import InputError
from ccs.model.loading import weights
from ccs.model.loading.config import MAX_CONFIG_BYTES, OPEN_CLIP_TOKENS
from ccs.model.loading.fetching import Place, require_connection
from ccs.model.loading.footprint import require_room
from ccs.model.loading.sources import UNTRAINED, Source, find_model, no_weights, untrained, usable_device
from ccs.model.loading.tokens import MAX_BYTES, HubTokenizer, vocabulary

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_WEIGHTS_BYTES = 24 * 2**30


def create(name: str, device: str) -> tuple[Source, Any, Any]:
    """Find a model, and build its module, ready for use, and its tokenizer.

    Args:
        name: As in `ccs.load`.
        device: As in `ccs.load`.

    Raises:
        InputError: If there is no such model or not enough memory, or the weights can't be loaded or aren't
            finite.
    """
    source = find_model(name)
    require_room(source.name, source.memory)
    place = usable_device(device)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            clip, tokenizer = _known(source) if source.place is None else _built(source, source.place)
    except InputError:
        raise
    except Exception as error:  # open_clip, safetensors, torch, and the Hub raise dozens of exception types
        raise InputError(no_weights(source.name, source.location, error)) from error
    for weight, values in clip.named_parameters():
        if not torch.isfinite(torch.stack(torch.aminmax(values))).all():  # without a copy of the largest
            raise InputError(f"The weights of {source.name} are not all finite numbers: {weight} is not.")
    return replace(source), clip.to(place).eval().requires_grad_(False), tokenizer


def _known(source: Source) -> tuple[Any, Any]:
    """Return a model of open_clip's registry, loaded by open_clip."""
    import open_clip
    from huggingface_hub import try_to_load_from_cache

    random, files = source.tag == UNTRAINED, ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
    cached = (isinstance(try_to_load_from_cache(source.repository, name), str) for name in files)
    if source.repository and not any(cached):
        require_connection()
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
    """Return a model from a checked configuration and safetensors files only.

    open_clip's `create_model` isn't used: it would accept a pickle if there is no other file.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file

    text, is_siglip = source.config["text_cfg"], source.checkpoint == "siglip"
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
        files, tokenizer = [_first(place, weights.WEIGHTS_FILES)], _tokenizer(text, place)
    names = set[str]()
    for weights_file in files:
        with safe_open(weights_file, "pt") as file:  # reads the header only
            names.update(file.keys())
    weights.require_plain_names(names)
    wanted, held = source.values, sum(file.stat().st_size for file in files)
    # Positions may be interpolated from fewer; otherwise the files hold what the configuration describes.
    if wanted > held + 10**7:  # a weight has two bytes or more
        raise ValueError(f"{wanted:,} weights are described, {files[0].name} has {held:,} bytes")
    clip = source.shapes if source.is_plain else untrained(source)  # a bundled model is small
    if source.checkpoint:
        tensors = itertools.chain.from_iterable(load_file(file).items() for file in files)
        clip.load_state_dict(weights.renamed(tensors, is_siglip))
    elif weights.WORDS in names:
        clip.load_state_dict(weights.with_all_words(load_file(files[0]), text["vocab_size"]))
    else:
        import open_clip

        open_clip.load_checkpoint(clip, str(files[0]))
    return clip, tokenizer


def _first(place: Place, names: Sequence[str]) -> Path:
    """Return the first of these files that exists; ValueError if there is only a pickle, or nothing."""
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
    """Return the safetensors files of a checkpoint: one, or those in its index, which may name no others."""
    index = place.read(weights.INDEX_FILE, MAX_CONFIG_BYTES)
    if index is None:
        return [_first(place, (weights.WEIGHTS_FILE,))]
    names = sorted(set(json.loads(index)["weight_map"].values()))
    if not names or not all(re.fullmatch(r"[\w.-]{1,90}\.safetensors", name, re.ASCII) for name in names):
        raise ValueError(f"{weights.INDEX_FILE} must name safetensors files in its folder")
    return [_first(place, (name,)) for name in names]


def _tokenizer(text: dict[str, Any], weights_place: Place | None = None) -> Any:
    """Return the tokenizer of a text encoder: open_clip's, or the one that its configuration names.

    The latter is read from files next to the weights, otherwise from the Hub.
    """
    length, size = text.get("context_length", 77), text.get("vocab_size", OPEN_CLIP_TOKENS)
    if not (name := text.get("hf_tokenizer_name")):
        if size < OPEN_CLIP_TOKENS and not text.get("hf_model_name"):
            raise ValueError(f"vocab_size {size} is less than the tokenizer's {OPEN_CLIP_TOKENS}")
        tokenizer = copy(_open_clips_tokenizers()["_tokenizer"])  # to read its vocabulary again takes 0.1 s
        tokenizer.context_length = length
        return tokenizer
    if text.get("tokenizer_mode"):
        raise ValueError(f"its tokenizer's mode {text['tokenizer_mode']!r} is not supported")
    keywords = text.get("tokenizer_kwargs") or {}
    clean = _open_clips_tokenizers()["get_clean_fn"](keywords.get("clean", "whitespace"))
    rows = sys.maxsize if text.get("hf_model_name") else size
    try:
        place = weights_place
        if place is None or place.file("tokenizer.json", MAX_BYTES) is None:
            place = Place(repository=name)
        return HubTokenizer(place, length, rows, clean, bool(keywords.get("strip_sep_token")))
    except Exception as error:  # the Hub's client raises dozens of exception types
        raise ValueError(f"its tokenizer, the Hub's {name}, can't be loaded: {error}") from error


@cache
def _open_clips_tokenizers() -> dict[str, Any]:
    """Return open_clip's module of tokenizers, without the package around it, whose import takes seconds."""
    if "open_clip" in sys.modules:
        return vars(import_module("open_clip.tokenizer"))
    return runpy.run_path(str(distribution("open_clip_torch").locate_file("open_clip/tokenizer.py")))
