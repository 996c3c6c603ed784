"""Image encoders from outside: those of a registered family, and those inside vision-language models."""

import contextlib
import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import IMAGE, HeadSet
from ccs.model.ablation import ablate
from ccs.model.encoder import ChosenLayers, Encoder
from ccs.model.encoders import REGISTERED, decompose_registered
from ccs.model.encoders.readouts import Parts
from ccs.model.loading.sources import HUB, without_folders
from ccs.model.loading.weights import renamed
from ccs.model.model import Model, load
from ccs.model.structure import attention_modules, encoder_inside, unwrapped
from ccs.sandbox import reason

TOLERANCE = 1e-5
"""The largest difference of a coordinate of the unit embedding at which a decomposition counts as exact."""


@dataclass(frozen=True)
class EncoderCheck:
    """Largest differences of a coordinate of the unit embedding, measured on an example.

    Guaranteed for the example, in float32 on the CPU: embeddings, ablation of each head, and contributions
    that sum to the embedding. Not guaranteed: other sizes and options of the family, other devices, training.

    Attributes:
        embedding: Embeddings from the parts, compared with the module's.
        ablation: Each head ablated, compared with its columns of the output projection zeroed in a copy.
        contributions: The sum of all contributions, compared with the embedding.
        in_module: `ccs.ablate` on the module, compared with the same copies; None if a pass doesn't call the
            output projection, so that heads can be ablated only in a `Model`.
    """

    embedding: float
    ablation: float
    contributions: float
    in_module: float | None


def register_encoder(
    matches: Callable[[Any], bool], decompose: Callable[[Any], Parts], example: Any
) -> EncoderCheck:
    """Register a family of image encoders, so that their heads can be ablated, scored, and mapped.

    The family is registered only if its decomposition is exact on the example. A family that is registered
    later goes first, and all go before this package's own.

    Args:
        matches: Returns True for a module of the family.
        decompose: Returns the parts of such a module, made of the classes in `ccs.model.encoders.parts` and
            `ccs.model.encoders.readouts`. They must read weights when they run, not copy them.
        example: A small module of the family with random weights, without dropout. Called with pixels
            [n, 3, height, width], it returns embeddings [n, dim].

    Returns:
        The differences measured on the example, and what they guarantee.

    Raises:
        InputError: If `matches` rejects the example, or the decomposition isn't exact.

    Examples:
        docs/analyze-a-model.md has a decomposition. The example must belong to the family:

        >>> from torch import nn
        >>> try:
        ...     register_encoder(lambda module: isinstance(module, nn.Conv2d), None, nn.Identity())
        ... except InputError as error:
        ...     print(error)
        `matches` returns False for the example, of class Identity; it must return True.
    """
    name = type(example).__name__
    if not matches(example):
        raise InputError(f"`matches` returns False for the example, of class {name}; it must return True.")
    check = _check(example.eval(), decompose)
    for part, difference in vars(check).items():
        if not (difference or 0.0) <= TOLERANCE:
            raise InputError(
                f"The decomposition of {name} isn't exact: `{part}` differs by {difference:.1e} from the "
                f"module; at most {TOLERANCE:.0e} is allowed. Check stem, blocks, and read-out."
            )
    REGISTERED.insert(0, (matches, decompose))
    return check


@torch.no_grad()
def _check(example: Any, decompose: Callable[[Any], Parts]) -> EncoderCheck:
    parts = decompose(example)
    encoder, random = Encoder(example, parts=parts), torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 3, *parts.image_size, generator=random)
    unit = F.normalize(example(pixels), dim=-1)
    direct, remainder = encoder.contributions(encoder.embed_and_read(pixels)[1])
    ablation_sets = [HeadSet([head]) for head in encoder.all_heads]
    expected = []
    for head in encoder.all_heads:
        zeroed = copy.deepcopy(example)
        layer = decompose(zeroed).layers[head.layer]
        layer.projection.weight[:, head.head * layer.head_dim : (head.head + 1) * layer.head_dim] = 0
        expected.append(F.normalize(zeroed(pixels), dim=-1))
    in_module, outputs = None, []
    with contextlib.suppress(InputError):  # the pass bypasses a head
        for heads in ablation_sets:
            with ablate(example, heads):
                outputs.append(F.normalize(example(pixels), dim=-1))
        in_module = _largest(torch.stack(outputs) - torch.stack(expected))
    return EncoderCheck(
        embedding=_largest(encoder.embed(pixels)[0] - unit),
        ablation=_largest(encoder.embed(pixels, ablation_sets) - torch.stack(expected)),
        contributions=_largest(direct.sum(1) + remainder - unit),
        in_module=in_module,
    )


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max())


