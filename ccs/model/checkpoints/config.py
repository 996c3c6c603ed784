"""config.json of a Hugging Face checkpoint, validated and translated to open_clip's configuration.

A `CLIPModel` or `SiglipModel` of transformers and open_clip's model compute the same from the same numbers,
so a checkpoint is a configuration and weights under other names. Its config.json also holds much that changes
nothing (training, generation, labels): only the entries listed here are read, each with its type and range
and with the default of transformers. Nothing is passed on, and no code is looked for.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ccs.errors import InputError
from ccs.model.config import Layers, ModelConfig, Side, Token, Width, why

CONFIG_FILE = "config.json"
LEGACY_EOS = 2
"""The end token in configurations before transformers 4.31, which read out at the largest token."""


class Refused(Exception):
    """Entries that are each allowed, but not together."""


class Read(BaseModel):
    """Entries of a JSON file that are read; all others are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _Tower(Read):
    hidden_size: Width
    intermediate_size: Annotated[int, Field(ge=1, le=65_536)]
    num_hidden_layers: Layers = 12
    num_attention_heads: Side
    hidden_act: Literal["quick_gelu", "gelu", "gelu_pytorch_tanh"] = "quick_gelu"
    layer_norm_eps: Annotated[float, Field(ge=1e-12, le=0.1)] = 1e-5

    def common(self) -> dict[str, Any]:
        """The settings that both towers have, under open_clip's names."""
        width, inner = self.hidden_size, self.intermediate_size
        if width % self.num_attention_heads:
            raise Refused(f"hidden_size {width} is not a multiple of {self.num_attention_heads} heads")
        ratio = inner / width
        named: dict[str, Any] = {
            "width": width,
            "layers": self.num_hidden_layers,
            # open_clip cuts the product to a whole number
            "mlp_ratio": ratio if int(width * ratio) == inner else (inner + 0.5) / width,
        }
        if self.layer_norm_eps != 1e-5:
            named["norm_kwargs"] = {"eps": self.layer_norm_eps}
        if self.hidden_act == "gelu_pytorch_tanh":
            named["act_kwargs"] = {"approximate": "tanh"}
        return named


class _Vision(_Tower):
    hidden_size: Width = 768
    intermediate_size: Annotated[int, Field(ge=1, le=65_536)] = 3072
    num_attention_heads: Side = 12
    num_channels: Literal[3] = 3
    image_size: Annotated[int, Field(ge=8, le=1024)] = 224
    patch_size: Side = 32


class _Text(_Tower):
    hidden_size: Width = 512
    intermediate_size: Annotated[int, Field(ge=1, le=65_536)] = 2048
    num_attention_heads: Side = 8
    vocab_size: Annotated[int, Field(ge=2, le=2_000_000)] = 49_408
    max_position_embeddings: Annotated[int, Field(ge=2, le=1024)] = 77
    eos_token_id: Token = 49_407


class _Clip(Read):
    """config.json of a CLIPModel. In an old file the entries `..._dict` take precedence."""

    model_type: Literal["clip"]
    vision_config: _Vision | None = None
    text_config: _Text | None = None
    vision_config_dict: _Vision | None = None
    text_config_dict: _Text | None = None
    projection_dim: Width = 512
    quantization_config: None = None

    def in_open_clips_words(self) -> dict[str, Any]:
        vision = self.vision_config_dict or self.vision_config or _Vision()
        text = self.text_config_dict or self.text_config or _Text()
        quick = {tower.hidden_act == "quick_gelu" for tower in (vision, text)}
        if len(quick) > 1:
            raise Refused(f"its towers use {vision.hidden_act} and {text.hidden_act}; both QuickGELU or none")
        seen: dict[str, Any] = {"image_size": vision.image_size, "patch_size": vision.patch_size}
        seen["head_width"] = vision.hidden_size // vision.num_attention_heads
        legacy = text.eos_token_id == LEGACY_EOS
        read: dict[str, Any] = (
            {"pool_type": "argmax"} if legacy else {"pool_type": "eos", "eos_id": text.eos_token_id}
        )
        read |= {"context_length": text.max_position_embeddings, "vocab_size": text.vocab_size}
        return {
            "embed_dim": self.projection_dim,
            "quick_gelu": quick.pop(),
            "vision_cfg": vision.common() | seen,
            "text_cfg": text.common() | read | {"heads": text.num_attention_heads},
        }


class _SiglipVision(_Vision):
    patch_size: Side = 16
    hidden_act: Literal["gelu", "gelu_pytorch_tanh"] = "gelu_pytorch_tanh"
    layer_norm_eps: Annotated[float, Field(ge=1e-12, le=0.1)] = 1e-6
    vision_use_head: Literal[True] = True


class _SiglipText(_Text):
    hidden_size: Width = 768
    intermediate_size: Annotated[int, Field(ge=1, le=65_536)] = 3072
    num_attention_heads: Side = 12
    vocab_size: Annotated[int, Field(ge=2, le=2_000_000)] = 32_000
    max_position_embeddings: Annotated[int, Field(ge=2, le=1024)] = 64
    hidden_act: Literal["gelu", "gelu_pytorch_tanh"] = "gelu_pytorch_tanh"
    layer_norm_eps: Annotated[float, Field(ge=1e-12, le=0.1)] = 1e-6
    projection_size: Width | None = None


class _Siglip(Read):
    """config.json of a SiglipModel; SigLIP 2 with a fixed resolution is one too."""

    model_type: Literal["siglip"]
    vision_config: _SiglipVision = _SiglipVision()
    text_config: _SiglipText = _SiglipText()
    quantization_config: None = None

    def in_open_clips_words(self) -> dict[str, Any]:
        """The configuration as for open_clip's own SigLIPs, but with the tower's sizes beside timm's name."""
        vision, text = self.vision_config, self.text_config
        if (text.projection_size or text.hidden_size) != vision.hidden_size:
            raise Refused(f"its texts have another dimension than its images, {vision.hidden_size}")
        pooled = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map", "timm_proj": "none"}
        seen = {"image_size": vision.image_size, "patch_size": vision.patch_size}
        seen["head_width"] = vision.hidden_size // vision.num_attention_heads
        read = {"context_length": text.max_position_embeddings, "vocab_size": text.vocab_size}
        last = {"no_causal_mask": True, "proj_bias": True, "pool_type": "last"}
        return {
            "embed_dim": vision.hidden_size,
            "init_logit_bias": -10.0,
            "custom_text": True,
            "vision_cfg": vision.common() | seen | pooled,
            "text_cfg": text.common() | read | last | {"heads": text.num_attention_heads},
        }


_MODELS: dict[str, type[_Clip] | type[_Siglip]] = {"clip": _Clip, "siglip": _Siglip}


class _Kind(Read):
    model_type: Literal["clip", "siglip"]


def read_config(text: bytes, name: str) -> tuple[dict[str, Any], str]:
    """open_clip's configuration of the checkpoint whose config.json is `text`, and its `model_type`.

    Raises InputError for anything but the configuration of a CLIPModel or a SiglipModel.
    """
    try:
        kind = _Kind.model_validate_json(text).model_type
        found = _MODELS[kind].model_validate_json(text).in_open_clips_words()
        checked = ModelConfig.model_validate_json(json.dumps(found))
        return checked.model_dump(mode="json", exclude_unset=True), kind
    except ValidationError as error:
        reason = why(error)
    except Refused as error:
        reason = f"{error}."
    raise InputError(
        f"{name} is not the configuration of a CLIPModel or SiglipModel that can be used: {reason}"
    )
