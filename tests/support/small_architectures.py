"""Every architecture of open_clip with few, narrow layers and random weights."""

import json
from contextlib import contextmanager
from unittest import mock

import open_clip
import timm
import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.model import _build_text_tower, _build_vision_tower

from tests.support.tiny_model import randomize_weights, save_model

TEXTS = ["a photo of a dog", "A photo of two Cats.", "the drawn world, in snow!", "what CLIP heads learn_ed"]
WIDTH, HEADS, SIDE = 32, 4, 32


def small_vision_config(name):
    """Shrink open_clip's configuration of an image encoder."""
    vision = dict(open_clip.get_model_config(name)["vision_cfg"])
    if vision.get("timm_model_name"):
        return vision
    if isinstance(vision["layers"], list):
        return vision | {"layers": [1, 1, 1, 1], "width": 8, "head_width": 64, "image_size": 64}
    small = {"layers": 3, "width": WIDTH, "head_width": WIDTH // HEADS, "patch_size": 8, "image_size": SIDE}
    return vision | small | {"attn_pooler_queries": 3, "attn_pooler_heads": 2}


@contextmanager
def small_timm_models():
    """Make timm build small models."""
    create_model = timm.create_model

    def small(model, **keywords):
        return create_model(model, **keywords | _timm_keywords(model))

    with mock.patch.object(timm, "create_model", small):
        yield


def small_config(name):
    """Shrink open_clip's configuration of an architecture; build it within `small_timm_models`."""
    whole = open_clip.get_model_config(name)
    dim = WIDTH if whole["vision_cfg"].get("timm_proj") == "none" else 24
    text = whole["text_cfg"] | {"context_length": 16, "width": 16, "heads": 2, "layers": 2}
    if text.get("hf_tokenizer_name"):
        text |= {"vocab_size": 400}
    vision = small_vision_config(name) | {"image_size": SIDE}
    return whole | {"embed_dim": dim, "vision_cfg": vision, "text_cfg": text}


def write_small_model(folder, name):
    """Write a model of an architecture with SigLIP's text encoder; `ccs.load` it within `small_timm_models`.

    Args:
        folder: Folder to write.
        name: Name of open_clip's architecture.

    Returns:
        The folder.
    """
    config = small_config(name) | {"text_cfg": small_config("ViT-B-16-SigLIP")["text_cfg"]}
    config["init_logit_bias"] = -10
    with small_timm_models(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        arguments = {key: value for key, value in config.items() if key != "custom_text"}
        clip = open_clip.CustomTextCLIP(**arguments)
    randomize_weights(clip, 0)
    clip.logit_scale.data.fill_(2.0)
    clip.logit_bias.data.fill_(-1.5)
    write_tokenizer(folder)
    return save_model(folder, clip, {"model_cfg": config})


def write_tokenizer(folder):
    """Write a tokenizer like SigLIP's: subwords, and an end token that is also the padding token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    rules = Tokenizer(models.Unigram())
    rules.pre_tokenizer, rules.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    rules.train_from_iterator(TEXTS, trainer)
    rules.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    folder.mkdir(parents=True, exist_ok=True)
    rules.save(str(folder / "tokenizer.json"))
    tokenizer_config = dict.fromkeys(("pad_token", "eos_token"), "</s>")
    tokenizer_config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), "utf-8")


def build_image_encoder(name, seed=0, randomize=True):
    """Build the small image encoder of an architecture.

    Args:
        name: Name of open_clip's architecture.
        seed: Seed of the weights.
        randomize: Draw all weights at random, also biases and norms.

    Returns:
        The module.
    """
    config = small_config(name)
    with small_timm_models(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        quick = bool(config.get("quick_gelu"))
        visual = _build_vision_tower(config["embed_dim"], small_vision_config(name), quick)
    if randomize:
        randomize_weights(visual, seed)
    return visual.eval()


def build_text_encoder(name):
    """Build the small text encoder of an architecture; one of transformers stays uninitialized."""
    whole = small_config(name)
    if whole["text_cfg"].get("hf_model_name"):
        return object.__new__(HFTextEncoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = whole["text_cfg"] | {"vocab_size": 400}
        text = _build_text_tower(24, config, bool(whole.get("quick_gelu")))
    randomize_weights(text, 0)
    return text.eval()


def _timm_keywords(model):
    small = {"embed_dim": WIDTH, "depth": 3, "num_heads": HEADS, "img_size": SIDE}
    if model.startswith("vitamin"):
        from timm.models.vitamin import VitCfg

        stem = VitCfg(embed_dim=(8, 8, WIDTH), depths=(1, 1, 1), stem_width=8, head_type="1d")
        return small | {"embed_cfg": stem}
    if model == "vit_base_mci_224":  # the width of its stem is fixed
        return small | {"embed_dim": 768, "num_heads": 12, "depth": 2}
    if model.startswith("vit_pe_core"):
        return small | {"patch_size": 8, "attn_pool_num_heads": 2}
    if model.startswith(("vit", "eva")):
        return small | {"patch_size": 8}
    return {}
