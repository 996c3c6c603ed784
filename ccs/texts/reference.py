"""The study's pool of 3,498 texts, which is its authors' to ship: fetched once, and known by its hash."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from pathlib import Path

from ccs.errors import InputError
from ccs.files import atomic_write, sha256

NAME = "reference"
FILE = "image_descriptions_general.txt"
SHA256 = "39c6bf3e788684d9e0e8afa902c13aae1ee8eafefdbab94ba923fd05b9038630"
LONGEST = 62
"""Characters of its longest text."""
ADDRESSES = tuple(
    f"https://raw.githubusercontent.com/yossigandelsman/clip_text_span/{at}/text_descriptions/{FILE}"
    for at in ("045b84f4591ae7a7dd8eb8f400bfb48ffb148251", "main")
)
"""A commit whose README reads the file, and the branch in its place; the hash decides what is taken."""
_MOST_BYTES = 1_000_000


def find() -> Path | None:
    """The file in $CCS_DATA or in the cache, or None. Raises InputError where another file has its name."""
    for path in _places():
        if path.is_file():
            if sha256(path) != SHA256:
                raise InputError(f"{path} is not the pool `{NAME}`, whose SHA-256 is {SHA256}.")
            return path
    return None


def fetch() -> Path:
    """The file, from its authors' repository where it is not here. Raises InputError."""
    if (found := find()) is not None:
        return found
    for address in ADDRESSES:
        try:
            with urllib.request.urlopen(address, timeout=30) as reply:
                content: bytes = reply.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException):
            continue
        if hashlib.sha256(content).hexdigest() == SHA256:
            with atomic_write(_places()[-1]) as path:
                path.write_bytes(content)
            return _places()[-1]
    raise InputError(
        f"The pool `{NAME}` could not be had from {ADDRESSES[-1]}: put the file into the folder $CCS_DATA, "
        f"or give it as --texts FILE; its SHA-256 is {SHA256}."
    )


def _places() -> list[Path]:
    from huggingface_hub import constants

    folders = [os.environ.get("CCS_DATA"), Path(constants.HF_HOME) / "clip-ccs"]
    return [Path(folder) / FILE for folder in folders if folder]
