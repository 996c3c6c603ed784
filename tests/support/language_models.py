"""Tiny language models of transformers that see: random weights, and how their image features are read."""

import copy

import torch
import transformers

from tests.support.tiny_model import shake

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
SEEN = SIZES | {"num_hidden_layers": 3, "image_size": 32, "patch_size": 8}
READ = SIZES | {"vocab_size": 200, "num_hidden_layers": 1, "num_key_value_heads": 2}
READ |= {"bos_token_id": 1, "eos_token_id": 2}
ENCODERS = ("vision_tower", "vision_model", "visual")
IMAGE = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
PIXELS = {"pixel_values": IMAGE}


def _config(name, entries, **more):
    return getattr(transformers, f"{name}Config")(**entries, **more)


def _model(name, seen, read, **more):
    config = _config(name, {"vision_config": seen, "text_config": read}, **more)
    return getattr(transformers, f"{name}ForConditionalGeneration")(config)


def llama():
    return transformers.LlamaForCausalLM(_config("Llama", READ))


def holding(encoder):
    """A LLaVA or, for SigLIP's, a PaliGemma around an image encoder."""
    if encoder.config.model_type == "clip_vision_model":
        model = _model("Llava", encoder.config, _config("Llama", READ))
    else:
        seen = copy.deepcopy(encoder.config)
        seen.projection_dim = 32
        model = _model("PaliGemma", seen, _config("Gemma", READ, head_dim=8), projection_dim=32)
    model.model.vision_tower.load_state_dict(encoder.state_dict())
    return model.eval()


def _llava():
    return _model("Llava", _config("CLIPVision", SEEN), _config("Llama", READ)), PIXELS, "L2.H0"


def _onevision():
    more = {"video_token_index": 151, "image_grid_pinpoints": [[32, 32]]}
    model = _model("LlavaOnevision", _config("SiglipVision", SEEN), _config("Qwen2", READ), **more)
    several = IMAGE[None].repeat(1, 2, 1, 1, 1)
    return model, {"pixel_values": several, "image_sizes": torch.tensor([[32, 32]])}, "L3.H0"


def _paligemma():
    seen, read = _config("SiglipVision", SEEN, projection_dim=32), _config("Gemma", READ, head_dim=8)
    return _model("PaliGemma", seen, read, projection_dim=32, hidden_size=32), PIXELS, "L3.H1"


def _gemma():
    seen, read = _config("SiglipVision", SEEN), _config("Gemma3Text", READ, head_dim=8)
    return _model("Gemma3", seen, read, mm_tokens_per_image=4), PIXELS, "L3.H1"


def _idefics():
    model = _model("Idefics3", SEEN, _config("Llama", READ), scale_factor=2)
    return model, {"pixel_values": IMAGE[None]}, None


def _qwen():
    seen = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32}
    seen |= {"patch_size": 8, "fullatt_block_indexes": [1], "window_size": 32, "tokens_per_second": 1}
    turned = {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}
    patches = torch.randn(16, 3 * 2 * 8 * 8, generator=torch.Generator().manual_seed(1))
    given = {"pixel_values": patches, "image_grid_thw": torch.tensor([[1, 4, 4]])}
    return _model("Qwen2_5_VL", seen, READ | {"rope_scaling": turned}), given, None


MADE = {"LLaVA": _llava, "LLaVA-OneVision": _onevision, "PaliGemma": _paligemma, "Gemma 3": _gemma}
MADE |= {"Idefics 3": _idefics, "Qwen2.5-VL": _qwen}


def made(name):
    """The model, how its image features are read, and a head of a layer that it does not read, if any."""
    model, given, unread = MADE[name]()
    shake(model, 0)

    def read(one):
        with torch.no_grad():
            found = one.get_image_features(**given)
        found = getattr(found, "pooler_output", found)
        return torch.cat([each.flatten() for each in found])

    return model.eval(), read, unread
