"""SHA-256 of the images of a set, kept from one run to the next.

A set of 80 GB takes minutes to read. It is not read again as long as its files have the same names, sizes,
times, and inodes: a file that is replaced by another of the same size and time has another time of change.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ccs.errors import InputError
from ccs.files import write_text

LEAST = 2**26
"""Bytes of images below which nothing is kept: these are read in less than a second."""
SETTLED = 2.0
"""Seconds since a file's last change before which it could change again and keep its time."""


def identity(paths: Iterable[str | Path], *about: str) -> str:
    """Hash the files' names, sizes, times, and inodes, and `about`; return "" if it could miss a change."""
    total = hashlib.sha256("\x00".join(about).encode(errors="surrogateescape"))
    newest = 0
    try:
        for path in paths:
            status = os.stat(path)
            newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
            times = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
            known = f"\x00{os.path.abspath(path)}\x00{status.st_size} {times}"
            total.update(known.encode(errors="surrogateescape"))  # a name need not be text
    except OSError:
        return ""
    return total.hexdigest() if 0 < newest < (time.time() - SETTLED) * 1e9 else ""


class Digests:
    """The digests (hexadecimal) of images by their place in a set, and the problem of each that is none.
    identity: of the files that they are in; "" keeps nothing.
    """

    def __init__(self, identity: str) -> None:
        self._path: Path | None = None
        self._found: dict[str, tuple[str, str]] = {}
        self._read = 0
        if identity:
            from huggingface_hub import constants

            self._path = Path(constants.HF_HOME) / "clip-ccs" / "read" / f"{identity[:32]}.json"
            with suppress(OSError, ValueError, TypeError):  # not there, or no record of ours: it is made anew
                kept = dict(json.loads(self._path.read_text("utf-8")))
                self._found = {str(place): (str(own), str(why)) for place, (own, why) in kept.items()}

    def of(self, place: int, read: Callable[[], tuple[str, str, int]]) -> tuple[str, str]:
        """Digest and problem of the image at a place, by `read` (these, and bytes) if they are not known."""
        if (known := self._found.get(str(place))) is None:
            digest, why, size = read()
            self._read += size
            known = self._found[str(place)] = digest, why
        return known

    def keep(self) -> None:
        """Keep what was read, where it was much and there is room for it; not what could not be read."""
        if self._path and self._read >= LEAST:
            with suppress(InputError):
                write_text(self._path, json.dumps({at: own for at, own in self._found.items() if own[0]}))
