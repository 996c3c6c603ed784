"""Where models come from: this package, a folder, open_clip's registry or the Hub; and why some cannot."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ccs.errors import InputError

UNTRAINED = "random"
"""The tag of an architecture with untrained weights."""

_EMBEDDED = Path(__file__).parents[1] / "world" / "models"


@dataclass(frozen=True)
class Source:
    """A model that has been found but not loaded: what open_clip is to be asked for."""

    name: str
    architecture: str
    tag: str
    open_clip_name: str
    config: dict[str, Any]
    quick_gelu: bool
    where: str


def embedded() -> tuple[str, ...]:
    """Names of the models that come with this package."""
    return tuple(sorted(path.parent.name for path in _EMBEDDED.glob("*/open_clip_config.json")))


def find(name: str) -> Source:
    """The model of that name. Raises InputError, with close matches, if there is none."""
    name = name.strip()
    if name in embedded():
        return _folder(_EMBEDDED / name, name)
    if name.startswith("hf-hub:"):
        return _hub(name)
    known = _registered(name)
    if known is not None:
        return known
    path = Path(name.removeprefix("local-dir:")).expanduser()
    if name and path.is_dir():
        return _folder(path, path.resolve().name)
    raise InputError(_unknown(name))


def _registered(name: str) -> Source | None:
    import open_clip

    architecture, _, tag = name.rpartition("/")
    architecture = architecture.replace("/", "-")
    config = open_clip.get_model_config(architecture) if architecture else None
    if config is None:
        return None
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
    file = path / "open_clip_config.json"
    try:
        config = json.loads(file.read_text("utf-8"))["model_cfg"]
    except FileNotFoundError:
        raise InputError(f"The folder {path} is not an open_clip model: it has no {file.name}.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} is not an open_clip configuration with a 'model_cfg': {error!r}.") from None
    return _from_config(name, f"local-dir:{path}", config, str(path))


def _hub(name: str) -> Source:
    import open_clip

    repository = name.removeprefix("hf-hub:")
    _require_connection(name, f"the Hub's {repository}", repository, "open_clip_config.json")
    try:
        config = open_clip.get_model_config(name)
    except Exception as error:  # the Hub's client has dozens; all mean the same to the user
        raise InputError(_no_weights(name, f"the Hub's {repository}", error)) from error
    return _from_config(name, name, config, f"the Hub's {repository}")


def _from_config(name: str, open_clip_name: str, config: dict[str, Any], where: str) -> Source:
    vision = config.get("vision_cfg")
    if not isinstance(vision, dict):
        raise InputError(f"The configuration of {name} is not an open_clip model's: it has no 'vision_cfg'.")
    size = "x".join(str(vision.get(key, "?")) for key in ("layers", "width"))
    architecture = f"ViT {size}, patch {vision.get('patch_size', '?')}, {vision.get('image_size', '?')} px"
    quick_gelu = bool(config.get("quick_gelu", False))
    return Source(name, architecture, "", open_clip_name, config, quick_gelu, where)


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
    import open_clip

    untrained = source.tag == UNTRAINED
    pretrained = None if untrained else source.tag or None
    if pretrained:
        found = open_clip.get_pretrained_cfg(source.architecture, source.tag)
        _require_connection(source.name, source.where, str(found.get("hf_hub") or "").rstrip("/"))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            clip = open_clip.create_model(
                source.open_clip_name,
                pretrained,
                force_quick_gelu=source.quick_gelu,
                require_pretrained=not untrained,
                device=device,
            )
        tokenizer = open_clip.get_tokenizer(source.open_clip_name)
    except Exception as error:
        raise InputError(_no_weights(source.name, source.where, error)) from error
    return clip.eval().requires_grad_(False), tokenizer


def _require_connection(name: str, where: str, repository: str, file: str | None = None) -> None:
    """Without a connection the Hub's client tries for a minute; look once, and only if nothing is cached."""
    if not repository:
        return
    import huggingface_hub

    files = [file] if file else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if any(isinstance(huggingface_hub.try_to_load_from_cache(repository, each), str) for each in files):
        return
    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=5)
    except Exception as error:  # whatever went wrong, there is no way to the weights
        raise InputError(_no_weights(name, where, error)) from error


def _no_weights(name: str, where: str, error: Exception) -> str:
    return (
        f"The weights of {name} could not be loaded from {where} "
        f"({type(error).__name__}: {str(error)[:200]}); what works offline is {', '.join(embedded())} or a "
        "folder with open_clip_config.json and open_clip_model.safetensors."
    )


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
