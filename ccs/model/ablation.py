"""A model of the user's own, open_clip's or transformers': its heads switched off for the length of a `with`
block, and the CLIP inside a language model that sees.

What a head adds to the residual stream passes through its columns of the attention's output projection. Where
the projection is read these columns are multiplied by the head's factor, 0 for a head that is off: the head
adds nothing, later layers see that, and the projection's bias stays (the total effect, as of
`embed_images(images, off)`). The parameter itself is never written: its gradient is masked as the head is.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, TOWERS, Head, HeadSet, Intervention
from ccs.heads import factors as factors_of
from ccs.model.encoder import ChosenLayers
from ccs.model.encoders import take_apart as parts_of
from ccs.model.encoders import take_texts_apart
from ccs.model.loading.sources import HUB, without_folders
from ccs.model.loading.weights import renamed, siglip_renamed
from ccs.model.model import Model, load
from ccs.sandbox import reason

_LOCK = threading.RLock()
_WRAPPERS = ("_orig_mod", "module", "clip")
"""Where torch.compile, the parallel wrappers and `ccs.load` keep the model."""
_INSIDE = ("vision_tower", "vision_model", "visual")
"""Where models keep their image tower."""


@contextmanager
def heads_off(model: Any, heads: HeadSet | str) -> Iterator[HeadSet]:
    """Switch off heads of the towers of `model`; afterwards it is as before, to the bit.

        >>> import torch
        >>> from ccs import load
        >>> model = load("organism").clip    # an open_clip model, as create_model gives it
        >>> with heads_off(model, "L7.H1"):
        ...     features = model.encode_image(torch.zeros(1, 3, 72, 72))

    model: open_clip's CLIP, CoCa or one of its towers; transformers' CLIPModel, SiglipModel or
    MetaClip2Model, or one of their towers, with or without projection; what `ccs.load` returns; or
    transformers' LLaVA, LLaVA-OneVision, PaliGemma, Gemma 3, Idefics 3 or Qwen2.5-VL, whose image tower is
    inside. heads: names or a HeadSet, of any layer (T7.H3 is in the text tower); layers and heads count from
    0, and a pool is the layer after the last block. L9.H2=0.3 multiplies what a head writes. Blocks may be
    nested or overlap, in other threads too: a head is off while any of them lasts. Where a language model
    reads the image tower at an earlier layer than a head's (LLaVA at the one before the last), that head does
    nothing, and a warning says so.

    The weights stay whole. A model that is trained inside keeps what it learned; a head that is off gets a
    gradient of zero and stays off; a loss may call `backward` after the block (under gradient checkpointing
    it must be inside). What is saved inside has all its heads (`clip-ccs export` writes a model without
    some). A copy made inside, as by `deepcopy` or DataParallel, has these heads off while the block lasts.

    Raises InputError for a head that the model does not have, or a model without heads that can be told
    apart.
    """
    off = Intervention.of(heads)
    with heads_scaled(model, factors_of(off, "A block of heads_off")):
        yield off


@contextmanager
def heads_scaled(model: Any, factors: Mapping[Head, float]) -> Iterator[None]:
    """Multiply what heads of `model` write by their factors; afterwards it is as before, to the bit.

        >>> import torch
        >>> from ccs import Head, load
        >>> model = load("organism").clip
        >>> with heads_scaled(model, {Head.parse("L7.H1"): 0.3}):
        ...     features = model.encode_image(torch.zeros(1, 3, 72, 72))

    model, and the errors: as in `heads_off`. factors: 0 is off, 1 untouched; those of nested blocks multiply.
    """
    opened: list[tuple[Any, _Block]] = []
    for tower in TOWERS:
        chosen = HeadSet(factors).of_tower(tower)
        layers = layers_of(model, tower) if chosen or (tower == IMAGE and not factors) else []
        for head in chosen:
            if head.layer >= len(layers) or head.head >= layers[head.layer][0]:
                counts = ", ".join(f"{tower}{number}: {count}" for number, (count, _) in enumerate(layers))
                raise InputError(f"{head} is outside this model; heads in each layer: {counts}.")
        if tower == IMAGE and (idle := unread(model, chosen)):
            said = f"{type(model).__name__} reads its image tower before {idle}: off or on, all is the same."
            warnings.warn(said, stacklevel=4)
        for number in chosen.layers:
            count, projection = layers[number]
            each = torch.tensor([factors.get(Head(number, head, tower), 1.0) for head in range(count)])
            weight = projection.weight
            columns = each.repeat_interleave(weight.shape[1] // count).to(weight.device)
            opened.append((projection, _Block(columns)))
    try:
        for projection, block in opened:
            _open(projection, block)
        yield
    finally:
        for projection, block in opened:
            _close(projection, block)


@dataclass(eq=False)
class _Block:
    """The factors [H d] by which a `with` block multiplies a projection's inputs; none once it is over."""

    columns: Tensor | None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Block:
        return self


