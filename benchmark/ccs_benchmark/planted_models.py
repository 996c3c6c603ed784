"""Models that differ from a base model in a few heads, and the ground truth about these heads.

A head's slices are its rows of the attention's input projection (query, key, value) with their biases, and
its columns of the output projection. One safetensors file per model has their values. All other weights
are exactly the base model's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ccs.bundled import Planted
from ccs.errors import InputError
from ccs.files import endpoint, sha256
from ccs.heads import IMAGE, Head, HeadSet
from ccs.model.loading.sources import embedded
from ccs.model.model import Model
from ccs_benchmark import variants

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "clip-ccs difference 1"
SUFFIX, HUB = ".safetensors", "hf://"
MAX_BYTES, MAX_MODELS = 64 * 2**20, 200
FOLDER = Path(__file__).with_name("models") / "planted"
CARRIES = 0.1
"""Minimum share of a planted bias from which a head counts as a carrier."""


@dataclass(frozen=True, kw_only=True)
class Truth(Planted):
    """The ground truth about a model with a planted bias.

    Attributes:
        base: The base model.
        shares: Attribute -> head -> share of the logit gap removed if this head gets its original weights.
        drawn: The rule by which the heads were chosen.
        seed: Random seed for the training.
        pictures: Training images per head.
        rate: The learning rate.
        strength: Strength of the planted bias, as a factor of the log shares of the biased world.
    """

    base: str
    shares: Mapping[str, Mapping[Head, float]]
    drawn: str
    seed: int
    pictures: int
    rate: float
    strength: float = 1.0

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes of the synthetic faces by which the model is biased."""
        return tuple(name for name in ("gender", "skin tone") if name in self.carries)

    def carriers(self, attribute: str) -> tuple[Head, ...]:
        """Return the heads to find, the strongest first: those with a share of CARRIES or more.

        At least one head is returned, and all if shares weren't measured.
        """
        shares = self.shares.get(attribute, {})
        parts = {head: shares.get(head, 1.0) for head in self.carries[attribute]}
        order = sorted(parts, key=lambda head: -parts[head])
        return tuple(order[: max(1, sum(part >= CARRIES for part in parts.values()))])

    def __post_init__(self) -> None:
        if any(not carriers <= self.heads for carriers in self.carries.values()):
            raise ValueError("a carrier is outside the trained heads")


_TRUTH = TypeAdapter(Truth)


def names() -> tuple[str, ...]:
    """Return the names of the models that come with this package, in order."""
    return tuple(sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}")))


def located(models: str | Path | Iterable[str | Path] = "planted") -> tuple[str, ...]:
    """Return names and paths of models with a planted bias (`ccs_benchmark.score`); else InputError."""
    if not isinstance(models, str | Path):
        return tuple(path for place in models for path in located(place))
    text = str(models)
    if text == "planted":
        return tuple(name for name in names() if truth(name).attributes)
    folder = fetched(text) if text.startswith(HUB) else Path(text)
    if not folder.is_dir():
        truth(text)
        return (text,)
    paths = [str(path) for path in sorted(folder.glob(f"*{SUFFIX}")) if truth(str(path)).attributes]
    if not paths:
        raise InputError(f"{text[:100]} has no model with a planted bias (*{SUFFIX}).")
    return tuple(paths)


def fetched(address: str) -> Path:
    """Download the models of a repository on the Hub: at most MAX_MODELS files of MAX_BYTES.

    Args:
        address: Repository: hf://USER/NAME or hf://USER/NAME@REVISION.

    Raises:
        InputError: If it can't be downloaded, or is too large.
    """
    from huggingface_hub import HfApi, snapshot_download

    match = re.fullmatch(rf"{HUB}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?:@([\w./-]+))?", address, re.ASCII)
    if not match or ".." in address:
        raise InputError(f"{address[:100]!r} isn't a repository of models. Use {HUB}USER/NAME.")
    name, revision = match[1], match[2]
    try:
        api = HfApi(endpoint=endpoint())
        info = api.model_info(name, revision=revision, timeout=10, files_metadata=True)
        sizes = [file.size or 0 for file in info.siblings or [] if file.rfilename.endswith(SUFFIX)]
        if len(sizes) > MAX_MODELS or max(sizes, default=0) > MAX_BYTES:
            raise InputError(f"{address} holds {len(sizes)} files of up to {max(sizes):,} bytes; too much.")
        pattern = f"*{SUFFIX}"
        return Path(snapshot_download(name, revision=info.sha, allow_patterns=pattern, endpoint=endpoint()))
    except InputError:
        raise
    except Exception as error:  # the Hub's client raises dozens of kinds
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = type(error).__name__ if status is None else f"status {status}"
        raise InputError(f"{address} could not be fetched: {why}.") from error


