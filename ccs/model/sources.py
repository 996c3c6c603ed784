"""Where models come from: this package, a folder, open_clip's registry or the Hub; and why some cannot."""

from __future__ import annotations

import difflib
import math
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ccs.errors import InputError
from ccs.model.config import MAX_CONFIG_BYTES, OPEN_CLIP_TOKENS, read_config

UNTRAINED = "random"
"""The tag of an architecture with untrained weights."""

HUB, FOLDER = "hf-hub:", "local-dir:"
CONFIG_FILE = "open_clip_config.json"
WEIGHTS_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_WEIGHTS_BYTES = 24 * 2**30

_EMBEDDED = Path(__file__).parents[1] / "world" / "models"


@dataclass(frozen=True)
class Source:
    """A model that has been found but not loaded.

    config: open_clip's configuration of it, checked unless open_clip's own. where: its weights' place, for
    messages. folder, repository: the place itself; neither for a name of open_clip's registry.
    """

    name: str
    architecture: str
    tag: str
    open_clip_name: str
    config: dict[str, Any]
    quick_gelu: bool
    where: str
    preprocess: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    repository: str = ""


def embedded() -> tuple[str, ...]:
    """Names of the models that come with this package."""
    return tuple(sorted(path.parent.name for path in _EMBEDDED.glob(f"*/{CONFIG_FILE}")))


def is_public(name: str) -> bool:
    """True for an embedded model and for open_clip's name/tag: names that select nothing but themselves."""
    return name in embedded() or _registered(name) is not None


def find(name: str) -> Source:
    """The model of that name. Raises InputError, with close matches, if there is none."""
    name = name.strip()
    if name in embedded():
        return _folder(_EMBEDDED / name, name)
    if name.startswith(HUB):
        return _hub(name)
    if not name.startswith(FOLDER) and (known := _registered(name)) is not None:
        return known
    if (path := _existing_folder(name.removeprefix(FOLDER))) is not None:
        return _folder(path, path.name)
    raise InputError(_unknown(name[:100]))


def _existing_folder(name: str) -> Path | None:
    try:
        path = Path(name).expanduser().resolve()
        return path if name and path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None  # too long, an unknown user's home or a null byte


def _registered(name: str) -> Source | None:
    import open_clip

    architecture, _, tag = name.rpartition("/")
    architecture = architecture.replace("/", "-")
    if architecture not in open_clip.list_models():
        return None
    config = open_clip.get_model_config(architecture)
    quick_gelu = bool(config.get("quick_gelu", False))
    if tag == UNTRAINED:
        return Source(f"{architecture}/{tag}", architecture, tag, architecture, config, quick_gelu, "")
    pretrained = open_clip.get_pretrained_cfg(architecture, tag)
    if not pretrained:
        return None
    trained_with = bool(pretrained.get("quick_gelu", False))
    if quick_gelu and not trained_with:
        raise InputError(
            f"The architecture {architecture} uses QuickGELU and the weights {tag!r} were trained with GELU; "
            "their embeddings would be silently wrong. Name the architecture without QuickGELU."
        )
    repository = str(pretrained.get("hf_hub") or "").rstrip("/")
    where = f"the Hub's {repository}" if repository else str(pretrained.get("url", ""))
    return Source(f"{architecture}/{tag}", architecture, tag, architecture, config, trained_with, where)


def _folder(path: Path, name: str) -> Source:
    file = path / CONFIG_FILE
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise InputError(
            f"The folder {path.name} is not an open_clip model: it has no {file.name}."
        ) from None
    except OSError as error:
        raise InputError(f"{path.name}/{file.name} cannot be read: {error.strerror}.") from None
    source = _from_config(name, f"{FOLDER}{path}", text, f"the folder {path.name}")
    return replace(source, folder=path)


def _hub(name: str) -> Source:
    repository = name.removeprefix(HUB)
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repository, re.ASCII) or ".." in repository:
        raise InputError(f"{name[:100]!r} is no repository on the Hub; one looks like {HUB}USER/NAME.")
    where = f"the Hub's {repository}"
    _require_connection(name, where, repository, CONFIG_FILE)
    try:
        text = _fetched(repository, CONFIG_FILE, MAX_CONFIG_BYTES).read_bytes()
    except Exception as error:  # the Hub's client has dozens; all mean the same to the user
        raise InputError(_no_weights(name, where, error)) from error
    return replace(_from_config(name, name, text, where), repository=repository)


