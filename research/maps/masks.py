"""Photographs with masks of what they show: ImageNet-Segmentation as it is published, or one's own."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccs.errors import InputError, require
from ccs.files import as_text
from ccs.sets import ImageSet, Lazy
from ccs.sets.decoding import decode, identity
from ccs.sets.rows import Rows, encoded, of_parquet


@dataclass(frozen=True, kw_only=True, repr=False)
class MaskSet(ImageSet):
    """Images of one thing each. `masks`: of the same sizes, white where the thing is and black elsewhere."""

    masks: Sequence[Image.Image]


def open_masks(spec: str, most: int | None = None) -> MaskSet:
    """At most so many images with masks, of a file laid out like gtsegs_ijcv.mat or of a Parquet file with
    the columns `image` and `mask`. InputError for anything else.
    """
    path = Path(spec).expanduser()
    rows = matlab_rows(path) if path.suffix.lower() == ".mat" else of_parquet(path, path.stem)
    cells, found = rows.column("mask"), rows.readable(most)
    return MaskSet(name=rows.name, masks=Lazy(partial(_mask, cells), found.kept), **found.fields())


def _mask(cells: Sequence[Any], row: int) -> Image.Image:
    """A mask of 0 and 1, or of 0 and 255, as black and white."""
    return Image.fromarray(np.where(np.asarray(decode(encoded(cells[row]))) > 0, np.uint8(255), np.uint8(0)))


def matlab_rows(path: Path) -> Rows:
    """ImageNet-Segmentation as it is published: gtsegs_ijcv.mat, of MATLAB 7.3, which is HDF5. Images become
    PNG.

    `value/img` refers to each image [3, width, height], `value/gt` to a list of masks [width, height] of 0
    and 1, of which the first counts, as in the TEXTSPAN authors' code (compute_segmentations.py). InputError
    for any other file.
    """
    try:
        with _opened(path) as file:
            count, _ = len(file["value/img"]), file["value/gt"]
    except (OSError, KeyError) as error:
        raise InputError(f"{str(path)!r} is not laid out like gtsegs_ijcv.mat ({error}).") from None
    masks, read = Lazy(partial(_png, path, "gt"), range(count)), partial(_png, path, "img")
    return Rows(path.stem, as_text(str(path)), count, read, {"mask": masks}, identity=identity([path]))


def _opened(path: Path) -> Any:
    require("mat", "h5py")
    import h5py

    return h5py.File(path)


def _png(path: Path, part: str, row: int) -> bytes:
    with _opened(path) as file:
        held = file[file[f"value/{part}"][row, 0]]
        pixels = np.asarray(file[held[0, 0]] if part == "gt" else held).T
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, "PNG", compress_level=1)
    return out.getvalue()
