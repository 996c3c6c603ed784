"""Write files atomically, hash them, and read text and CSV in UTF-8."""

import csv
import errno
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ccs.errors import InputError

TABLE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHUT = {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ENAMETOOLONG}
_UNABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}  # not supported by a file system
_SHUT |= {errno.EEXIST}  # a file instead of a folder


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors of a full disk, a quota, or a read-only folder into InputError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise InputError(
                f"There is no space left to write to {folder}; make room and run the same command again; "
                "finished work is kept."
            ) from error
        if error.errno in _SHUT:
            path = str(error.filename or folder).removesuffix(f".{os.getpid()}.tmp")
            raise InputError(f"{path} cannot be written to: {error.strerror}.") from error
        if error.errno in _UNABLE:
            raise InputError(
                f"The file system of {folder} does not support this ({error.strerror}); choose a folder on "
                "another one, such as a local disk."
            ) from error
        raise


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which then replaces `path`. Raises InputError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Write a file through to the disk, if the file system supports it."""
    with path.open("rb") as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in _UNABLE:
                raise


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 atomically.

    Args:
        path: The file.
        text: Its text.

    Raises:
        InputError: As in `atomic_write`.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def escape_output() -> None:
    """Print characters that the terminal cannot show as escapes, and to a stream that is closed nothing."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:  # after `2>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def as_text(name: str) -> str:
    """Return a file's name as text that can be stored: bytes that are not UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(text: str) -> str:
    """Return untrusted text for Markdown: on one line, without HTML, links, or pictures."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.split())).replace("](", "]\\(")


def inert(value: Any) -> Any:
    """Return a cell for a CSV: a text that a spreadsheet would run as a formula gets an apostrophe."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def sha256(path: Path) -> str:
    """Hash a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark. Raises InputError."""
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 (byte {error.start}).") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def csv_rows(text: str, name: str) -> list[dict[str, str]]:
    """Read a CSV with a header strictly, cells without space around them.

    Commas separate cells, or else tabs or semicolons, as spreadsheets write them; in `.tsv` tabs come first.

    Args:
        text: The file's text.
        name: Its name in messages.

    Raises:
        InputError: If it is no CSV, is empty, names two columns alike, or a row has more or fewer cells than
            the header.
    """
    first, marks = text.strip("\r\n").partition("\n")[0], "\t,;" if name.lower().endswith(".tsv") else ",\t;"
    mark = next(filter(first.__contains__, marks), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True, strict=True)
    try:
        header = [cell.strip() for cell in next(filter(any, reader), [])]
        if len({cell.casefold() for cell in header}) < len(header):
            raise InputError(f"{name} has two columns of one name; its columns are: {', '.join(header)}.")
        lines: list[list[str]] = []
        for cells in filter(any, reader):
            if len(cells) != len(header):
                raise InputError(
                    f"{name}, line {reader.line_num}: {len(cells)} cells in a table of {len(header)} "
                    'columns. Put a text with a comma into quotes, as in "a cat, sleeping".'
                )
            lines.append(cells)
    except csv.Error as error:
        raise InputError(f"{name} is not a readable CSV (line {reader.line_num}: {error}).") from None
    return [dict(zip(header, map(str.strip, line), strict=True)) for line in lines]


def read_rows(data: bytes, name: str) -> list[dict[str, Any]]:
    """Read the rows of a CSV with a header, of a JSON list of objects, or of JSON objects, one per line.

    Args:
        data: The file's bytes.
        name: Its name in messages; the endings `.json` and `.jsonl` mean JSON, `.tsv` tabs for commas.

    Raises:
        InputError: If it isn't UTF-8, isn't such a table, or a row has more or fewer cells than the header.
    """
    ending = Path(name).suffix.lower()
    try:
        text = data.decode("utf-8-sig")
        if ending not in (".json", ".jsonl"):
            return [*csv_rows(text, name)]
        lines = filter(str.strip, text.split("\n"))
        rows = json.loads(text) if ending == ".json" else list(map(json.loads, lines))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("it holds other values than objects")
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not a table, or a list of objects, in UTF-8 ({error}).") from None
    return rows


def endpoint() -> str:
    """Return the Hub's address in the environment now; the Hub's client reads it only at its import."""
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
