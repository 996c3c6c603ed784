"""Tiny CLIP models of random weights in open_clip's folder format."""

import json

import torch


def tiny_config(quick_gelu=False, embed_dim=24, **vision):
    """Configure six layers of four heads of dimension 8, and 17 tokens.

    Args:
        quick_gelu: Whether the activation is QuickGELU.
        embed_dim: Dimensions of the embedding.
        **vision: Entries of vision_cfg.

    Returns:
        open_clip's configuration.
    """
    vision_cfg = {"image_size": 32, "patch_size": 8, "width": 32, "layers": 6, "head_width": 8, **vision}
    text_cfg = {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
    return {"embed_dim": embed_dim, "quick_gelu": quick_gelu, "vision_cfg": vision_cfg, "text_cfg": text_cfg}


def randomize_weights(module, seed):
    """Give all parameters random values, also biases and norms, whose initial values would hide mistakes.

    Args:
        module: Module to write to.
        seed: Seed.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.ndim == 1:
            mean, deviation = (1.0 if name.endswith("weight") else 0.0), 0.3
        elif "embedding" in name or parameter.ndim == 4 or name.endswith("proj"):
            mean, deviation = 0.0, parameter[0].numel() ** -0.5
        elif parameter.ndim == 2:
            mean, deviation = 0.0, parameter.shape[1] ** -0.5
        else:
            continue
        parameter.data.normal_(mean, deviation, generator=generator)


def tiny_clip(seed, **config_of):
    """Build open_clip's module of a `tiny_config`.

    Args:
        seed: Seed of the weights.
        **config_of: As in `tiny_config`.

    Returns:
        The module.
    """
    import open_clip

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        clip = open_clip.CLIP(**tiny_config(**config_of))
    randomize_weights(clip, seed)
    return clip


def write_tiny_model(folder, *, seed=0, **config_of):
    """Write a random model of a `tiny_config` with an unusual mean and deviation of pixels.

    Args:
        folder: Folder to write.
        seed: Seed of the weights.
        **config_of: As in `tiny_config`.

    Returns:
        The folder.
    """
    preprocess = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3], "interpolation": "bicubic"}
    config = {"model_cfg": tiny_config(**config_of), "preprocess_cfg": preprocess}
    return save_model(folder, tiny_clip(seed, **config_of), config)


def save_model(folder, clip, config):
    """Write a model in open_clip's format.

    Args:
        folder: Folder to write.
        clip: The open_clip module.
        config: Content of its configuration file.

    Returns:
        The folder.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config), "utf-8")
    weights = {name: values.contiguous() for name, values in clip.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    return folder
