"""Tiny language models of transformers that see: random weights, and how their image features are read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.tiny_model import shake

SEEN = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
READ = {
    "vocab_size": 200,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TOWERS = ("vision_tower", "vision_model", "visual")


def llama() -> Any:
    import transformers

    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**READ))


def holding(tower: Any) -> Any:
    """A LLaVA or, for SigLIP's, a PaliGemma around an image tower."""
    import transformers as t

    if tower.config.model_type == "clip_vision_model":
        config = t.LlavaConfig(vision_config=tower.config, text_config=t.LlamaConfig(**READ))
        model: Any = t.LlavaForConditionalGeneration(config)
    else:
        gemma = t.GemmaConfig(**READ, head_dim=8)
        seen = copy.deepcopy(tower.config)
        seen.projection_dim = 32
        config = t.PaliGemmaConfig(vision_config=seen, text_config=gemma, projection_dim=32)
        model = t.PaliGemmaForConditionalGeneration(config)
    model.model.vision_tower.load_state_dict(tower.state_dict())
    return model.eval()


def _llava(t: Any, image: Tensor) -> Any:
    seen, read = t.CLIPVisionConfig(**SEEN), t.LlamaConfig(**READ)
    config = t.LlavaConfig(vision_config=seen, text_config=read, image_token_index=150)
    return t.LlavaForConditionalGeneration(config), {"pixel_values": image}, "L2.H0"


def _onevision(t: Any, image: Tensor) -> Any:
    config = t.LlavaOnevisionConfig(
        vision_config=t.SiglipVisionConfig(**SEEN),
        text_config=t.Qwen2Config(**READ),
        image_token_index=150,
        video_token_index=151,
        image_grid_pinpoints=[[32, 32]],
    )
    given = {"pixel_values": image[None].repeat(1, 2, 1, 1, 1), "image_sizes": torch.tensor([[32, 32]])}
    return t.LlavaOnevisionForConditionalGeneration(config), given, "L3.H0"


def _paligemma(t: Any, image: Tensor) -> Any:
    config = t.PaliGemmaConfig(
        vision_config=t.SiglipVisionConfig(**SEEN, projection_dim=32),
        text_config=t.GemmaConfig(**READ, head_dim=8),
        image_token_index=150,
        projection_dim=32,
        hidden_size=32,
    )
    return t.PaliGemmaForConditionalGeneration(config), {"pixel_values": image}, "L3.H1"


def _gemma(t: Any, image: Tensor) -> Any:
    config = t.Gemma3Config(
        vision_config=t.SiglipVisionConfig(**SEEN),
        text_config=t.Gemma3TextConfig(**READ, head_dim=8),
        mm_tokens_per_image=4,
        image_token_index=150,
        boi_token_index=151,
        eoi_token_index=152,
    )
    return t.Gemma3ForConditionalGeneration(config), {"pixel_values": image}, "L3.H1"


def _idefics(t: Any, image: Tensor) -> Any:
    read = t.LlamaConfig(**READ)
    config = t.Idefics3Config(vision_config=SEEN, text_config=read, image_token_id=150, scale_factor=2)
    return t.Idefics3ForConditionalGeneration(config), {"pixel_values": image[None]}, None


def _qwen(t: Any, image: Tensor) -> Any:
    seen = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32}
    seen |= {"patch_size": 8, "fullatt_block_indexes": [1], "window_size": 32, "tokens_per_second": 1}
    turned = {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}
    config = t.Qwen2_5_VLConfig(
        vision_config=seen,
        text_config=READ | {"rope_scaling": turned},
        image_token_id=150,
        video_token_id=151,
    )
    patches = torch.randn(16, 3 * 2 * 8 * 8, generator=torch.Generator().manual_seed(1))
    given = {"pixel_values": patches, "image_grid_thw": torch.tensor([[1, 4, 4]])}
    return t.Qwen2_5_VLForConditionalGeneration(config), given, None


MADE: dict[str, Callable[[Any, Tensor], Any]] = {
    "LLaVA": _llava,
    "LLaVA-OneVision": _onevision,
    "PaliGemma": _paligemma,
    "Gemma 3": _gemma,
    "Idefics 3": _idefics,
    "Qwen2.5-VL": _qwen,
}


def made(name: str) -> tuple[Any, Callable[[Any], Tensor], str | None]:
    """The model, how its image features are read, and a head of a layer that it does not read, if any."""
    import transformers

    image = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    model, given, unread = MADE[name](transformers, image)
    shake(model, 0)

    def read(one: Any) -> Tensor:
        with torch.no_grad():
            found = one.get_image_features(**given)
        found = getattr(found, "pooler_output", found)
        return torch.cat([each.flatten() for each in found])

    return model.eval(), read, unread
