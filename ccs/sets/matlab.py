"""ImageNet-Segmentation as it is published: gtsegs_ijcv.mat, of MATLAB 7.3, which is HDF5.

`value/img` refers to each image [3, width, height], `value/gt` to a list of masks [width, height] of 0 and 1,
of which the first counts, as in the TEXTSPAN authors' code.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccs.errors import InputError, require
from ccs.files import as_text
from ccs.sets.digests import identity
from ccs.sets.kinds import Lazy
from ccs.sets.rows import Rows

SUFFIX = ".mat"


def rows(path: Path, name: str) -> Rows:
    """The images of such a file as PNG, with a column `mask`. Raises InputError for any other file."""
    try:
        with _opened(path) as file:
            count, _ = len(file["value/img"]), file["value/gt"]
    except (OSError, KeyError) as error:
        raise InputError(f"{str(path)!r} is not laid out like gtsegs_ijcv.mat ({error}).") from None
    masks, source = Lazy(partial(_png, path, "gt"), range(count)), as_text(str(path))
    read = partial(_png, path, "img")
    return Rows(name, source, count, read, {"mask": masks}, identity=identity([path]))


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
