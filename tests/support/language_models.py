"""Tiny models of transformers around an image encoder: random weights, and readers of image features."""

import copy

import torch
import transformers

from tests.support.tiny_model import shake

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
SEEN = SIZES | {"num_hidden_layers": 3, "image_size": 32, "patch_size": 8}
READ = SIZES | {"vocab_size": 200, "num_hidden_layers": 1, "num_key_value_heads": 2}
READ |= {"bos_token_id": 1, "eos_token_id": 2}
TEXT = SIZES | {"vocab_size": 200, "num_hidden_layers": 2, "max_position_embeddings": 12}
TEXT |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ENCODERS = ("vision_tower", "vision_model", "visual")
IMAGE = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
PIXELS = {"pixel_values": IMAGE}
TOKENS = torch.tensor([[1, 5, 6, 7, 2, 0], [1, 9, 2, 0, 0, 0]])


def _config(name, entries, **options):
    return getattr(transformers, f"{name}Config")(**entries, **options)


def _model(name, vision, text, suffix="ForConditionalGeneration", **options):
    config = _config(name, {"vision_config": vision, "text_config": text}, **options)
    return getattr(transformers, f"{name}{suffix}")(config)


def llama():
    return transformers.LlamaForCausalLM(_config("Llama", READ))


def holding(encoder):
    """A LLaVA or, for SigLIP's, a PaliGemma around an image encoder."""
    if encoder.config.model_type == "clip_vision_model":
        model = _model("Llava", encoder.config, _config("Llama", READ))
    else:
        vision = copy.deepcopy(encoder.config)
        vision.projection_dim = 32
        model = _model("PaliGemma", vision, _config("Gemma", READ, head_dim=8), projection_dim=32)
    model.model.vision_tower.load_state_dict(encoder.state_dict())
    return model.eval()


def _llava():
    return _model("Llava", _config("CLIPVision", SEEN), _config("Llama", READ)), PIXELS, "L2.H0"


def _llava_next():
    vision, read = _config("CLIPVision", SEEN), _config("Llama", READ)
    model = _model("LlavaNext", vision, read, image_grid_pinpoints=[[32, 32]])
    several = IMAGE[None].repeat(1, 2, 1, 1, 1)
    return model, {"pixel_values": several, "image_sizes": torch.tensor([[32, 32]])}, "L2.H0"


def _onevision():
    options = {"video_token_index": 151, "image_grid_pinpoints": [[32, 32]]}
    model = _model("LlavaOnevision", _config("SiglipVision", SEEN), _config("Qwen2", READ), **options)
    several = IMAGE[None].repeat(1, 2, 1, 1, 1)
    return model, {"pixel_values": several, "image_sizes": torch.tensor([[32, 32]])}, "L3.H0"


def _paligemma():
    vision, read = _config("SiglipVision", SEEN, projection_dim=32), _config("Gemma", READ, head_dim=8)
    return _model("PaliGemma", vision, read, projection_dim=32, hidden_size=32), PIXELS, "L3.H1"


def _gemma():
    vision, read = _config("SiglipVision", SEEN), _config("Gemma3Text", READ, head_dim=8)
    return _model("Gemma3", vision, read, mm_tokens_per_image=4), PIXELS, "L3.H1"


def _idefics(name="Idefics3"):
    model = _model(name, SEEN, _config("Llama", READ), scale_factor=2)
    return model, {"pixel_values": IMAGE[None]}, None


def _qwen():
    vision = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32}
    vision |= {"patch_size": 8, "fullatt_block_indexes": [1], "window_size": 32, "tokens_per_second": 1}
    turned = {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}
    return _model("Qwen2_5_VL", vision, READ | {"rope_scaling": turned}), _qwen_patches(), None


def _qwen3():
    vision = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32}
    vision |= {"patch_size": 8, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    turned = {"mrope_section": [2, 1, 1], "rope_type": "default"}
    return _model("Qwen3VL", vision, READ | {"head_dim": 8, "rope_scaling": turned}), _qwen_patches(), None


def _qwen_patches():
    patches = torch.randn(16, 3 * 2 * 8 * 8, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": patches, "image_grid_thw": torch.tensor([[1, 4, 4]])}


def _siglip2():
    """Images of different sizes in one batch, the shorter one padded (NaFlex)."""
    vision = SIZES | {"num_hidden_layers": 3, "patch_size": 8, "num_patches": 16}
    patches = torch.randn(2, 16, 3 * 8 * 8, generator=torch.Generator().manual_seed(1))
    inputs = {"pixel_values": patches, "pixel_attention_mask": (torch.arange(32).view(2, 16) < 28).long()}
    inputs["spatial_shapes"] = torch.tensor([[4, 4], [3, 4]])
    return _model("Siglip2", vision, TEXT | {"projection_size": 32}, "Model"), inputs, None


def _clipseg():
    sizes = {"projection_dim": 24, "reduce_dim": 8, "decoder_num_attention_heads": 2}
    sizes |= {"decoder_intermediate_size": 16, "extract_layers": [0, 1]}
    model = _model("CLIPSeg", SEEN, TEXT, "ForImageSegmentation", **sizes)
    return model, {"pixel_values": IMAGE.repeat(2, 1, 1, 1), "input_ids": TOKENS}, "L2.H0"


def _chinese_clip():
    return _model("ChineseCLIP", SEEN, TEXT, "Model", projection_dim=24), PIXELS, None


def _blip2():
    read = {"hidden_size": 32, "ffn_dim": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    read |= {"vocab_size": 60, "word_embed_proj_dim": 32, "pad_token_id": 0}
    former = SIZES | {"num_hidden_layers": 1, "vocab_size": 50, "encoder_hidden_size": 32}
    return _model("Blip2", SEEN, _config("OPT", read), qformer_config=former), PIXELS, None


MADE = {
    "LLaVA": _llava,
    "LLaVA-NeXT": _llava_next,
    "LLaVA-OneVision": _onevision,
    "PaliGemma": _paligemma,
    "Gemma 3": _gemma,
    "Idefics 3": _idefics,
    "SmolVLM": lambda: _idefics("SmolVLM"),
    "Qwen2.5-VL": _qwen,
    "Qwen3-VL": _qwen3,
    "BLIP-2": _blip2,
    "SigLIP 2 NaFlex": _siglip2,
    "CLIPSeg": _clipseg,
    "ChineseCLIP": _chinese_clip,
}


def pixtral():
    """A model around an image encoder that is neither CLIP's nor SigLIP's."""
    vision = SIZES | {"num_hidden_layers": 2, "image_size": 32, "patch_size": 8}
    return _model("Llava", _config("PixtralVision", vision), _config("Llama", READ))


def _flat(parts):
    for part in parts:
        yield from _flat(part) if isinstance(part, list | tuple) else [part.flatten()]


def make_model(name):
    """The model, a function that reads its image features, and a head of a layer that it ignores, if any."""
    model, inputs, ignored = MADE[name]()
    shake(model, 0)

    def read(model):
        with torch.no_grad():
            output = model(**inputs).logits if name == "CLIPSeg" else model.get_image_features(**inputs)
        pooled = getattr(output, "pooler_output", output)
        return torch.cat(list(_flat([*pooled, *getattr(output, "deepstack_features", ())])))

    return model.eval(), read, ignored
