"""The weights of a Hugging Face checkpoint, in one file or several, under open_clip's names."""

import re
from collections.abc import Iterable

import torch
from torch import Tensor

WEIGHTS_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"


EMBEDDING, WORDS = "token_embedding.weight", "token_embedding.words"
"""Words that the bundled models never read have embeddings of zero. Their files leave these out, and list the
words that they have."""


def with_all_words(weights: dict[str, Tensor], size: int) -> dict[str, Tensor]:
    """Return weights with the embeddings of all words.

    Args:
        weights: The weights of a bundled model.
        size: The size of the vocabulary.
    """
    held, words = weights[EMBEDDING], weights[WORDS].long()
    whole = held.new_zeros(size, held.shape[1]).index_copy_(0, words, held)
    return {name: values for name, values in weights.items() if name != WORDS} | {EMBEDDING: whole}


_WRAPPED = re.compile(
    r"module\.|.*(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|base_model|base_layer|lora_\w+)\."
)


def require_plain_names(names: Iterable[str]) -> None:
    """Raise ValueError for names as torch.compile, FSDP, checkpointing, DDP, and peft save them."""
    if wrapped := next((name for name in names if _WRAPPED.match(name)), None):
        raise ValueError(
            f"{wrapped} is a name inside a wrapper: save the model without torch.compile, FSDP, or DDP, and "
            "a LoRA after `merge_and_unload()`"
        )


_CLIP = (
    ("vision_model.", "visual."),
    ("text_model.", ""),
    ("embeddings.patch_embedding.", "conv1."),
    ("embeddings.position_embedding.weight", "positional_embedding"),
    ("embeddings.", ""),
    ("pre_layrnorm.", "ln_pre."),
    ("post_layernorm.", "ln_post."),
    ("final_layer_norm.", "ln_final."),
    ("encoder.layers.", "transformer.resblocks."),
    ("visual_projection.weight", "visual.proj"),
    ("text_projection.weight", "text_projection"),
    ("head.", "text_projection."),
    (".self_attn.", ".attn."),
    (".layer_norm", ".ln_"),
    (".fc1.", ".c_fc."),
    (".fc2.", ".c_proj."),
)
_SIGLIP_IMAGES = (
    ("vision_model.embeddings.patch_embedding.", "visual.trunk.patch_embed.proj."),
    ("vision_model.embeddings.position_embedding.weight", "visual.trunk.pos_embed"),
    ("vision_model.post_layernorm.", "visual.trunk.norm."),
    ("vision_model.head.probe", "visual.trunk.attn_pool.latent"),
    ("vision_model.head.attention.out_proj.", "visual.trunk.attn_pool.proj."),
    ("vision_model.head.layernorm.", "visual.trunk.attn_pool.norm."),
    ("vision_model.head.", "visual.trunk.attn_pool."),
    ("vision_model.encoder.layers.", "visual.trunk.blocks."),
    (".self_attn.out_proj.", ".attn.proj."),
    (".self_attn.in_proj_", ".attn.qkv."),
    (".layer_norm", ".norm"),
)
_PARTS = re.compile(r"(.*\.self_attn)\.([qkv])_proj\.(weight|bias)")


def renamed(held: Iterable[tuple[str, Tensor]], siglip: bool = False) -> dict[str, Tensor]:
    """Rename a checkpoint's weights to open_clip's and timm's names.

    Args:
        held: The weights of a CLIPModel or SiglipModel by name.
        siglip: Whether it is a SiglipModel.

    Raises:
        ValueError: If part of a layer is missing.
    """
    weights = {}
    for theirs, values in _gathered(held).items():
        name = theirs
        for old, new in _SIGLIP_IMAGES if siglip and name.startswith("vision_model.") else _CLIP:
            name = name.replace(old, new)
        if siglip and theirs.startswith("text_model."):
            name = f"text.{name}"
        pool, in_pool, kind = name.partition("attention.in_proj_")
        if siglip and in_pool:
            width = len(values) // 3
            weights[f"{pool}q.{kind}"], weights[f"{pool}kv.{kind}"] = values[:width], values[width:]
        elif name == "visual.trunk.pos_embed":
            weights[name] = values.unsqueeze(0)
        elif name.startswith("logit_"):
            weights[name] = values.reshape(())
        else:
            weights[name] = values.T if name in ("visual.proj", "text_projection") else values
    return weights


def _gathered(held: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Join each attention's queries, keys, and values: `in_proj_weight`, `in_proj_bias`.

    Raises:
        ValueError: If one of the three is missing.
    """
    weights: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for name, values in held:
        if part := _PARTS.fullmatch(name):
            parts.setdefault(f"{part[1]}.in_proj_{part[3]}", {})[part[2]] = values
        elif not name.endswith(".position_ids"):  # a buffer of old versions: 0, 1, 2, ...
            weights[name] = values
    for name, three in parts.items():
        if len(three) < 3:
            raise ValueError(f"{name} has no {' and no '.join(sorted(set('qkv') - set(three)))}")
        weights[name] = torch.cat([three[letter] for letter in "qkv"])
    return weights
