"""Which models there are, how each is loaded, and what one can ask of it."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.tower import ImageTower, Trunk

Images = Sequence[Image.Image] | Tensor
"""Pictures (any sequence, decoded one at a time when needed) or pixels [n, 3, s, s] made by `preprocess`."""

_EMBEDDED = Path(__file__).parent / "world" / "models"
_PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_UNTRAINED = "random"


class Contributions(NamedTuple):
    """Direct effects of heads [images, L, H, dim], and of all else [images, dim]; together the embedding."""

    direct: np.ndarray
    remainder: np.ndarray


@dataclass(frozen=True)
class _Source:
    """A model that has been found but not loaded: what open_clip is to be asked for."""

    name: str
    architecture: str
    tag: str
    open_clip_name: str
    config: dict[str, Any]
    quick_gelu: bool
    where: str


def load(name: str, *, device: str = "cpu", precision: str = "fp32") -> Model:
    """Load a model.

    name: an embedded model ("organism"), open_clip's name and tag ("ViT-B-32/openai"), a folder with
    open_clip_config.json and weights, or a repository of that format on the Hub ("hf-hub:org/name"). The tag
    "random" gives an architecture with untrained weights from a fixed seed, for timing and for tests.
    precision: "fp32", or "bf16"/"fp16" to embed images under autocast; contributions and texts stay fp32.

    Raises InputError for an unknown name (with close matches), an image tower without a CLS read-out, an
    activation that does not fit the weights (QuickGELU), weights that cannot be had or that are not finite.
    """
    if precision not in _PRECISIONS:
        raise InputError(f"The precision {precision!r} is not one of {', '.join(_PRECISIONS)}.")
    source = _find(name)
    _refuse_without_cls_readout(source)
    clip, tokenizer = _create(source, _device(device))
    for parameter, values in clip.named_parameters():
        if not torch.isfinite(values).all():
            raise InputError(f"The weights of {source.name} are not all finite numbers: {parameter} is not.")
    return Model(source, clip, tokenizer, _PRECISIONS[precision])


def embedded() -> tuple[str, ...]:
    """Names of the models that come with this package."""
    return tuple(sorted(path.parent.name for path in _EMBEDDED.glob("*/open_clip_config.json")))


class Model:
    """A CLIP model whose image tower runs with any heads off. Made by `ccs.load`; threads may share it.

    name: what results are filed under. architecture, tag: open_clip's, or a description and "" for a folder.
    heads: the heads that the study scores, those of the last four layers; heads of earlier layers can be
    switched off too. tower: the image tower itself. clip: open_clip's module. open_clip_name, config and
    preprocess_config: what open_clip makes such a model from.
    """

    def __init__(self, source: _Source, clip: Any, tokenizer: Any, autocast: torch.dtype | None) -> None:
        from open_clip.transform import PreprocessCfg, image_transform_v2

        self.name, self.architecture, self.tag = source.name, source.architecture, source.tag
        self.open_clip_name = source.open_clip_name
        self.config = {**source.config, "quick_gelu": source.quick_gelu}
        self.clip = clip
        self.tower = ImageTower(clip.visual, autocast)
        self.preprocess_config: dict[str, Any] = dict(clip.visual.preprocess_cfg)
        self._tokenizer = tokenizer
        self._transform: Callable[[Image.Image], Tensor] = image_transform_v2(
            PreprocessCfg(**self.preprocess_config), is_train=False
        )
        self.heads = self.tower.heads
        self.n_layers, self.n_heads = self.tower.n_layers, self.tower.n_heads
        self.dim, self.head_dim = self.tower.dim, self.tower.head_dim
        self.image_size = self.tower.image_size[0]
        self.logit_scale = float(clip.logit_scale.detach().exp())

    def __repr__(self) -> str:
        return f"<Model {self.name}: {self.n_layers} layers of {self.n_heads} heads, {self.image_size} px>"

    @cached_property
    def weights_hash(self) -> str:
        """sha256 of all weights, image and text tower, by name, as float32: what results are keyed by."""
        digest = hashlib.sha256()
        for name, values in sorted(self.clip.state_dict().items()):
            digest.update(f"{name} {tuple(values.shape)}\n".encode())
            digest.update(np.ascontiguousarray(values.float().cpu().numpy()).data)
        return digest.hexdigest()

    def preprocess(self, images: Sequence[Image.Image]) -> Tensor:
        """Pixels [n, 3, s, s] float32, in the model's own size, mean and deviation."""
        height, width = self.tower.image_size
        pixels = torch.empty(len(images), 3, height, width)
        for index in range(len(images)):
            image = images[index]
            if not isinstance(image, Image.Image):
                raise InputError(f"Image {index} is {type(image).__name__}, not a picture (PIL.Image).")
            pixels[index] = self._transform(image)
        return pixels

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
        """Unit vectors [texts, dim] float32. A text longer than the model's context is cut."""
        if isinstance(texts, str):
            raise InputError("embed_texts takes a list of texts, not a single one.")
        out = np.empty((len(texts), self.dim), np.float32)
        with torch.no_grad():
            for start in range(0, len(texts), batch_size):
                tokens = self._tokenizer(list(texts[start : start + batch_size])).to(self.tower.device)
                rows = self.clip.encode_text(tokens, normalize=True)
                out[start : start + batch_size] = rows.float().cpu().numpy()
        return out

    def embed_images(
        self,
        images: Images,
        off: HeadSet | Sequence[HeadSet] | None = None,
        batch_size: int | None = None,
    ) -> np.ndarray:
        """Unit vectors float32: [images, dim] with no or one HeadSet off, [plans, images, dim] with several.

        Work that plans share is done once. Memory is bounded by the batch, however many images or plans.
        """
        plans, single = self._plans(off)
        out = np.empty((len(plans), _count(images), self.dim), np.float32)
        for rows, pixels in self.batches(images, batch_size):
            out[:, rows] = self.tower.embed(pixels, plans).cpu().numpy()
        return out[0] if single else out

    def trunk(self, images: Images, batch_size: int | None = None) -> Trunk:
        """The activations below the first prunable layer, to start `embed_trunk` from again and again."""
        parts = [self.tower.trunk(pixels) for _, pixels in self.batches(images, batch_size)]
        if not parts:
            empty = torch.empty(0, self.tower.n_tokens, self.tower.width, device=self.tower.device)
            return Trunk(empty, self.tower.first_prunable_layer)
        return Trunk(torch.cat([part.tokens for part in parts]), parts[0].layer)

    def embed_trunk(
        self,
        trunk: Trunk,
        off: HeadSet | Sequence[HeadSet] | None = None,
        batch_size: int | None = None,
    ) -> np.ndarray:
        """As `embed_images`, from the activations of `trunk`; only heads of `self.heads` can be off."""
        plans, single = self._plans(off)
        out = np.empty((len(plans), len(trunk), self.dim), np.float32)
        for rows in _slices(len(trunk), batch_size or self._batch_size):
            out[:, rows] = self.tower.embed_trunk(Trunk(trunk.tokens[rows], trunk.layer), plans).cpu().numpy()
        return out[0] if single else out

    def contributions(self, images: Images, batch_size: int | None = None) -> Contributions:
        """What each head writes to the unit embedding: float32 [images, L, H, dim], and the remainder."""
        n = _count(images)
        direct = np.empty((n, self.n_layers, self.n_heads, self.dim), np.float32)
        remainder = np.empty((n, self.dim), np.float32)
        for rows, pixels in self.batches(images, batch_size):
            heads, rest = self.tower.contributions(pixels)
            direct[rows], remainder[rows] = heads.cpu().numpy(), rest.cpu().numpy()
        return Contributions(direct, remainder)

    def pixels(self, images: Images) -> Tensor:
        """Pixels of pictures, or the given pixels once their shape has been checked."""
        if not isinstance(images, Tensor):
            return self.preprocess(images)
        expected = (3, *self.tower.image_size)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            wanted = ", ".join(map(str, expected))
            raise InputError(f"Pixels must be [n, {wanted}] for {self.name}, not {list(images.shape)}.")
        return images

    @property
    def _batch_size(self) -> int:
        tokens = 8_192 if self.tower.device.type == "cpu" else 131_072
        return max(1, tokens // self.tower.n_tokens)

    def batches(self, images: Images, batch_size: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """The images in bounded batches: where each stands, and its pixels [n, 3, s, s]."""
        for rows in _slices(_count(images), batch_size or self._batch_size):
            if isinstance(images, Tensor):
                yield rows, self.pixels(images[rows])
            else:  # by index: not every lazy sequence knows slices
                yield rows, self.preprocess([images[i] for i in range(rows.start, rows.stop)])

    def _plans(self, off: HeadSet | Sequence[HeadSet] | None) -> tuple[Sequence[HeadSet], bool]:
        if off is None or isinstance(off, HeadSet):
            plans, single = [off or HeadSet()], True
        else:
            plans, single = list(off), False
        for plan in plans:
            if not isinstance(plan, HeadSet):
                raise InputError(f"Heads to switch off are a HeadSet, not {plan!r}; see HeadSet.parse.")
            self.tower.require(plan)
        return plans, single


def _count(images: Images) -> int:
    if isinstance(images, Image.Image):
        raise InputError("Images are given as a list, also when there is only one.")
    return len(images)


def _slices(n: int, size: int) -> Iterator[slice]:
    if size < 1:
        raise InputError(f"A batch holds at least one image, not {size}.")
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


# -- finding and loading -------------------------------------------------------------------------------------


def _find(name: str) -> _Source:
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


def _registered(name: str) -> _Source | None:
    import open_clip

    architecture, _, tag = name.rpartition("/")
    architecture = architecture.replace("/", "-")
    config = open_clip.get_model_config(architecture) if architecture else None
    if config is None:
        return None
    quick_gelu = bool(config.get("quick_gelu", False))
    if tag == _UNTRAINED:
        return _Source(f"{architecture}/{tag}", architecture, tag, architecture, config, quick_gelu, "")
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
    return _Source(f"{architecture}/{tag}", architecture, tag, architecture, config, trained_with, where)


def _folder(path: Path, name: str) -> _Source:
    file = path / "open_clip_config.json"
    try:
        config = json.loads(file.read_text("utf-8"))["model_cfg"]
    except FileNotFoundError:
        raise InputError(f"The folder {path} is not an open_clip model: it has no {file.name}.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} is not an open_clip configuration with a 'model_cfg': {error!r}.") from None
    return _from_config(name, f"local-dir:{path}", config, str(path))


def _hub(name: str) -> _Source:
    import open_clip

    repository = name.removeprefix("hf-hub:")
    _require_connection(name, f"the Hub's {repository}", repository, "open_clip_config.json")
    try:
        config = open_clip.get_model_config(name)
    except Exception as error:  # the Hub's client has dozens; all mean the same to the user
        raise InputError(_no_weights(name, f"the Hub's {repository}", error)) from error
    return _from_config(name, name, config, f"the Hub's {repository}")


def _from_config(name: str, open_clip_name: str, config: dict[str, Any], where: str) -> _Source:
    vision = config.get("vision_cfg")
    if not isinstance(vision, dict):
        raise InputError(f"The configuration of {name} is not an open_clip model's: it has no 'vision_cfg'.")
    size = "x".join(str(vision.get(key, "?")) for key in ("layers", "width"))
    architecture = f"ViT {size}, patch {vision.get('patch_size', '?')}, {vision.get('image_size', '?')} px"
    quick_gelu = bool(config.get("quick_gelu", False))
    return _Source(name, architecture, "", open_clip_name, config, quick_gelu, where)


def _refuse_without_cls_readout(source: _Source) -> None:
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


def _create(source: _Source, device: torch.device) -> tuple[Any, Any]:
    import open_clip

    untrained = source.tag == _UNTRAINED
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


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"The device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device
