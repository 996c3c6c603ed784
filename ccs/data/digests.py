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


def identity(paths: Iterable[str], *details: str) -> str:
    """Hash the names, sizes, times, and inodes of files.

    Args:
        paths: The files.
        about: More text that is hashed.

    Returns:
        The hash; "" if it could miss a change, because a file isn't there or changed just now.
    """
    total = hashlib.sha256("\x00".join(details).encode(errors="surrogateescape"))
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


class DigestCache:
    """Digests (hexadecimal) of images by their place in a set, and the reason why one can't be read.

    Args:
        identity: That of the files with the images; "" keeps nothing.
    """

    def __init__(self, identity: str) -> None:
        from huggingface_hub import constants

        self._path = (
            Path(constants.HF_HOME) / "clip-ccs" / "read" / f"{identity[:32]}.json" if identity else None
        )
        self._known: dict[str, tuple[str, str]] = {}
        self._bytes_read = 0
        if self._path:
            with suppress(OSError, ValueError, TypeError):  # absent, or not written by us
                entries = dict(json.loads(self._path.read_text("utf-8")))
                self._known = {
                    place: (str(digest), str(reason)) for place, (digest, reason) in entries.items()
                }

    def get(self, place: int, read: Callable[[], tuple[str, str, int]]) -> tuple[str, str]:
        """Return the digest and the reason of the image at a place.

        Args:
            place: The image's place in its set.
            read: Reads both, and the number of bytes, if they are not known.
        """
        if str(place) not in self._known:
            *answer, size = read()
            self._bytes_read += size
            self._known[str(place)] = (answer[0], answer[1])
        return self._known[str(place)]

    def save(self) -> None:
        """Keep what was read, if it was much and there is room for it; not what could not be read."""
        if self._path and self._bytes_read >= LEAST:
            with suppress(InputError):
                write_text(
                    self._path, json.dumps({at: entry for at, entry in self._known.items() if entry[0]})
                )
