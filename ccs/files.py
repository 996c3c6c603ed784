"""Files that are either whole or not there: atomic writes, their hash, and texts of the user's own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ccs.errors import InputError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; it replaces `path`, synced to disk, unless an exception is raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark. Raises InputError."""
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 (byte {error.start}).") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