def _fetched(repository: str, file: str, limit: int) -> Path:
    """A file of a repository on the Hub, from the cache or fetched now unless it is larger than `limit`."""
    import huggingface_hub

    endpoint = _endpoint()
    if not isinstance(huggingface_hub.try_to_load_from_cache(repository, file), str):
        address = huggingface_hub.hf_hub_url(repository, file, endpoint=endpoint)
        size = huggingface_hub.get_hf_file_metadata(address, endpoint=endpoint).size
        if size is None or size > limit:
            raise ValueError(f"{file} has {size} bytes; at most {limit} are fetched")
    return Path(huggingface_hub.hf_hub_download(repository, file, endpoint=endpoint))


def _from_config(name: str, open_clip_name: str, text: bytes, where: str) -> Source:
    config, preprocess = read_config(text, f"{CONFIG_FILE} of {where}")
    vision = config["vision_cfg"]
    size = "x".join(str(vision.get(key, "?")) for key in ("layers", "width"))
    architecture = f"ViT {size}, patch {vision.get('patch_size', '?')}, {vision.get('image_size', '?')} px"
    quick_gelu = bool(config.get("quick_gelu", False))
    return Source(name, architecture, "", open_clip_name, config, quick_gelu, where, preprocess)


def refuse_without_cls_readout(source: Source) -> None:
    """Say so before anything is downloaded. The tower checks again what has been built."""
    vision = source.config["vision_cfg"]
    reason = ""
    if vision.get("timm_model_name"):
        reason = f"its image tower is timm's {vision['timm_model_name']}, which open_clip only wraps"
    elif isinstance(vision.get("layers"), list | tuple):
        reason = "its image tower is a ResNet and has no attention heads below its pooling"
    elif vision.get("attentional_pool"):
        reason = "it pools its tokens by attention"
    elif vision.get("pool_type", "tok") != "tok":
        reason = f"its tokens are pooled by {vision['pool_type']!r}"
    if reason:
        raise InputError(
            f"{source.name} cannot be taken apart by head because {reason}; what is needed is a Vision "
            "Transformer whose embedding is read from the CLS token."
        )


def create(source: Source, device: torch.device) -> tuple[Any, Any]:
    """open_clip's model, ready for use, and its tokenizer. Raises InputError if its weights cannot be had."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            known = source.folder is None and not source.repository
            clip, tokenizer = _known(source) if known else _built(source)
        _require_finite(clip, source.name)
        if not known:
            _require_finite_outputs(clip.eval(), tokenizer)
    except InputError:
        raise
    except Exception as error:  # open_clip, safetensors, torch and the Hub have dozens
        raise InputError(_no_weights(source.name, source.where, error)) from error
    return clip.to(device).eval().requires_grad_(False), tokenizer


def _require_finite(clip: Any, name: str) -> None:
    for parameter, values in clip.named_parameters():
        if not torch.isfinite(values).all():
            raise InputError(f"The weights of {name} are not all finite numbers: {parameter} is not.")


def _known(source: Source) -> tuple[Any, Any]:
    """A model of open_clip's registry, by its own loader."""
    import open_clip

    untrained = source.tag == UNTRAINED
    if not untrained:
        found = open_clip.get_pretrained_cfg(source.architecture, source.tag)
        _require_connection(source.name, source.where, str(found.get("hf_hub") or "").rstrip("/"))
    clip = open_clip.create_model(
        source.open_clip_name,
        None if untrained else source.tag,
        force_quick_gelu=source.quick_gelu,
        require_pretrained=not untrained,
        weights_only=True,  # some tags have nothing but a pickle; then tensors are read and nothing is run
    )
    return clip, open_clip.get_tokenizer(source.open_clip_name)


def _built(source: Source) -> tuple[Any, Any]:
    """A model made from a checked configuration and a safetensors file, and from nothing else there.

    open_clip's loader is not asked: it would read the configuration anew, take a pickle where there is no
    other file, and hand the tokenizer's keywords on to transformers.
    """
    import open_clip
    from open_clip.model import CLIP, CustomTextCLIP, set_model_preprocess_cfg
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict

    settings = {key: value for key, value in source.config.items() if key != "custom_text"}
    vision, text = dict(settings["vision_cfg"]), dict(settings["text_cfg"])
    if vision.get("timm_model_name"):
        vision["timm_model_pretrained"] = False
    if text.get("hf_model_name"):
        text["hf_model_pretrained"] = False
    settings |= {"vision_cfg": vision, "text_cfg": text}
    kind = CustomTextCLIP if source.config.get("custom_text") or text.get("hf_model_name") else CLIP
    weights = _weights(source)
    with torch.device("meta"):  # shapes without memory
        wanted = sum(values.numel() for values in kind(**settings).state_dict().values())
    held = _held(weights)
    # Positions may be interpolated from fewer; otherwise the file holds what the configuration describes.
    if wanted > 2 * held + 10**7:
        raise ValueError(f"{CONFIG_FILE} describes {wanted:,} weights, {weights.name} holds {held:,}")
    clip = kind(**settings)
    open_clip.load_checkpoint(clip, str(weights))
    preprocess = merge_preprocess_dict(PreprocessCfg(), source.preprocess)
    set_model_preprocess_cfg(clip, preprocess | {"size": clip.visual.image_size})
    tokenizer = _tokenizer(text)
    return clip, tokenizer