def weights(name: str) -> str:
    """Return the start of the SHA-256 of a model's file, by which its scores are known."""
    return sha256(_file(name))[:16]


def file_of(name: str) -> Path | None:
    """Return the file of a bundled model or of a path; None for another name."""
    if name in names():
        return FOLDER / f"{name}{SUFFIX}"
    return Path(name) if name.endswith(SUFFIX) and "\0" not in name and Path(name).is_file() else None


def load(name: str, *, device: str = "cpu") -> Model:
    """Load a model: a base with other heads, one of `variants`, or any that `ccs.load` knows.

    Args:
        name: Name of the model, or its path.
        device: As in `ccs.load`.

    Raises:
        InputError: If it doesn't exist, or its base isn't bundled.
    """
    if (file := file_of(name)) is None:
        return variants.load(name, device=device)
    base = truth(name).base
    if base not in (*embedded(), *variants.names()):
        raise InputError(f"{file.name} needs the base model {base[:100]!r}, which this package doesn't have.")
    model = variants.load(base, device=device)
    apply(model.clip, file)
    model.name = file.stem
    return model


def truth(name: str) -> Truth:
    """Return the ground truth about a model; InputError if it has no planted bias."""
    with _opened(_file(name)) as (facts, _):
        return facts


def _file(name: str) -> Path:
    if (file := file_of(name)) is None:
        here = f"{names()[0]} to {names()[-1]}" if names() else "none"
        raise InputError(f"{name[:100]!r} isn't a model with a planted bias. Bundled models: {here}.")
    return file


def slices(clip: Any, heads: HeadSet) -> dict[str, Tensor]:
    """Locate heads in the parameters of their layers.

    Args:
        clip: The open_clip module.
        heads: Heads to locate.

    Returns:
        Name of a parameter -> the heads' rows in it, or their columns in an output projection.
    """
    import torch

    indices: dict[str, Tensor] = {}
    for encoder, layer in sorted({(head.encoder, head.layer) for head in heads}):
        name = f"{'visual.' if encoder == IMAGE else ''}transformer.resblocks.{layer}.attn"
        attn = clip.get_submodule(name)
        numbers = torch.tensor(heads.of_encoder(encoder).in_layer(layer))
        columns = (numbers[:, None] * attn.head_dim + torch.arange(attn.head_dim)).flatten()
        rows = torch.cat([columns + part * attn.embed_dim for part in range(3)])
        indices |= dict.fromkeys((f"{name}.in_proj_weight", f"{name}.in_proj_bias"), rows)
        indices[f"{name}.out_proj.weight"] = columns
    return indices


def by_head(name: str, values: Tensor) -> Tensor:
    """View a parameter with the heads along the first axis.

    Args:
        name: Name of a parameter that `slices` returns, or the end of one.
        values: Values of the parameter.
    """
    return values.T if name.endswith("out_proj.weight") else values


def apply(clip: Any, file: Path) -> None:
    """Write the slices of a file into its base.

    Args:
        clip: The open_clip module of the base.
        file: File with the slices.

    Raises:
        InputError: If the file has other heads, shapes, or types.
    """
    import torch

    with _opened(file) as (known, opened):
        layers = clip.visual.transformer.resblocks
        if any(h.layer >= len(layers) or h.head >= layers[h.layer].attn.num_heads for h in known.heads):
            raise ValueError(f"{known.base} does not have all of {known.heads}")
        wanted = slices(clip, known.heads)
        if sorted(opened.keys()) != sorted(wanted):
            raise ValueError(f"expected exactly the slices of {known.heads}")
        held = {name: opened.get_tensor(name) for name in wanted}
    for name, index in wanted.items():
        place, values = by_head(name, clip.get_parameter(name).detach()), held[name]
        if values.shape != place[index].shape or values.dtype != torch.float16:
            raise InputError(f"{file.name} has {name} in a wrong shape or type.")
        if not torch.isfinite(values).all():
            raise InputError(f"{file.name} has weights that aren't finite.")
        place[index] = values.float().to(place.device)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Truth, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"it is not of the format {FORMAT}")
            yield _TRUTH.validate_json(metadata["truth"]), opened
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"Can't read {file.name} as a planted model: {str(error)[:200]}.") from None