def extract_image_encoder(
    model: Any,
    text_encoder: str,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    layers: ChosenLayers | None = None,
) -> Model:
    """Make a `Model` of the image encoder inside a model, for TEXTSPAN, maps, and everything else.

    A warning says if the encoder was trained further than `text_encoder`'s, whose texts are used.

    Args:
        model: A transformers model that holds a CLIP or SigLIP image encoder (LLaVA, LLaVA-OneVision,
            PaliGemma, Gemma 3), that encoder, or the folder or repository of such a model; or a module of a
            family added by `register_encoder`, with embeddings in the space of `text_encoder`.
        text_encoder: The CLIP that the encoder comes from, as `ccs.load` takes it. For LLaVA 1.5 it is
            "hf-hub:openai/clip-vit-large-patch14-336". Its texts and preprocessing are used, and its
            projection and pool if the model has none.
        device: As in `ccs.load`.
        precision: As in `ccs.load`.
        layers: As in `ccs.load`.

    Returns:
        The model.

    Raises:
        InputError: If the model can't be loaded, has no such encoder, or doesn't fit `text_encoder`.

    Examples:
        >>> from ccs import load
        >>> from transformers import CLIPVisionConfig, CLIPVisionModel
        >>> sizes = {"hidden_size": 192, "intermediate_size": 384, "image_size": 72, "patch_size": 12}
        >>> sizes |= {"num_hidden_layers": 8, "num_attention_heads": 6, "hidden_act": "gelu"}
        >>> inner = CLIPVisionModel(CLIPVisionConfig(**sizes))
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):    # it isn't the organism's encoder
        ...     extract_image_encoder(inner, "organism").heads == load("organism").heads
        True
    """
    whole = unwrapped(_loaded(model) if isinstance(model, str) else model)
    attention_modules(whole, IMAGE)  # refuses a model without an image encoder
    encoder = encoder_inside(whole, IMAGE)
    extracted = load(text_encoder, device=device, precision=precision, layers=layers)
    visual, name = extracted.clip.visual, Path(model).name if isinstance(model, str) else type(whole).__name__
    extracted.name = f"{name} with {extracted.name}"
    if decompose_registered(encoder) is not None:
        extracted.use_image_encoder(copy.deepcopy(encoder), layers)
        return extracted
    prefixed = ((f"vision_model.{key}", value) for key, value in encoder.state_dict().items())
    new_names = renamed(prefixed, siglip=hasattr(visual, "trunk"))
    weights = {key.removeprefix("visual."): value for key, value in new_names.items()}
    ours = visual.state_dict()
    different = [key for key in ours if "blocks." in key and key not in weights]  # a pool may be missing
    different += [key for key, value in weights.items() if key not in ours or value.shape != ours[key].shape]
    if different:
        names = ", ".join(different[:3])
        raise InputError(f"The image encoder of {name} is not built like {text_encoder}'s: {names}.")
    act = getattr(encoder.config, "hidden_act", "")
    if act and (act == "quick_gelu") != extracted.config["quick_gelu"]:
        raise InputError(f"The image encoder of {name} uses {act}, and that of {text_encoder} doesn't.")
    pairs = ((value.to(ours[key]), ours[key]) for key, value in weights.items())
    was_trained = any(not torch.allclose(value, original, atol=1e-3) for value, original in pairs)
    visual.load_state_dict(weights, strict=False)
    if was_trained:
        warnings.warn(
            f"The image encoder of {name} was trained further than {text_encoder}'s, whose texts are used.",
            stacklevel=2,
        )
    return extracted


def _loaded(name: str) -> Any:
    """Load transformers' model of that name, from safetensors and without the repository's code."""
    from transformers import AutoModelForImageTextToText

    path = name.removeprefix(HUB)
    try:
        return AutoModelForImageTextToText.from_pretrained(path, dtype="auto", use_safetensors=True)
    except Exception as error:  # its reader raises dozens of exception types
        explanation = without_folders(reason(error))[:300]
        raise InputError(
            f"{name[:100]!r} can't be loaded as a vision-language model ({explanation})."
        ) from None
