"""Tiny Hugging Face checkpoints of random weights, saved by transformers."""

from functools import cache
from itertools import count

import torch

from tests.support.tiny_model import randomize_weights

SIZES = {"hidden_size": 32, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4}
VISION_SIZES = SIZES | {"image_size": 32, "patch_size": 8}


@cache
def clip_vocabulary():
    """Return the tokens and merges of CLIP with the names that transformers uses."""
    from open_clip.tokenizer import SimpleTokenizer

    plain = SimpleTokenizer()
    *words, _, _ = plain.encoder
    return dict(zip([*words, "<|startoftext|>", "<|endoftext|>"], count())), list(plain.bpe_ranks)


def write_clip(folder, *, vision=None, text=None, max_shard_size="1GB", **whole):
    """Save a CLIPModel of two layers with its processor.

    Args:
        folder: Folder to write.
        vision: Entries of the image encoder's configuration.
        text: Entries of the text encoder's configuration.
        max_shard_size: Size of a file of weights.
        **whole: Top-level entries of the configuration.

    Returns:
        The model of transformers.
    """
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPTokenizer

    read = {**SIZES, "vocab_size": 49_408, "max_position_embeddings": 12, **(text or {})}
    seen = VISION_SIZES | (vision or {})
    config = CLIPConfig(vision_config=seen, text_config=read, projection_dim=24, **whole)
    vocabulary, merges = clip_vocabulary()
    side = config.vision_config.image_size
    sizes = {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
    CLIPImageProcessor(**sizes, image_mean=[0.4, 0.5, 0.6]).save_pretrained(folder)
    CLIPTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
    return _save_checkpoint(folder, CLIPModel(config), max_shard_size)


def write_siglip(folder, *, vision=None, **text):
    """Save a SiglipModel of two layers with its processor.

    Args:
        folder: Folder to write.
        vision: Entries of the image encoder's configuration.
        **text: Entries of the text encoder's configuration.

    Returns:
        The model of transformers.
    """
    from transformers import Siglip2Tokenizer, SiglipConfig, SiglipImageProcessor, SiglipModel

    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", *"abcdefghijklmnopqrstuvwxyz", "at", "cat", "▁cat"]
    vocabulary, merges = dict(zip(words, count())), [("a", "t"), ("c", "at"), ("▁", "cat")]
    read = {**SIZES, "vocab_size": len(words), "max_position_embeddings": 12, **text}
    config = SiglipConfig(vision_config=VISION_SIZES | (vision or {}), text_config=read)
    side = config.vision_config.image_size
    SiglipImageProcessor(size={"height": side, "width": side}).save_pretrained(folder)
    Siglip2Tokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
    return _save_checkpoint(folder, SiglipModel(config))


def _save_checkpoint(folder, model, max_shard_size="1GB"):
    randomize_weights(model.eval(), seed=3)
    model.logit_scale.data.fill_(2.0)
    if hasattr(model, "logit_bias"):
        model.logit_bias.data.fill_(-3.0)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


@torch.no_grad()
def embed_without_ccs(folder, images, texts):
    """Embed images and texts with open_clip or transformers, without ccs.

    Args:
        folder: Folder of the model.
        images: PIL images.
        texts: Texts.

    Returns:
        Unit embeddings of images and of texts, and the logits [images, texts].
    """
    import open_clip
    import transformers

    if (folder / "config.json").exists():
        model = transformers.AutoModel.from_pretrained(folder)
        processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
        pixels = processor(images, return_tensors="pt").pixel_values
        options = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}
        options["max_length"] = model.config.text_config.max_position_embeddings
        tokens = transformers.AutoTokenizer.from_pretrained(folder)(texts, **options).input_ids
        # Without an attention mask, because texts always have an end token.
        outputs = model.get_image_features(pixels), model.get_text_features(tokens)
    else:
        model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
        tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(texts)
        pixels = torch.stack([*map(preprocess, images)])
        outputs = model.eval().encode_image(pixels), model.encode_text(tokens)
    features = (getattr(output, "pooler_output", output) for output in outputs)
    image_units, text_units = (torch.nn.functional.normalize(output, dim=-1) for output in features)
    bias = getattr(model, "logit_bias", None)
    logits = model.logit_scale.exp() * image_units @ text_units.T + (0 if bias is None else bias)
    return image_units.numpy(), text_units.numpy(), logits