def _weights(source: Source) -> Path:
    """The safetensors file of a folder or repository; ValueError where there is only a pickle, or nothing."""
    if source.repository:
        return _fetched(source.repository, WEIGHTS_FILES[0], MAX_WEIGHTS_BYTES)
    assert source.folder is not None
    for name in WEIGHTS_FILES:
        if (file := source.folder / name).is_file():
            return file
    pickles = sorted(path.name for path in source.folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise ValueError(
            f"{pickles[0]} is a pickle, which can run any program when it is read; "
            "convert it to safetensors where you trust it"
        )
    raise ValueError(f"there is no {WEIGHTS_FILES[0]}")


def _held(weights: Path) -> int:
    """How many numbers a safetensors file holds, from its header."""
    from safetensors import safe_open

    with safe_open(weights, "pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def _tokenizer(text: dict[str, Any]) -> Any:
    """open_clip's own tokenizer, or one of the Hub's named in the allow-list, without any code of its own."""
    from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

    length = text.get("context_length", 77)
    if not (name := text.get("hf_tokenizer_name")):
        return SimpleTokenizer(context_length=length)
    mode, keywords = text.get("tokenizer_mode"), text.get("tokenizer_kwargs") or {}
    tokenizer = HFTokenizer(
        name, context_length=length, tokenizer_mode=mode, trust_remote_code=False, **keywords
    )
    if not text.get("hf_model_name") and len(tokenizer.tokenizer) > text.get("vocab_size", OPEN_CLIP_TOKENS):
        raise ValueError(f"its tokenizer knows {len(tokenizer.tokenizer):,} tokens, more than its vocab_size")
    return tokenizer


def _require_finite_outputs(clip: Any, tokenizer: Any) -> None:
    """One blank image and one text: weights may be finite and yet overflow."""
    side = clip.visual.image_size
    height, width = side if isinstance(side, tuple | list) else (side, side)
    with torch.no_grad():
        out = clip(torch.zeros(1, 3, height, width), tokenizer(["a photo"]))
    if not all(torch.isfinite(part).all() for part in out[:3]):
        raise ValueError("the embeddings that they give are not finite numbers")


def _require_connection(name: str, where: str, repository: str, file: str | None = None) -> None:
    """Without a connection the Hub's client tries for a minute; look once, and only if nothing is cached."""
    if not repository:
        return
    import huggingface_hub

    files = [file] if file else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if any(isinstance(huggingface_hub.try_to_load_from_cache(repository, each), str) for each in files):
        return
    try:
        huggingface_hub.get_session().head(_endpoint(), timeout=5)
    except Exception as error:  # whatever went wrong, there is no way to the weights
        raise InputError(_no_weights(name, where, error)) from error


def _endpoint() -> str:
    """The Hub's address, looked up now: its client reads it once, when it is imported."""
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT


def _no_weights(name: str, where: str, error: Exception) -> str:
    reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return (
        f"The weights of {name} could not be loaded from {where} ({without_folders(reason)[:300]}); "
        f"what works offline is {', '.join(embedded())} or a folder with {CONFIG_FILE} "
        f"and {WEIGHTS_FILES[0]}."
    )


def without_folders(words: str) -> str:
    """The words with each absolute path cut to its last part: no visitor is shown where things lie here."""
    return re.sub(r"(?<![\w/:.])~?(?:/[^\s/'\"]+)+/", "", words)


def _unknown(name: str) -> str:
    import open_clip

    architecture, _, tag = name.rpartition("/")
    if tags := open_clip.list_pretrained_tags_by_model(name):
        return f"{name} needs the name of its weights, such as {name}/{tags[0]}; there are {', '.join(tags)}."
    if tags := open_clip.list_pretrained_tags_by_model(architecture):
        return f"{architecture} has no weights {tag!r}; there are {', '.join(tags)}."
    names = [*embedded(), *("/".join(pair) for pair in open_clip.list_pretrained())]
    by_lower = {known.lower(): known for known in names}
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, 3, 0.5)]
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return (
        f"There is no model {name!r}: it is neither embedded ({', '.join(embedded()) or 'none is'}), "
        f"nor open_clip's name/tag, nor a folder.{hint}"
    )


def usable_device(name: str) -> torch.device:
    """The device of that name. Raises InputError if it is not here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"The device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device
