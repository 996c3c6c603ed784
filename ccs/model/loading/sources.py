"""Find a model by name: in this package, a folder, open_clip's registry, or on the Hub."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccs import sandbox
from ccs.errors import InputError
from ccs.model.loading import config as configs
from ccs.model.loading.config import MAX_CONFIG_BYTES, read_config
from ccs.model.loading.fetching import Place
from ccs.sandbox import reason

if TYPE_CHECKING:
    import torch

    from ccs.model.encoder import ChosenLayers, Encoder

UNTRAINED = "random"
"""The tag of an architecture with untrained weights."""

HUB, FOLDER = "hf-hub:", "local-dir:"
AUTO, DEVICE = "auto", "CCS_DEVICE"
"""The name of the default device, and the environment variable that overrides it."""

CONFIG_FILE = "open_clip_config.json"

OVERHEAD = 2**29
"""Bytes of memory that a model in use needs besides its weights and attention."""

_EMBEDDED = Path(__file__).parents[2] / "bundled"


@dataclass(frozen=True)
class Source:
    """A model that isn't loaded yet.

    Attributes:
        name: The name that results are filed under.
        architecture: Name of the architecture in open_clip, or a description for a folder.
        tag: Tag of the weights in open_clip, "" for a folder.
        config: Its open_clip configuration, checked unless it is open_clip's own.
        location: The place of its weights, for messages.
        repository: The repository of its weights on the Hub, "" for other places.
        preprocess: Its preprocessing configuration.
        place: The place of its files; None for a name in open_clip's registry.
        checkpoint: The `model_type` of a Hugging Face checkpoint.
        is_plain: Whether it is a bundled model that is built without open_clip.
    """

    name: str
    architecture: str
    tag: str
    config: dict[str, Any]
    location: str
    repository: str = ""
    preprocess: dict[str, Any] = field(default_factory=dict)
    place: Place | None = None
    checkpoint: str = ""
    is_plain: bool = False

    @cached_property
    def shapes(self) -> Any:
        """The module without memory, and without a text encoder whose configuration is on the Hub."""
        import torch

        with torch.device("cpu" if self.is_plain else "meta"):  # "meta" imports torch._dynamo
            if not self.config["text_cfg"].get("hf_model_name"):
                return untrained(self)
            from open_clip.model import _build_vision_tower

            vision = dict(self.config["vision_cfg"]) | {"timm_model_pretrained": False}
            visual = _build_vision_tower(self.config["embed_dim"], vision, self.config["quick_gelu"])
            return torch.nn.ModuleDict({"visual": visual})

    @cached_property
    def values(self) -> int:
        """The number of its weights, without those of a text encoder of transformers' own."""
        return sum(values.numel() for values in self.shapes.state_dict().values())

    @cached_property
    def memory(self) -> int:
        """An upper bound for the bytes of memory of the module, the file that fills it, and a pass."""
        return known_encoder(self).attention_bytes + 8 * self.values + OVERHEAD


@cache
def embedded() -> tuple[str, ...]:
    """Return the names of the bundled models."""
    return tuple(sorted(path.parent.name for path in _EMBEDDED.glob(f"*/{CONFIG_FILE}")))


def list_models(pattern: str = "*") -> tuple[str, ...]:
    """Return names that `ccs.load` takes: the bundled models, then open_clip's with their tags.

    Repositories of the Hub ("hf-hub:org/name") and folders aren't listed. A few encoders are refused when
    they are loaded (docs/models.md).

    Args:
        pattern: A pattern with `*` for any letters, in any case.

    Examples:
        >>> list_models("organism*")
        ('organism', 'organism-control', 'organism-planted')
    """
    import open_clip

    known = (*embedded(), *("/".join(pair) for pair in open_clip.list_pretrained()))
    return tuple(name for name in known if fnmatch(name.lower(), pattern.lower()))


def is_public(name: str) -> bool:
    """Return whether this is a bundled model or open_clip's name/tag, but not for a folder or repository."""
    return name in embedded() or _registered(name) is not None


def find_model(name: str) -> Source:
    """Find a model by name.

    Args:
        name: As in `ccs.load`.

    Raises:
        InputError: If there is none, with close matches, or a repository's name has another form.
    """
    name = str(name).strip()
    if name in embedded():
        return _described(name, Place(folder=_EMBEDDED / name))
    if name.startswith(HUB):
        repository = name.removeprefix(HUB)
        if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repository, re.ASCII) or ".." in repository:
            raise InputError(f"{name[:100]!r} isn't a repository on the Hub; write {HUB}USER/NAME.")
        return _described(name, Place(repository=repository))
    if not name.startswith(FOLDER) and (known := _registered(name)) is not None:
        return known
    if (path := _existing_folder(name.removeprefix(FOLDER))) is not None:
        return _described(path.name, Place(folder=path))
    raise InputError(unknown(name[:100]))


def _existing_folder(name: str) -> Path | None:
    try:
        path = Path(name).expanduser().resolve()
        return path if name and path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None  # too long, the home of an unknown user, or a null byte


def _registered(name: str) -> Source | None:
    import open_clip

    architecture, _, tag = name.rpartition("/")
    architecture = architecture.replace("/", "-")
    if architecture not in open_clip.list_models():
        return None
    config = open_clip.get_model_config(architecture)
    quick_gelu, name = bool(config.get("quick_gelu", False)), f"{architecture}/{tag}"
    if tag == UNTRAINED:
        return Source(name, architecture, tag, config | {"quick_gelu": quick_gelu}, "")
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
    location = f"the Hub's {repository}" if repository else str(pretrained.get("url", ""))
    return Source(name, architecture, tag, config | {"quick_gelu": trained_with}, location, repository)


