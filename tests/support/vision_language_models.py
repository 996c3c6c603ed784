"""Tiny transformers models with an image encoder and random weights, and readers of their image features."""

import copy

import torch
import transformers

from tests.support.tiny_model import randomize_weights

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
VOCABULARY = {"vocab_size": 200, "bos_token_id": 1, "eos_token_id": 2}
VISION = SIZES | {"num_hidden_layers": 3, "image_size": 32, "patch_size": 8}
LANGUAGE = SIZES | VOCABULARY | {"num_hidden_layers": 1, "num_key_value_heads": 2}
TEXT = SIZES | VOCABULARY | {"num_hidden_layers": 2, "max_position_embeddings": 12, "pad_token_id": 0}
CLIP, SIGLIP = VISION | {"model_type": "clip_vision_model"}, VISION | {"model_type": "siglip_vision_model"}
LLAMA, GEMMA = LANGUAGE | {"model_type": "llama"}, LANGUAGE | {"model_type": "gemma", "head_dim": 8}
QWEN = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "patch_size": 8}
QWEN |= {"out_hidden_size": 32}
QWEN_WINDOWED = QWEN | {"fullatt_block_indexes": [1], "window_size": 32}
QWEN_DEEPSTACK = QWEN | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
QWEN_TEXT, PROJECTION = LANGUAGE | {"model_type": "qwen2"}, {"projection_dim": 32}
ROPE = {"mrope_section": [1, 1, 2], "rope_type": "default"}
INTERLEAVED_ROPE = ROPE | {"mrope_section": [2, 1, 1]}
NAFLEX = SIZES | {"num_hidden_layers": 3, "patch_size": 8, "num_patches": 16}
OPT = {"model_type": "opt", "hidden_size": 32, "ffn_dim": 64, "num_attention_heads": 4, "vocab_size": 60}
OPT |= {"num_hidden_layers": 1, "word_embed_proj_dim": 32, "pad_token_id": 0}
QFORMER = SIZES | {"num_hidden_layers": 1, "vocab_size": 50, "encoder_hidden_size": 32}
CLIPSEG = {"projection_dim": 24, "reduce_dim": 8, "decoder_num_attention_heads": 2, "extract_layers": [0, 1]}
CLIPSEG |= {"decoder_intermediate_size": 16}
ENCODERS = ("vision_tower", "vision_model", "visual")
GRID = {"image_grid_pinpoints": [[32, 32]]}

IMAGE = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
PATCHES = torch.randn(32, 192, generator=torch.Generator().manual_seed(1))
TOKENS = torch.tensor([[1, 5, 6, 7, 2, 0], [1, 9, 2, 0, 0, 0]])
PIXELS, SEVERAL = {"pixel_values": IMAGE}, {"pixel_values": IMAGE[None]}
TILES = {"pixel_values": IMAGE[None].repeat(1, 2, 1, 1, 1), "image_sizes": torch.tensor([[32, 32]])}
FRAMES = {"pixel_values": PATCHES.view(16, 384), "image_grid_thw": torch.tensor([[1, 4, 4]])}
PADDED = {"pixel_values": PATCHES.view(2, 16, 192), "spatial_shapes": torch.tensor([[4, 4], [3, 4]])}
PADDED |= {"pixel_attention_mask": (torch.arange(32).view(2, 16) < 28).long()}
PAIR = {"pixel_values": IMAGE.repeat(2, 1, 1, 1), "input_ids": TOKENS}

# class: vision_config, text_config, other entries, inputs, and a head of a layer that it doesn't read
FAMILIES = {
    "Llava": (CLIP, LLAMA, {}, PIXELS, "L2.H0"),
    "LlavaNext": (CLIP, LLAMA, GRID, TILES, "L2.H0"),
    "LlavaOnevision": (SIGLIP, QWEN_TEXT, GRID | {"video_token_index": 151}, TILES, "L3.H0"),
    "PaliGemma": (SIGLIP | PROJECTION, GEMMA, PROJECTION | {"hidden_size": 32}, PIXELS, "L3.H1"),
    "Gemma3": (SIGLIP, GEMMA | {"model_type": "gemma3_text"}, {"mm_tokens_per_image": 4}, PIXELS, "L3.H1"),
    "Idefics3": (VISION, LLAMA, {"scale_factor": 2}, SEVERAL, None),
    "SmolVLM": (VISION, LLAMA, {"scale_factor": 2}, SEVERAL, None),
    "Qwen2_5_VL": (QWEN_WINDOWED, LANGUAGE | {"rope_scaling": ROPE | {"type": "mrope"}}, {}, FRAMES, None),
    "Qwen3VL": (
        QWEN_DEEPSTACK,
        LANGUAGE | {"head_dim": 8, "rope_scaling": INTERLEAVED_ROPE},
        {},
        FRAMES,
        None,
    ),
    "Blip2": (VISION, OPT, {"qformer_config": QFORMER}, PIXELS, None),
    # NaFlex: images of different sizes in one batch, the shorter one padded
    "Siglip2Model": (NAFLEX, TEXT | {"projection_size": 32}, {}, PADDED, None),
    "CLIPSegForImageSegmentation": (VISION, TEXT, CLIPSEG, PAIR, "L2.H0"),
    "ChineseCLIPModel": (VISION, TEXT, {"projection_dim": 24}, PIXELS, None),
}


def build_model(name, vision, text, **entries):
    """Build a model.

    Args:
        name: Name of its class, with or without `ForConditionalGeneration`.
        vision: Its `vision_config`.
        text: Its `text_config`.
        **entries: Other entries of its configuration.

    Returns:
        The model, with initial weights.
    """
    full_name = f"{name}ForConditionalGeneration"
    model_class = getattr(transformers, full_name if hasattr(transformers, full_name) else name)
    entries |= copy.deepcopy({"vision_config": vision, "text_config": text})
    return model_class(model_class.config_class(**entries))


def build_llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LANGUAGE))


def build_pixtral():
    """Build a model whose image encoder is neither CLIP's nor SigLIP's."""
    vision = SIZES | {"num_hidden_layers": 2, "image_size": 32, "patch_size": 8, "model_type": "pixtral"}
    return build_model("Llava", vision, LLAMA)


def wrap_image_encoder(encoder):
    """Build a LLaVA or, for SigLIP, a PaliGemma that holds an image encoder."""
    if encoder.config.model_type == "clip_vision_model":
        model = build_model("Llava", encoder.config, LLAMA)
    else:
        vision = encoder.config.to_dict() | {"projection_dim": 32}
        model = build_model("PaliGemma", vision, GEMMA, projection_dim=32)
    model.model.vision_tower.load_state_dict(encoder.state_dict())
    return model.eval()


def _flatten(parts):
    for part in parts:
        yield from _flatten(part) if isinstance(part, list | tuple) else [part.flatten()]


def make_model(name):
    """Return a model, a function that reads its image features, and a head that it ignores, if any."""
    vision, text, entries, inputs, ignored = FAMILIES[name]
    model = build_model(name, vision, text, **entries)
    randomize_weights(model, 0)

    def read(model):
        with torch.no_grad():
            output = model(**inputs).logits if "CLIPSeg" in name else model.get_image_features(**inputs)
        pooled = getattr(output, "pooler_output", output)
        return torch.cat(list(_flatten([*pooled, *getattr(output, "deepstack_features", ())])))

    return model.eval(), read, ignored