class _Masked(nn.Module):
    """A projection inside a block. Its class alone is another, so parameters, names and optimizers stay."""

    _ccs_blocks: list[_Block]

    def masked(self, values: Tensor) -> Tensor:
        """Values [..., H d] times the factors of the blocks that last."""
        for block in tuple(self.__dict__.get("_ccs_blocks", ())):
            if (columns := block.columns) is not None:
                values = values * columns.to(values.device, values.dtype)
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> _Masked:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled with all heads."""
        state = {name: value for name, value in self.__dict__.items() if name != "_ccs_blocks"}
        return object.__new__, (type(self).__bases__[1],), state


class _MaskedWeight(_Masked):
    """For a projection whose weight is a parameter: nn.MultiheadAttention reads it and calls no module."""

    @property
    def weight(self) -> Tensor:
        whole = self._parameters.get("weight")
        return self.masked(self.__dict__["weight"] if whole is None else whole)

    @weight.setter
    def weight(self, values: Tensor) -> None:  # DataParallel's replicas hold theirs so
        self.__dict__["weight"] = values


class _MaskedInput(_Masked):
    """For a projection made of several modules, as an adapter (LoRA) is."""

    def forward(self, values: Tensor, *args: Any, **keywords: Any) -> Any:
        return super().forward(self.masked(values), *args, **keywords)


@cache
def _masked_class(plain: Any, by_weight: bool) -> type:
    return type(plain.__name__, (_MaskedWeight if by_weight else _MaskedInput, plain), {})


def _open(projection: nn.Module, block: _Block) -> None:
    with _LOCK:
        projection.__dict__.setdefault("_ccs_blocks", []).append(block)
        if not isinstance(projection, _Masked):
            plain: Any = type(projection)
            projection.__class__ = _masked_class(plain, "weight" in projection._parameters)


def _close(projection: nn.Module, block: _Block) -> None:
    with _LOCK:
        block.columns = None
        blocks = projection.__dict__.get("_ccs_blocks", [])
        blocks[:] = [one for one in blocks if one.columns is not None]
        if not blocks and isinstance(projection, _Masked):
            projection.__class__ = type(projection).__bases__[1]
            projection.__dict__.pop("_ccs_blocks", None)


# Where its heads are ----------------------------------------------------------------------------------------


def layers_of(model: Any, tower: str) -> list[tuple[int, Any]]:
    """Of each layer of one of the model's towers the number of heads, and the projection that reads them.

    Raises InputError where its heads cannot be told apart.
    """
    if isinstance(model, str):
        raise InputError("heads_off takes a model, not its name; load it first.")
    model = _unwrapped(model)
    inner = _image_tower(model) if tower == IMAGE else getattr(model, "text_model", model)
    if tower == IMAGE and hasattr(inner, "blocks") and hasattr(inner, "merger"):  # Qwen's
        found = [(int(one.attn.num_heads), one.attn.proj) for one in inner.blocks]
    elif not hasattr(inner, "config"):  # open_clip's
        parts = parts_of(inner) if tower == IMAGE else take_texts_apart(model)[0]
        found = [(layer.n_heads, layer.projection) for layer in parts.layers]
    elif tower == TEXT or (hasattr(inner, "encoder") and hasattr(inner, "embeddings")):
        found = _of_transformers(inner, tower)
    else:
        raise InputError(
            f"{type(model).__name__} has no image tower that is known here. If there is a CLIP's or SigLIP's "
            "inside it, pass that module."
        )
    if any(not one.weight.is_floating_point() or one.weight.is_meta for _, one in found):
        raise InputError("The model's weights are quantized or not loaded, so no head can be switched off.")
    return found


def _of_transformers(tower: Any, which: str) -> list[tuple[int, Any]]:
    own = "patch_embedding" if which == IMAGE else "token_embedding"  # which the other tower lacks
    try:
        _, blocks = getattr(tower.embeddings, own), tower.encoder.layers
        attentions = [one.self_attn for one in blocks]
        if which == IMAGE and (pool := getattr(tower, "head", None)) is not None:  # SigLIP's
            attentions.append(pool.attention)
        return [(int(each.num_heads), each.out_proj) for each in attentions]
    except AttributeError:
        said = f"{type(tower).__name__} is not built like CLIP's or SigLIP's {TOWERS[which]} tower"
        raise InputError(f"{said}, so its heads cannot be told apart.") from None


def _unwrapped(model: Any) -> Any:
    for name in _WRAPPERS:
        model = getattr(model, name, model)
    return model


def _image_tower(model: Any) -> Any:
    """The image tower inside a model, or the model itself."""
    holders = (model, getattr(model, "model", None))
    found = (getattr(one, name, None) for one in holders for name in _INSIDE)
    return next((one for one in found if one is not None), model)


def unread(model: Any, heads: HeadSet) -> HeadSet:
    """The heads that change nothing: those of layers of an image tower that a language model does not read.

    It reads the last block, or those that its configuration names, and never a pool: LLaVA's "-2" is the
    block before the last.
    """
    model = _unwrapped(model)
    tower, config = _image_tower(model), getattr(model, "config", None)
    if tower is model or hasattr(model, "text_model") or not hasattr(config, "text_config"):
        return HeadSet()
    blocks = tower.blocks if hasattr(tower, "blocks") else tower.encoder.layers
    places = getattr(config, "vision_feature_layer", None)
    places = [-1] if places is None else [places] if isinstance(places, int) else places
    last = max(place if place >= 0 else len(blocks) + 1 + place for place in places)
    return HeadSet(head for head in heads if head.layer >= last)


def take_apart(
    model: Any,
    text_tower: str,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    layers: ChosenLayers | None = None,
) -> Model:
    """The image tower inside a model as a `Model`, for TEXTSPAN, maps and everything else.

    model: a transformers model that holds CLIP's or SigLIP's image tower (LLaVA, LLaVA-OneVision, PaliGemma,
    Gemma 3), that tower, or the folder or repository of such a model. text_tower: the CLIP that the tower
    comes from, as `ccs.load` takes it, for LLaVA 1.5 "hf-hub:openai/clip-vit-large-patch14-336". Its texts
    are used, its preprocessing, its projection and pool where the model has none, and the model's image
    tower. A warning says where that was trained further, since the texts were not. device, precision, layers:
    as `ccs.load` takes them.

    Raises InputError for a model that cannot be loaded or has no such tower, and for one that does not fit.

        >>> from ccs import load
        >>> from transformers import CLIPVisionConfig, CLIPVisionModel
        >>> sizes = {"hidden_size": 192, "intermediate_size": 384, "image_size": 72, "patch_size": 12}
        >>> sizes |= {"num_hidden_layers": 8, "num_attention_heads": 6, "hidden_act": "gelu"}
        >>> inside = CLIPVisionModel(CLIPVisionConfig(**sizes))
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):    # it is not the organism's own tower
        ...     take_apart(inside, "organism").heads == load("organism").heads
        True
    """
    held = _unwrapped(_loaded(model) if isinstance(model, str) else model)
    layers_of(held, IMAGE)  # says what is wrong with a model without a tower
    tower = _image_tower(held)
    made = load(text_tower, device=device, precision=precision, layers=layers)
    visual, name = made.clip.visual, Path(model).name if isinstance(model, str) else type(held).__name__
    own = visual.state_dict()
    rename = siglip_renamed if hasattr(visual, "trunk") else renamed
    named = ((f"vision_model.{key}", value) for key, value in tower.state_dict().items())
    theirs = {key.removeprefix("visual."): value for key, value in rename(named).items()}
    found, wanted = ({key: value.shape for key, value in weights.items()} for weights in (theirs, own))
    keys = {*found, *(key for key in wanted if "blocks." in key)}  # the rest the model may lack
    if unlike := sorted(key for key in keys if found.get(key) != wanted.get(key)):
        which = ", ".join(unlike[:3])
        raise InputError(f"The image tower of {name} is not built as {text_tower}'s: {which} does not fit.")
    act = getattr(tower.config, "hidden_act", "")
    if act and (act == "quick_gelu") != made.config["quick_gelu"]:
        raise InputError(f"The image tower of {name} uses {act}, and that of {text_tower} does not.")
    if any(not torch.allclose(value.to(own[key]), own[key], atol=1e-3) for key, value in theirs.items()):
        sentence = f"The image tower of {name} was trained further than {text_tower}'s, whose texts are used."
        warnings.warn(sentence, stacklevel=2)
    visual.load_state_dict(theirs, strict=False)
    made.name = f"{name} with {made.name}"
    return made


def _loaded(name: str) -> Any:
    """transformers' model of that name, from safetensors, without code of its own."""
    from transformers import AutoModelForImageTextToText

    place = name.removeprefix(HUB)
    try:
        return AutoModelForImageTextToText.from_pretrained(place, dtype="auto", use_safetensors=True)
    except Exception as error:  # its reader raises dozens of kinds
        why = without_folders(reason(error))[:300]
        raise InputError(f"{name[:100]!r} cannot be loaded as a language model that sees ({why}).") from None