def _described(name: str, place: Place) -> Source:
    """Return the model of a place's configuration: open_clip's, or a Hugging Face checkpoint's."""
    checkpoint, preprocess = "", dict[str, Any]()  # open_clip's defaults are CLIP's
    try:
        if (text := place.read(CONFIG_FILE, MAX_CONFIG_BYTES)) is not None:
            config, preprocess = read_config(text)
        elif (text := place.read(configs.CONFIG_FILE, MAX_CONFIG_BYTES)) is not None:
            folder = place.folder_of(configs.PROCESSOR_FILES, MAX_CONFIG_BYTES)
            files, title = (text, folder and folder.resolve()), f"The configuration of {place}"
            config, checkpoint, preprocess = sandbox.run(
                configs.read_checkpoint, *files, title=title, memory=2**28
            )
            if not preprocess and checkpoint != "clip":
                raise InputError(f"There is no {configs.PROCESSOR_FILES[1]} in {place}; {configs.SAVED}")
        else:
            raise InputError(f"There is no model in {place}: it has neither {CONFIG_FILE} nor config.json.")
    except InputError:
        raise
    except Exception as error:  # the Hub's client raises dozens of exception types, all the same to the user
        raise InputError(no_weights(name, str(place), error)) from error
    vision = config["vision_cfg"]
    sizes = "ViT {}x{}, patch {}".format(*(vision.get(key, "?") for key in ("layers", "width", "patch_size")))
    is_bundled = place.folder is not None and place.folder.parent == _EMBEDDED
    return Source(
        name=name,
        architecture=f"{vision.get('timm_model_name') or sizes}, {vision.get('image_size', '?')} px",
        tag="",
        config=config | {"quick_gelu": bool(config.get("quick_gelu", False))},
        location=str(place),
        repository=place.repository,
        preprocess=preprocess,
        place=place,
        checkpoint=checkpoint,
        is_plain=is_bundled and "timm_model_name" not in vision,
    )


def known_encoder(source: Source, layers: ChosenLayers | None = None) -> Encoder:
    """Build the image encoder without memory or downloads.

    Args:
        source: The model.
        layers: As in `ccs.load`.

    Raises:
        InputError: If the heads of the encoder are unknown.
    """
    from ccs.model.encoder import Encoder

    try:
        return Encoder(source.shapes.visual, chosen=layers)
    except InputError as error:
        raise InputError(f"{source.name} can't be used. {error}") from None
    except Exception as error:  # an untrusted configuration: open_clip and timm raise anything
        raise InputError(f"{source.name} can't be used: it can't be built ({reason(error)[:200]}).") from None


def untrained(source: Source) -> Any:
    """Build open_clip's module by the source's configuration, before its weights are read."""
    if source.is_plain:
        from ccs.model.clip import PlainCLIP

        return PlainCLIP(**source.config)
    if source.checkpoint == "siglip":
        return configs.siglip_model(source.config)
    from open_clip.coca_model import CoCa
    from open_clip.model import CLIP, CustomTextCLIP

    settings = {key: value for key, value in source.config.items() if key != "custom_text"}
    if "multimodal_cfg" in settings:
        return CoCa(**settings)
    custom = source.config.get("custom_text") or settings["text_cfg"].get("hf_model_name")
    return (CustomTextCLIP if custom else CLIP)(**settings)


def no_weights(name: str, location: str, error: Exception) -> str:
    """Return the message for weights that can't be loaded.

    Args:
        name: The model's name.
        location: The place of its weights.
        error: The reason.
    """
    return (
        f"The weights of {name} can't be loaded from {location} ({without_folders(reason(error))[:300]}). "
        f"Offline, use {', '.join(embedded())}, or a folder with {CONFIG_FILE} and its weights."
    )


def without_folders(words: str) -> str:
    """Cut absolute paths to their last part, so that a message reveals no folders to visitors."""
    return re.sub(r"(?<![\w/:.])~?(?:/[^\s/'\"]+)+/", "", words)


def unknown(name: str) -> str:
    """Return the message for a name that selects no model, with close matches."""
    import open_clip

    architecture = name if name in open_clip.list_models() else name.rpartition("/")[0]
    if tags := open_clip.list_pretrained_tags_by_model(architecture):
        return f"{name} names no weights, such as {architecture}/{tags[0]}; there are {', '.join(tags)}."
    by_lower = {known.lower(): known for known in list_models()}
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, 3, 0.5)]
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
        hint += f" If it is a repository on the Hub, write {HUB}{name}."
    return (
        f"There is no model {name!r}: it is neither a bundled model ({', '.join(embedded()) or 'none'}), "
        f"nor open_clip's name/tag, nor a folder.{hint}"
    )


def usable_device(name: str) -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:N, or auto.

    "auto" is the device in CCS_DEVICE, otherwise cuda if there is a GPU, otherwise the CPU. On a Space with
    ZeroGPU it is the CPU: only functions that request a GPU have one, and they name it.

    Raises:
        InputError: If this machine doesn't have the device.
    """
    import torch

    if name == AUTO:
        name = os.environ.get(DEVICE, "").strip() or AUTO
    if name == AUTO:
        always = torch.cuda.is_available() and not os.environ.get("SPACES_ZERO_GPU")
        name = "cuda" if always else "cpu"
    try:
        probe = torch.zeros(1, device=torch.device(name))
        probe.tolist()  # fails on "meta", which has no values
        return probe.device  # with its index, as in cuda:0
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"The device {name!r} can't be used here: {reason(error)[:200]}.") from None
