"""A CLIP model: embeddings of images and texts under ablation, and contributions of heads."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ccs.data.decoding import UNREADABLE, to_rgb
from ccs.errors import InputError, require_texts
from ccs.heads import HeadSet
from ccs.model.encoder import BATCH_TOKENS, ChosenLayers, Encoder, Trunk
from ccs.model.encoders import decompose_image_encoder
from ccs.model.encoders.decomposition import autocast, without_tf32
from ccs.model.handle import to_probabilities
from ccs.model.inputs import OPENAI, PREPROCESSING, as_sequence, batch_length, to_pixels
from ccs.model.loading.building import create
from ccs.model.loading.config import CONFIG_FILE, MAX_CONFIG_BYTES
from ccs.model.loading.sources import Source
from ccs.model.side import AblationSets, Side, Texts

Images = Sequence[Image.Image] | Tensor | Trunk
"""Images (any sequence, decoded when needed), pixels [n, 3, s, s] from `preprocess`, or activations from
`Model.trunk`."""

_PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def load(
    name: str, *, device: str = "cpu", precision: str = "fp32", layers: ChosenLayers | None = None
) -> Model:
    """Load a model.

    Args:
        name: A bundled model ("organism"), open_clip's name and tag ("ViT-B-32/openai"), a folder with
            open_clip_config.json and weights or with a Hugging Face checkpoint (CLIPModel, SiglipModel), or a
            repository on the Hub with either ("hf-hub:org/name"). The tag "random" gives an architecture
            random weights from a fixed seed.
        device: "cpu", "cuda", "cuda:N", or "auto" (see `usable_device`).
        precision: "fp32", or "bf16" or "fp16" to embed images under autocast. Contributions and texts stay
            fp32.
        layers: The layers whose heads are scored, "all" or their numbers. By default the last four blocks
            and, if attention pools the tokens, the pool.

    Returns:
        The model.

    Raises:
        InputError: If the name is unknown (with close matches), the heads of the image encoder are unknown,
            the activation doesn't fit the weights (QuickGELU), or weights can't be loaded or aren't finite.

    Examples:
        >>> model = load("organism")
        >>> len(model.heads), model.embed_texts(["a red cat"]).shape    # unit rows, float32 [texts, dim]
        (24, (1, 160))
    """
    if precision not in _PRECISIONS:
        raise InputError(f"The precision {precision!r} is not one of {', '.join(_PRECISIONS)}.")
    with torch.inference_mode(False):  # weights that gradients can flow through
        return Model(*create(name, device), _PRECISIONS[precision], layers)


class Model(Side):
    """A CLIP model whose heads can be ablated. `ccs.load` makes it; threads may share it.

    Attributes:
        name: The name that results are filed under.
        architecture: Name of the architecture in open_clip, or a description for a folder.
        tag: Tag of the weights in open_clip, "" for a folder.
        heads: The image encoder's heads that are scored, by default those of the last four layers as in the
            paper; others can be ablated too.
        encoder: The image encoder.
        texts: The text side, with methods of the same names.
        text_heads: The text encoder's heads that are scored.
        clip: The module, open_clip's or, for a bundled model, a `PlainCLIP` with weights of the same names.

    Examples:
        >>> from ccs import load, open_images
        >>> model, images = load("organism"), open_images("world", 2).images
        >>> model.embed_images(images).shape, model.embed_images(images, [HeadSet(), model.heads]).shape
        ((2, 160), (2, 2, 160))
    """

    def __init__(
        self,
        source: Source,
        clip: Any,
        tokenizer: Any,
        autocast: torch.dtype | None,
        layers: ChosenLayers | None = None,
    ) -> None:
        self.name, self.architecture, self.tag = source.name, source.architecture, source.tag
        self._source, self.config = source, source.config
        self.clip, self.tokenizer, self._autocast = clip, tokenizer, autocast
        self._hashed: tuple[Any, list[float], str] | None = None
        of_registry = getattr(clip.visual, "preprocess_cfg", {})
        self.preprocess_config: dict[str, Any] = {**PREPROCESSING, **of_registry, **source.preprocess}
        self._set_encoder(layers)

    def _set_encoder(self, layers: ChosenLayers | None) -> None:
        """Decompose the image encoder, and preprocess images to its size."""
        self._encoder, self._decomposed = Encoder(self.clip.visual, self._autocast, layers), self._parts()
        self._identities = [*map(id, self._decomposed)]  # which aren't those of a copy
        self.__dict__.pop("_texts", None)
        encoder = self._encoder
        self.preprocess_config["size"] = encoder.image_size  # open_clip's is wrong for ViTamin-XL-384
        self.n_layers, self.n_heads, self.head_dim = encoder.n_layers, encoder.n_heads, encoder.head_dim
        self.dim, self.image_size = encoder.dim, encoder.image_size[0]

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """The image encoder, decomposed again if modules or hooks of `clip` were replaced.

        Raises:
            InputError: If `clip` is in training mode or not float32, or its embeddings have other causes.
        """
        if [*map(id, self._parts())] != self._identities:
            changed = copy.copy(self)
            changed._set_encoder(self._encoder.chosen_layers)
            changed._require_exact()
            self.__dict__ = changed.__dict__
        return self._encoder

    def _parts(self) -> list[Any]:
        """Return the modules and hooks of `clip`; InputError if it isn't ready for use."""
        modules = list(self.clip.modules())
        if any(module.training for module in modules):
            raise InputError(f"{self.name} is in training mode: call model.clip.eval() first.")
        weights = (weight for module in modules for weight in module._parameters.values())
        if other := {weight.dtype for weight in weights if weight is not None} - {torch.float32}:
            raise InputError(f"{self.name} has weights of {other.pop()}: model.clip must stay torch.float32.")
        tables = (hooks for part in modules for hooks in (part._forward_hooks, part._forward_pre_hooks))
        hooks = (hook for table in tables for hook in table.values())
        return [*modules, *(hook for hook in hooks if not type(hook).__module__.startswith("ccs."))]

    @torch.no_grad()
    def _require_exact(self) -> None:
        """Raise InputError if the embeddings of an image and a text aren't those of `clip`."""
        exact, random = self.in_float32(), torch.Generator().manual_seed(0)
        pixels, device = torch.randn(1, 3, *self._encoder.image_size, generator=random), self._encoder.device
        tokens = self.tokenize(["a photo"])
        with autocast(device.type, None), without_tf32():
            outputs = self.clip.encode_image(pixels.to(device)), self.clip.encode_text(tokens.to(device))
        expected = (F.normalize(output, dim=-1).cpu() for output in outputs)
        ours = exact.embed_images(pixels), exact.embed_texts(["a photo"])
        if not all(np.allclose(*pair, atol=1e-3) for pair in zip(ours, expected, strict=True)):
            raise InputError(
                f"The modules of {self.name} were changed so that heads don't explain its embeddings. Merge "
                "adapters, and remove hooks and layers of your own, or use ccs.ablate on model.clip."
            )

    @property
    def logit_scale(self) -> float:
        """The factor on cosines."""
        return float(self.clip.logit_scale.detach().exp())

    @property
    def logit_bias(self) -> float | None:
        """The number that is added to the scaled cosines (SigLIP), or None."""
        bias = getattr(self.clip, "logit_bias", None)
        return None if bias is None else float(bias.detach())

    def use_image_encoder(self, visual: Any, layers: ChosenLayers | None = None) -> None:
        """Replace the image encoder by a module of a family of `register_encoder`.

        Args:
            visual: The module, which is frozen and moved to this model's device. Its embeddings must be in
                the space of this model's texts.
            layers: As in `load`.

        Raises:
            InputError: If its embeddings have another dimension than the texts'.
        """
        if (dim := decompose_image_encoder(visual).dim) != self.dim:
            raise InputError(f"Image embeddings of {dim} dimensions don't fit texts of {self.dim}.")
        self.clip.visual = visual.to(self.encoder.device).eval().requires_grad_(False)
        self._set_encoder(layers)

    def __repr__(self) -> str:
        return f"<Model {self.name}: {self.n_layers} layers of {self.n_heads} heads, {self.image_size} px>"

    @property
    def checkpoint_folder(self) -> Path | None:
        """The folder with transformers' files that the model was loaded from; None for open_clip's models."""
        place = self._source.place if self._source.checkpoint else None
        return place.folder_of((CONFIG_FILE,), MAX_CONFIG_BYTES) if place else None

    @property
    def weights_hash(self) -> str:
        """sha256 of all weights of both encoders, by name, as float32; tables are filed by it.

        It is computed again if weights were replaced or changed in place. Writes through `.data` leave no
        trace that is cheap to see; `rehash` notices them, too.
        """
        weights = sorted(self.clip.state_dict().items())
        state = [
            (name, values.data_ptr(), 0 if values.is_inference() else values._version)
            for name, values in weights
        ]
        if self._hashed is None or self._hashed[0] != state:
            digest = hashlib.sha256()
            for name, values in weights:
                digest.update(f"{name} {tuple(values.shape)}\n".encode())
                digest.update(np.ascontiguousarray(values.float().cpu().numpy()).data)
            self._hashed = state, self._weight_sums(), digest.hexdigest()
        return self._hashed[2]

    @property
    def fingerprint(self) -> str:
        """sha256 of all that embeddings depend on: weights, configuration, and preprocessing."""
        settings = [self.weights_hash, self.config, self.preprocess_config, self._source.checkpoint]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def rehash(self) -> str:
        """Return `weights_hash`, computed again if the sum of a weight changed; this reads all weights."""
        if self._hashed is not None and self._hashed[1] != self._weight_sums():
            self._hashed = None
        return self.weights_hash

    def _weight_sums(self) -> list[float]:
        """Sum each weight, which reads all of them."""
        return [float(values.sum()) for values in self.clip.state_dict().values()]

    def in_float32(self) -> Model:
        """Return this model without autocast, with the same weights."""
        exact = copy.copy(self)
        exact._encoder, exact._autocast = self.encoder.in_float32(), None
        return exact

    def with_weights(self, weights: Mapping[str, Tensor]) -> Model:
        """Return a copy of this model in which some weights of `clip`, by name, are replaced."""
        changed = copy.copy(self)
        changed.clip = copy.deepcopy(self.clip)
        changed.clip.load_state_dict(weights, strict=False)
        changed._set_encoder(self.encoder.chosen_layers)
        return changed

    @property
    def is_openai_scaled(self) -> bool:
        """True if pixels are scaled by the mean and deviation of OpenAI's models."""
        return all(np.allclose(self.preprocess_config[key], OPENAI[key]) for key in OPENAI)

    def openai_scaled(self, pixels: Tensor) -> Tensor:
        """Rescale pixels [n, 3, s, s] from `preprocess` to the mean and deviation of OpenAI's models."""
        mean, std, to_mean, to_std = (
            torch.tensor(config[key], dtype=torch.float32, device=pixels.device).view(3, 1, 1)
            for config in (self.preprocess_config, OPENAI)
            for key in OPENAI
        )
        return (pixels * std + mean - to_mean) / to_std

    def preprocess(self, images: Sequence[Image.Image]) -> Tensor:
        """Turn images into pixels [n, 3, s, s] float32, with the model's size, mean, and deviation.

        Images are decoded as files are (`ccs.data.decoding.to_rgb`).

        Raises:
            InputError: If one isn't a readable PIL image.
        """
        height, width = self.encoder.image_size
        images = as_sequence(images)
        pixels = torch.empty(len(images), 3, height, width)
        for index in range(len(images)):
            image = images[index]
            if not isinstance(image, Image.Image):
                raise InputError(f"Image {index} is {type(image).__name__}, not a PIL.Image.")
            try:
                pixels[index] = to_pixels(
                    to_rgb(image), self.preprocess_config, (height, width), bool(self._source.checkpoint)
                )
            except UNREADABLE as error:
                raise InputError(f"Image {index} can't be used: {error}.") from None
        return pixels

    @property
    def texts(self) -> Texts:
        """The text side; InputError, with the reason, if its encoder can't be decomposed by head."""
        _ = self.encoder  # decomposes both if modules were replaced
        return self._texts

    @cached_property
    def _texts(self) -> Texts:
        return Texts(self)

    @property
    def text_heads(self) -> HeadSet:
        """The text encoder's heads that are scored, those of its last four layers."""
        return self.texts.heads

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Turn texts into token ids [texts, context]. A text that is longer than the context is cut.

        Warns:
            UserWarning: If a text is cut.
        """
        texts = require_texts(as_sequence(texts))
        tokens: Tensor = self.tokenizer(texts)
        padding = self.tokenizer([""])[0, -2]  # the last token may be an end
        rows = torch.nonzero(tokens[:, -2] != padding)[:, 0].tolist()
        # A text is cut if it has the same tokens without its last letter.
        shorter = self.tokenizer([re.sub(r"\w\W*$", "", texts[row]) for row in rows]) if rows else ()
        cut = [row for row, others in zip(rows, shorter, strict=True) if torch.equal(tokens[row], others)]
        if cut:
            limit = f"{self.name} reads at most {tokens.shape[1]} tokens of a text"
            message = f"{limit}. Longer texts are cut ({len(cut)}), such as {texts[cut[0]][:80]!r}."
            warnings.warn(message, UserWarning, stacklevel=2)
        return tokens

    def embed_images(
        self, images: Images, ablate: AblationSets = None, batch_size: int | None = None
    ) -> np.ndarray:
        """Compute unit embeddings of images, float32.

        Work that ablation sets share is done once. Memory is bounded by the batch.

        Args:
            images: Images, pixels, or a trunk, in which case only heads of its layer and above can be
                ablated.
            ablate: Heads as `Intervention.from_heads` reads them, or a list of such sets.
            batch_size: Images in a batch.

        Returns:
            [images, dim], or [sets, images, dim] for a list of ablation sets.
        """
        return self.embed(images, ablate, batch_size)

    def embed_texts(
        self, texts: Sequence[str], batch_size: int | None = None, ablate: AblationSets = None
    ) -> np.ndarray:
        """Compute unit embeddings of texts, float32. A text that is too long is cut, as in `tokenize`.

        Args:
            texts: The texts.
            batch_size: Texts in a batch.
            ablate: Heads of the text encoder, or a list of such sets.

        Returns:
            [texts, dim], or [sets, texts, dim] for a list of ablation sets.

        Raises:
            InputError: If it is a single text in place of a list.
        """
        texts, _ = as_sequence(texts), self.encoder  # which checks the modules
        try:
            side = self._texts
        except InputError:  # its heads are unknown
            if ablate:
                raise
        else:
            return side.embed(texts, ablate, batch_size)
        size, units = batch_length(batch_size, 256), [np.empty((0, self.dim), np.float32)]
        for start in range(0, len(texts), size):
            tokens = self.tokenize(texts[start : start + size]).to(self.encoder.device)
            with torch.no_grad():
                units.append(self.clip.encode_text(tokens, normalize=True).float().cpu().numpy())
        return np.concatenate(units)

    def trunk(self, images: Images, batch_size: int | None = None) -> Trunk:
        """Compute the activations that enter the first scored layer, for sets that touch no earlier layer.

        Args:
            images: Images or pixels.
            batch_size: Images in a batch.
        """
        parts = [self.encoder.trunk(part) for _, part in self.batches(images, batch_size)]
        empty = torch.empty(0, self.encoder.n_tokens, self.encoder.width, device=self.encoder.device)
        return Trunk.joined(parts) if parts else Trunk(empty, self.encoder.first_prunable_layer)

    def probabilities(self, cosines: np.ndarray) -> np.ndarray:
        """Compute probabilities [images, texts] from cosines [images, texts].

        They are the softmax of the scaled cosines over the texts. For a model with a logit bias (SigLIP),
        which was trained to score each text alone, they are sigmoids, which needn't sum to 1.
        """
        return to_probabilities(cosines, self.logit_scale, self.logit_bias)

    def batches(
        self, images: Images, batch_size: int | None = None
    ) -> Iterator[tuple[slice, Tensor | Trunk]]:
        """Yield bounded batches of images: their rows, and pixels [n, 3, s, s] or a trunk.

        Args:
            images: Images, pixels, or a trunk.
            batch_size: Images in a batch.

        Raises:
            InputError: If pixels have another size or are whole numbers, or a batch has less than one image.
        """
        tokens = BATCH_TOKENS if self.encoder.device.type == "cpu" else 131_072
        images = as_sequence(images)
        n, fitting = len(images), max(1, tokens // self.encoder.n_tokens)
        even = -(-n // max(1, -(-n // fitting)))  # as many batches as of the largest size, in less memory
        size = batch_length(batch_size, max(1, even))
        if isinstance(images, Tensor) and not (
            images.shape == (n, 3, *self.encoder.image_size) and images.is_floating_point()
        ):
            wanted = ", ".join(map(str, (3, *self.encoder.image_size)))
            actual = f"{list(images.shape)} of {str(images.dtype).removeprefix('torch.')}"
            raise InputError(f"Pixels must be [n, {wanted}] of floats for {self.name}, not {actual}.")
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            if isinstance(images, Tensor | Trunk):
                yield rows, images[rows]
            else:  # by index, since not every lazy sequence supports slices
                yield rows, self.preprocess([images[i] for i in range(rows.start, rows.stop)])
