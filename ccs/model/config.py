"""The configuration of a model from a folder or the Hub, validated, because anyone may have written it.

Every field with its type and range is listed here, and a file with anything else is refused. Only the
keywords named below reach open_clip, timm or transformers, and names of other models and tokenizers must be
ones that open_clip's own architectures use.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ccs.errors import InputError
from ccs.model.towers import convolutional

MAX_CONFIG_BYTES = 2**20
OPEN_CLIP_TOKENS = 49_408
"""The size of the vocabulary of open_clip's own tokenizer."""


@cache
def _used_by_open_clip(tower: str, key: str) -> frozenset[str]:
    import open_clip

    configs = [open_clip.get_model_config(name) for name in open_clip.list_models()]
    return frozenset(config[tower][key] for config in configs if config[tower].get(key))


def _known(tower: str, key: str) -> AfterValidator:
    """Accepts a name that an architecture of open_clip has in that field, or ours; no path, no repository."""

    def check(name: str) -> str:
        if name == convolutional.NAME:
            convolutional.register()
        elif name not in _used_by_open_clip(tower, key):
            raise ValueError(f"no architecture of open_clip uses this {key}")
        return name

    return AfterValidator(check)


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Layers = Annotated[int, Field(ge=1, le=128)]
Width = Annotated[int, Field(ge=1, le=8192)]
Side = Annotated[int, Field(ge=1, le=1024)]
Real = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0.01, le=16, allow_inf_nan=False)]
Token = Annotated[int, Field(ge=0, le=2_000_000)]
Block = Literal["default", "custom"]


class _Activation(_Checked):
    approximate: Literal["none", "tanh"] = "none"


class _Norm(_Checked):
    eps: Annotated[float, Field(ge=1e-12, le=0.1)] = 1e-5


class _TokenizerKeywords(_Checked):
    clean: Literal["canonicalize", "lower", "whitespace"] = "whitespace"
    strip_sep_token: bool = False


class _Tower(_Checked):
    width: Width
    mlp_ratio: Ratio = 4.0
    ls_init_value: Real | None = None
    final_ln_after_pool: bool = False
    output_tokens: bool = False
    act_kwargs: _Activation | None = None
    norm_kwargs: _Norm | None = None
    block_type: Block | None = None
    qk_norm: bool = False
    scaled_cosine_attn: bool = False
    scale_heads: bool = False
    scale_attn_inner: bool = False
    scale_attn: bool = False
    scale_fc: bool = False


class _Vision(_Tower):
    layers: Layers | Annotated[list[Layers], Field(min_length=4, max_length=4)] = 12
    width: Width = 768
    head_width: Width = 64
    patch_size: Side | None = 16
    image_size: Annotated[int, Field(ge=8, le=1024)] | tuple[Side, Side] = 224
    patch_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    attentional_pool: bool = False
    attn_pooler_queries: Side = 256
    attn_pooler_heads: Side = 8
    no_ln_pre: bool = False
    pos_embed_type: Literal["learnable", "sin_cos_2d"] = "learnable"
    pool_type: Literal["tok", "avg", "none"] = "tok"
    timm_model_name: Annotated[str, _known("vision_cfg", "timm_model_name")] | None = None
    timm_model_pretrained: bool = False
    timm_pool: Literal["", "avg", "token", "map", "abs_attn", "rot_attn"] = "avg"
    timm_proj: Literal["", "none", "linear", "mlp"] | None = "linear"
    timm_proj_bias: bool = False
    timm_drop: Share = 0.0
    timm_drop_path: Share | None = None

    @model_validator(mode="after")
    def _fits(self) -> _Vision:
        if self.timm_model_name or isinstance(self.layers, list):
            return self
        if self.width % self.head_width:
            raise ValueError(f"width {self.width} is not a multiple of head_width {self.head_width}")
        sides = (self.image_size,) if isinstance(self.image_size, int) else self.image_size
        if self.patch_size is None or not all(1 <= side // self.patch_size <= 64 for side in sides):
            raise ValueError(f"patches of {self.patch_size} do not cut {self.image_size} into 1 to 64 a side")
        return self


class _Text(_Tower):
    context_length: Annotated[int, Field(ge=2, le=1024)] = 77
    vocab_size: Token = OPEN_CLIP_TOKENS
    hf_tokenizer_name: Annotated[str, _known("text_cfg", "hf_tokenizer_name")] | None = None
    tokenizer_mode: Literal["", "clips"] | None = None
    tokenizer_kwargs: _TokenizerKeywords | None = None
    width: Width = 512
    heads: Side = 8
    layers: Layers = 12
    embed_cls: bool = False
    pad_id: Token = 0
    eos_id: Token = 2
    no_causal_mask: bool = False
    pool_type: Literal["first", "last", "argmax", "eos"] = "argmax"
    proj_bias: bool = False
    proj_type: Literal["linear", "none"] = "linear"
    hf_model_name: Annotated[str, _known("text_cfg", "hf_model_name")] | None = None
    hf_model_pretrained: bool = False
    hf_proj_type: Literal["linear", "mlp"] | None = "mlp"
    hf_pooler_type: Literal["mean_pooler", "max_pooler", "cls_pooler"] = "mean_pooler"

    @model_validator(mode="after")
    def _fits(self) -> _Text:
        if self.hf_model_name:
            return self
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        return self


class ModelConfig(_Checked):
    """The settings from which open_clip builds a model."""

    embed_dim: Width
    vision_cfg: _Vision
    text_cfg: _Text
    quick_gelu: bool = False
    custom_text: bool = False
    init_logit_scale: Real = 2.6592
    init_logit_bias: Real | None = None
    nonscalar_logit_scale: bool = False


class _Preprocess(_Checked):
    size: Side | tuple[Side, Side] | tuple[Literal[3], Side, Side] | None = None
    mode: Literal["RGB"] = "RGB"
    mean: tuple[Real, Real, Real] | None = None
    std: tuple[Ratio, Ratio, Ratio] | None = None
    interpolation: Literal["bicubic", "bilinear", "random"] | None = None
    resize_mode: Literal["shortest", "longest", "squash"] | None = None
    fill_color: Annotated[int, Field(ge=0, le=255)] = 0


class _File(BaseModel):
    """open_clip_config.json; entries other than these two are never read."""

    model_cfg: ModelConfig
    preprocess_cfg: _Preprocess = _Preprocess()


def read_config(text: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checked configuration of the model and of the preprocessing: `model_cfg`, `preprocess_cfg`.

    text: the content of an open_clip_config.json; name: its name in errors. Raises InputError for anything
    that is not JSON, not known, or out of range.
    """
    try:
        found = _File.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"{name} is not an open_clip configuration that can be used: {why(error)}") from None
    model = found.model_cfg.model_dump(mode="json", exclude_unset=True)
    return model, found.preprocess_cfg.model_dump(mode="json", exclude_none=True)


def why(error: ValidationError) -> str:
    """One sentence on the first error."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("constrained", "tuple")))
    match first["type"]:
        case "json_invalid":
            return f"{first['msg']}."
        case "missing":
            return f"it has no {where!r}."
        case "extra_forbidden":
            return f"it has an unknown entry {where!r}."
    value = json.dumps(first["input"], default=repr)
    shown = value if len(value) <= 40 else value[:40] + "…"
    return f"{where} is {shown}: {first['msg'].removeprefix('Value error, ')}."
