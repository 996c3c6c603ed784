"""Images of a visitor, an example, or a gallery, and cached results of models on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from PIL import Image

import ccs
from ccs.app.html import describe_ablation
from ccs.app.jobs import Tell, keep_quiet
from ccs.app.services.model_cache import Cache
from ccs.app.services.uploads import InputImage, data_url
from ccs.app.state import NO_HEADS
from ccs.heads import IMAGE, TEXT, Head, HeadSet, changes
from ccs.model.handle import ModelHandle

T = TypeVar("T")

PART_IMAGES, PART_OPERATIONS = 120, 10**11  # limits of a part: images, and floating-point operations
SIDE = 192  # of a map as a picture, in pixels
DARK = 0.33  # brightness of a patch that gets no attention
RED, BLUE, DEEPEST = "#d62828", "#2660dc", 0.85  # colors, and their opacity at the largest value
TRUNK_BYTES, DEEP_BYTES = 128 * 2**20, 40 * 2**20  # cached activations: of the first layer, and of others


def has_edits(heads: HeadSet) -> bool:
    """Return True if an intervention edits heads."""
    return any(change.attribute for _, change in changes(heads))


@dataclass(frozen=True)
class Images:
    """Images, and cached results of models on them. A model is loaded only if a result is missing.

    Attributes:
        key: The key of the images in the cache.
        images: The images.
        cache: The cache of all visitors.
        tell: Publishes the progress.
        originals: The images with their names, for uploads and examples.
        groups: Attribute -> the group of each image, if they are people.
    """

    key: Hashable
    images: Sequence[Image.Image]
    cache: Cache
    tell: Tell = keep_quiet
    originals: tuple[InputImage, ...] = ()
    groups: Mapping[str, Any] = field(default_factory=dict)

    def _keep(self, model: ModelHandle, kind: str, make: Callable[[], T], *settings: Hashable) -> T:
        return self.cache.get((kind, model.weights_hash, self.key, *settings), make, self.tell)

    def _parts(self, model: ccs.Model, images: Any, doing: str) -> Iterator[Any]:
        """Yield images, or a trunk, in parts of about a second of work, and publish the progress."""
        layer = getattr(images, "layer", None)  # only a trunk has one
        operations = 24 * (model.n_layers - (layer or 0)) * model.encoder.n_tokens * model.encoder.width**2
        n, step = len(images), int(min(PART_IMAGES, max(4, PART_OPERATIONS // operations)))
        for start in range(0, n, step):
            self.tell(start / n, f"{model.name} {doing} {n} images")
            stop = min(start + step, n)
            yield images[start:stop] if layer is not None else [images[i] for i in range(start, stop)]

    def trunk(self, model: ModelHandle) -> Any:
        """Return the `Trunk` of the images, which all ablations share; None if it is too large to cache."""
        loaded = model.load()
        if len(self.images) * loaded.encoder.n_tokens * loaded.encoder.width * 4 > TRUNK_BYTES:
            return None

        def compute() -> Any:
            trunks = [loaded.trunk(part) for part in self._parts(loaded, self.images, "embeds, once,")]
            return trunks[0].joined(trunks)

        return self._keep(model, "whole", compute)

    def _start(self, model: ModelHandle, layer: int, ablate: HeadSet = NO_HEADS) -> tuple[Any, HeadSet]:
        """Return cached activations that enter a layer or a lower one, and the image heads to ablate.

        If activations are too large to cache, return the images in their place.
        """
        heads, start = ablate.of_encoder(IMAGE), self.trunk(model)
        if start is None or layer <= start.layer or start.tokens.nbytes > DEEP_BYTES:
            return (self.images if start is None else start), heads
        below = heads.subset(head for head in heads if head.layer < layer)
        encoder, above = model.load().encoder.ablated(below), heads - below
        return self._keep(model, "trunk", lambda: encoder.trunk(start, layer), layer, below), above

    def embed(self, model: ModelHandle, ablate: HeadSet) -> np.ndarray:
        """Embed the images under ablation. Edits are fitted on these images if they are people.

        Args:
            model: The model.
            ablate: Heads to ablate. Only those of the image encoder count.

        Returns:
            Unit embeddings [n, d].
        """
        heads = self.fit(model, ablate).of_encoder(IMAGE)

        def compute() -> np.ndarray:
            loaded = model.load()
            start, _ = self._start(model, min((head.layer for head in heads), default=0))
            doing = f"with {describe_ablation(heads)} embeds" if heads else "embeds, once,"
            return np.concatenate([loaded.embed_images(p, heads) for p in self._parts(loaded, start, doing)])

        return self._keep(model, "embedded", compute, heads)

    def fit(self, model: ModelHandle, ablate: HeadSet) -> HeadSet:
        """Fit an intervention's edits on the people's groups. Without edits, return it unchanged.

        Args:
            model: The model.
            ablate: The intervention.
        """
        if not self.groups or not has_edits(ablate):
            return ablate
        from ccs.model.editing import fit_edits

        def fit_edits_once() -> HeadSet:
            self.tell(0.0, f"Fitting edits on {len(self.images)} images")
            start, _ = self._start(model, 0)
            edits, _ = fit_edits(model.load(), ablate.of_encoder(IMAGE), start, self.groups)
            return edits | ablate.of_encoder(TEXT)

        return self._keep(model, "fitted", fit_edits_once, ablate)

    def contributions(self, model: ModelHandle, head: Head) -> np.ndarray:
        """Return the contributions [n, d] of a head.

        Args:
            model: The model.
            head: The head.
        """

        def embed_parts() -> np.ndarray:
            parts = self._parts(loaded := model.load(), self.images, "embeds, once,")
            embedded = (loaded.embed_with_contributions(part, HeadSet(), loaded.heads) for part in parts)
            return np.concatenate([contributions.direct for _, contributions in embedded])

        def select() -> np.ndarray:
            return self._keep(model, "contributions", embed_parts)[:, list(model.load().heads).index(head)]

        return self._keep(model, "contribution", select, head)

    def attention(self, model: ModelHandle, layer: int, ablate: HeadSet) -> np.ndarray:
        """Return the attention of a layer's heads to each patch, after ablation.

        Args:
            model: The model.
            layer: The layer's number.
            ablate: Heads to ablate. Only those of the image encoder count.

        Returns:
            Attention [images, heads, rows, columns], with all heads of the layer in order.

        Raises:
            InputError: If the model's tokens don't form a grid.
        """
        loaded, (start, above) = model.load(), self._start(model, layer, ablate)
        return ccs.attention(loaded, start, loaded.encoder.all_heads.of_layer(layer), ablate=above)

    def maps(self, model: ModelHandle, heads: HeadSet, along: np.ndarray, ablate: HeadSet) -> np.ndarray:
        """Return the contribution of each patch through heads along vectors.

        Args:
            model: The model.
            heads: The heads.
            along: Vectors [E, d].
            ablate: Heads to ablate.

        Returns:
            Maps [images, E, rows, columns].
        """
        start, above = self._start(model, min(head.layer for head in heads), ablate)
        make = partial(ccs.heatmap, model.load(), start, along, heads, ablate=above)
        return self._keep(model, "maps", make, heads, ablate, hash(along.tobytes()))

    def inputs(self, model: ModelHandle) -> tuple[Image.Image, ...]:
        """Return the images as the model gets them."""

        def compute() -> tuple[Image.Image, ...]:
            loaded = model.load()
            return tuple(as_model_input(loaded, pixels) for pixels in loaded.preprocess(self.images))

        return self._keep(model, "inputs", compute)


def extremes(direct: np.ndarray, along: np.ndarray | None, n: int = 6) -> tuple[list[tuple[int, float]], ...]:
    """Return the pictures with the largest and the smallest contribution along a direction.

    Args:
        direct: Contributions of a head [n, d].
        along: A direction [d]. None for the contributions' first principal component, with the sign of the
            farthest one.
        n: The number of pictures at each end.

    Returns:
        Numbers and scores of the pictures at both ends. A score is the deviation from the mean picture, in
        standard deviations.
    """
    centered = direct - direct.mean(axis=0)
    if along is None:
        along = np.linalg.svd(centered, full_matrices=False)[2][0]
        far = centered @ along
        along = along * np.sign(far[np.abs(far).argmax()])
    scores = centered @ along
    scores = scores / (float(scores.std()) or 1.0)
    order = [(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")]
    return order[:n], order[::-1][:n]


# -- values of patches, as pictures over an image ------------------------------------------------------------


def as_model_input(model: ccs.Model, pixels: Any) -> Image.Image:
    """Return preprocessed pixels as an image, 8 bits a channel.

    Args:
        model: The model whose `preprocess` made the pixels.
        pixels: Pixels [3, s, s], normalized by the model's mean and standard deviation.
    """
    mean, std = (np.reshape(model.preprocess_config[name], (3, 1, 1)) for name in ("mean", "std"))
    levels = np.clip((pixels.numpy() * std + mean) * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(levels.transpose(1, 2, 0))


def highlight(image: Image.Image, values: np.ndarray, largest: float) -> str:
    """Return the image as a `data:` URL, with the brightness of a patch given by its value.

    Args:
        image: The image.
        values: Values of the patches [rows, columns]; 0 is dark.
        largest: The value at which a patch is as bright as in the image. Larger ones look the same.
    """
    brightness = DARK + (1 - DARK) * np.minimum(values / largest, 1)
    return data_url(_painted(_sized(image), "black", 1 - brightness))


def tint(image: Image.Image, values: np.ndarray, largest: float) -> str:
    """Return the image in gray as a `data:` URL, red where values are above zero, blue below.

    Args:
        image: The image.
        values: Values of the patches [rows, columns].
        largest: The value of the deepest color.
    """
    depth = DEEPEST * np.clip(values / (largest or np.inf), -1, 1)
    red = _painted(_sized(image.convert("L").convert("RGB")), RED, depth)
    return data_url(_painted(red, BLUE, -depth))


def patch_table(texts: Mapping[str, Sequence[str]], maps: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return a row for each patch of each image.

    Args:
        texts: Column -> a text for each image.
        maps: Column -> the patches' values [images, rows, columns].
    """
    image, row, column = np.indices(next(iter(maps.values())).shape).reshape(3, -1)
    columns = {name: np.array(values, object)[image] for name, values in texts.items()}
    values = {name: values.ravel().astype(float) for name, values in maps.items()}
    return pd.DataFrame({**columns, "row": row, "column": column, **values}).round(8)


def _sized(image: Image.Image) -> Image.Image:
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def _painted(image: Image.Image, color: str, opacity: np.ndarray) -> Image.Image:
    """Return the image under a color that is as opaque as the value of each patch, 0 to 1."""
    mask = Image.fromarray((255 * opacity).astype(np.float32)).resize(image.size, Image.Resampling.BILINEAR)
    return Image.composite(Image.new("RGB", image.size, color), image, mask.convert("L"))
