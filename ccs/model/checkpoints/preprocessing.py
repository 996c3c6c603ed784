"""Preprocessing of a Hugging Face checkpoint, validated and translated to open_clip's configuration."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Literal

from PIL import Image
from pydantic import Field, ValidationError

from ccs.errors import InputError
from ccs.model.checkpoints.config import Read, Refused
from ccs.model.config import MAX_CONFIG_BYTES, Ratio, Real, Side, why
from ccs.model.fetching import Place

PREPROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")


class _Sides(Read):
    shortest_edge: Side | None = None
    height: Side | None = None
    width: Side | None = None


class _Preprocessor(Read):
    """preprocessor_config.json, with the defaults of CLIPImageProcessor."""

    do_resize: Literal[True] = True
    size: _Sides | Side = _Sides(shortest_edge=224)
    resample: Literal[2, 3] = 3
    do_center_crop: bool | None = True
    crop_size: _Sides | Side = 224
    do_rescale: Literal[True] = True
    rescale_factor: Annotated[float, Field(ge=0.00392156, le=0.00392157)] = 1 / 255
    do_normalize: bool = True
    image_mean: tuple[Real, Real, Real] = (0.48145466, 0.4578275, 0.40821073)
    image_std: tuple[Ratio, Ratio, Ratio] = (0.26862954, 0.26130258, 0.27577711)

    def in_open_clips_words(self, side: int) -> dict[str, Any]:
        size, crop = self.size, self.crop_size
        if isinstance(size, int):
            size = _Sides(shortest_edge=size)
        if isinstance(crop, int):
            crop = _Sides(height=crop, width=crop)
        square = (side, side)
        squashed = (size.height, size.width) == square and size.shortest_edge is None
        cropped = size.shortest_edge == side and self.do_center_crop and (crop.height, crop.width) == square
        if not squashed and not cropped:
            raise Refused(
                f"images must become {side} by {side} pixels, by their shorter edge and a crop or as a whole"
            )
        plain = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        mean, std = (self.image_mean, self.image_std) if self.do_normalize else plain
        return {
            "mean": list(mean),
            "std": list(std),
            "interpolation": {2: "bilinear", 3: "bicubic"}[self.resample],
            "resize_mode": "squash" if squashed else "shortest",
        }


class _SiglipPreprocessor(_Preprocessor):
    """preprocessor_config.json, with the defaults of SiglipImageProcessor."""

    size: _Sides | Side = _Sides(height=224, width=224)
    image_mean: tuple[Real, Real, Real] = (0.5, 0.5, 0.5)
    image_std: tuple[Ratio, Ratio, Ratio] = (0.5, 0.5, 0.5)


class _Processor(Read):
    """processor_config.json, where newer versions of transformers keep the preprocessing."""

    image_processor: dict[str, Any] | None = None


def read_preprocessing(place: Place, kind: str, side: int, name: str) -> dict[str, Any]:
    """open_clip's preprocessing configuration from the processor's files; InputError without such a file.

    kind: the checkpoint's `model_type`. side: the images' side in pixels.
    """
    nested, own = (place.read(file, MAX_CONFIG_BYTES) for file in PREPROCESSOR_FILES)
    preprocessor = _SiglipPreprocessor if kind == "siglip" else _Preprocessor
    try:
        inner = None if nested is None else _Processor.model_validate_json(nested).image_processor
        if inner is None and own is None:
            raise Refused(f"there is no {PREPROCESSOR_FILES[1]}")
        found = preprocessor.model_validate_json(own or b"" if inner is None else json.dumps(inner))
        return found.in_open_clips_words(side)
    except ValidationError as error:
        reason = why(error)
    except Refused as error:
        reason = f"{error}."
    raise InputError(f"The preprocessing of {name} cannot be used: {reason}")


def cropping(transform: Any) -> Any:
    """open_clip's transform with the crop of transformers, which cuts an odd pixel off at the end."""
    from torchvision.transforms import CenterCrop, Compose

    steps = [
        partial(_crop, size=step.size) if isinstance(step, CenterCrop) else step
        for step in transform.transforms
    ]
    return Compose(steps)


def _crop(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    height, width = size
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
