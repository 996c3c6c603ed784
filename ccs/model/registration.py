"""Register a family of image encoders from outside this package."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.model.ablation import ablate
from ccs.model.encoder import Encoder
from ccs.model.encoders import REGISTERED
from ccs.model.encoders.readouts import Parts

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

    Example:
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
