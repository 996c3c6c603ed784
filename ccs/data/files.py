"""List the files of a folder, a zip, or a tar as one mapping from paths to files, and choose some of them.

Files that aren't used are counted by reason in `Files.notes`.
"""

import lzma
import mimetypes
import os
import re
import stat
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from io import BytesIO
from os.path import splitext
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from PIL import Image

from ccs.errors import InputError
from ccs.files import as_text

_WORDS = {"test": "test testing", "validation": "val valid validation dev eval", "train": "train training"}
SPLITS = {word: split for split, words in _WORDS.items() for word in words.split()}
"""Word -> the split that it names. By default, the first of `test`, `validation`, and `train` is read."""
TABLES = ("labels.csv", "metadata.csv", "metadata.jsonl")
VIDEOS = (".mp4", ".webm", ".avi", ".mkv", ".mov", ".m4v", ".mpg", ".wmv", ".3gp", ".m2ts")
NO_IMAGE = "not an image"
LINK = "a link in an archive"
_HIDDEN = re.compile(r"(?:[^/]*/)*?(?:\.[^/]*|__MACOSX|@eaDir|Thumbs\.db|desktop\.ini)(?=/|\Z)")
"""Matches a path up to its first hidden part."""
_BROKEN = (BadZipFile, NotImplementedError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of a damaged zip member, or of one with an unsupported compression."""
_NO_PICTURES = frozenset({"MPEG", "PDF", "HDF5", "BUFR", "GRIB", "EPS", "WMF"})
"""Formats that Pillow lists, although their files are rarely images of a dataset."""

Opener = Callable[[], IO[bytes]]
"""Opens a file, wherever it is; it can be pickled."""
_Listed = Iterator[tuple[str, Opener | str]]
"""Paths, each with its opener, or with the reason why the file isn't used."""


@dataclass(frozen=True, eq=False)  # compared by identity, so that `_zip` opens a replaced file again
class OnDisk:
    """Opens the file at a path."""

    path: str

    def __call__(self) -> IO[bytes]:
        """Open the file for reading."""
        return open(self.path, "rb")


@dataclass(frozen=True)
class Files:
    """Files by their path below `source`, in order.

    Attributes:
        source: Their folder or archive, in messages.
        openers: Path -> the file's opener.
        notes: A count for each kind of file that isn't used.
        split: The chosen split; "" if there was no choice.
    """

    source: str
    openers: Mapping[str, Opener]
    notes: tuple[str, ...] = ()
    split: str = ""

    @property
    def title(self) -> str:
        """The source as text, with the split."""
        return as_text(self.source) + (f" (split {self.split})" if self.split else "")

    @cached_property
    def images(self) -> list[str]:
        """The paths of images, by their ending, or by their first bytes if the ending has no known type."""
        return [path for path, opener in self.openers.items() if _is_image(path, opener)]

    def ending_in(self, *endings: str) -> list[str]:
        """Return the paths with one of these endings, in any case."""
        return [path for path in self.openers if path.lower().endswith(endings)]

    def read(self, path: str | None) -> bytes:
        """Return a file's bytes. Raises OSError for a path that isn't there, or None."""
        try:
            with self.openers[path or ""]() as stream:
                return stream.read()
        except (KeyError, *_BROKEN) as error:
            raise OSError(f"it cannot be unpacked: {error}" if path else "no such file") from None

    def only(self, paths: Iterable[str], reason: str, below: str = "") -> "Files":
        """Keep some files, and count the others.

        Args:
            paths: The files to keep.
            reason: The reason for the others' count. `NO_IMAGE` counts them by ending.
            below: A prefix that is removed from the paths.
        """
        chosen = set(paths)
        openers = {path.removeprefix(below): self.openers[path] for path in self.openers if path in chosen}
        return replace(self, openers=openers, notes=self.notes + _count(reason, self.openers.keys() - chosen))

    def unpack(self, archives: Iterable[str]) -> "Files":
        """Replace archives by their members, each below the path of its archive without the ending."""
        openers, notes = dict(self.openers), self.notes
        for path in archives:
            inside = list_files(openers.pop(path), path)
            openers |= {f"{splitext(path)[0]}/{name}": member for name, member in inside.openers.items()}
            notes += inside.notes
        return replace(self, openers=openers, notes=notes)

    def in_split(self, splits: Mapping[str, str], split: str, usual: str = "") -> "Files":
        """Choose the files of one split.

        Args:
            splits: Path -> its split, or "".
            split: The split to read; "" for `usual`.
            usual: The default split. If it doesn't exist, the first of test, validation, and train is read.

        Returns:
            The files of the split; all files if there are no splits.

        Raises:
            InputError: If the requested split doesn't exist.
        """
        known = {*splits.values()} - {""}
        if not split and not known:
            return self
        chosen = SPLITS.get(split.casefold(), split) or next(n for n in (usual, *_WORDS) if n in known)
        if chosen not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise InputError(f"{self.source!r} has no split {split!r}; it has {listed}.")
        inside = [path for path, name in splits.items() if name == chosen]
        return replace(self.only(inside, f"not in the split {chosen}"), split=chosen)

    def descend(self, split: str = "", usual: str = "") -> "Files":
        """Enter a single folder around all images, and one of the splits if all top folders are splits.

        Args:
            split: As in `in_split`.
            usual: As in `in_split`.

        Raises:
            InputError: If the requested split doesn't exist, or two folders are the same split.
        """
        files, entered = self, False
        while tops := sorted({path.partition("/")[0] for path in files.images if "/" in path}):
            tables = {path for path in files.openers if path.rpartition("/")[2] in TABLES}
            nested = bool(tables) or any(path.count("/") > 1 for path in files.images)
            names = {top: SPLITS.get(top.casefold(), "") for top in tops}
            are_splits = not entered and all(names.values()) and (nested or len(tops) > 1)
            if tables & {*TABLES} or not (are_splits or (nested and len(tops) == 1)):
                break
            if are_splits:
                splits = {path: name for path in files.openers if (name := names.get(path.partition("/")[0]))}
                files, entered = files.in_split(splits, split, usual), True
                tops = sorted({path.partition("/")[0] for path in files.openers})
            if len(tops) > 1:
                raise InputError(f"{files.source!r} has {' and '.join(tops)} for one split: merge them.")
            inside = [path for path in files.openers if path.startswith(f"{tops[0]}/")]
            files = files.only(inside, "outside of the folders read", f"{tops[0]}/")
        if split and not entered:
            raise InputError(f"{files.source!r} has no folders of splits, so not the split {split!r} either.")
        return files


def _count(reason: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Describe files that aren't used."""
    groups = defaultdict(list)
    for path in sorted(paths):
        groups[splitext(path)[1].lower() * (reason == NO_IMAGE)].append(as_text(path))
    return tuple(
        f"{reason}: {f'{len(group)} files, for example' if len(group) > 1 else '1 file'} {group[0]}"
        for group in groups.values()
    )


@cache
def _image_endings() -> frozenset[str]:
    """Return the endings of files that Pillow opens."""
    Image.preinit()  # else the usual formats are tried last whenever an image is opened
    formats = Image.registered_extensions().items()
    return frozenset(name for name, kind in formats if kind in Image.OPEN.keys() - _NO_PICTURES)


def _is_image(path: str, opener: Opener) -> bool:
    ending = splitext(path)[1].lower()
    if ending in _image_endings():
        return True
    if kind := mimetypes.guess_type(f"x{ending}")[0]:
        return kind.startswith("image/")  # of a format that Pillow doesn't read: reported as unreadable
    with suppress(OSError, *_BROKEN), opener() as stream:
        start = stream.read(32)
        tests = (accept for kind, (_, accept) in Image.OPEN.items() if kind not in _NO_PICTURES and accept)
        return len(start) > 15 and any(accept(start) is True for accept in tests)
    return False


# Listing --------------------------------------------------------------------------------------------------


def list_files(place: Path | Opener, source: str) -> Files:
    """List the files in a folder or an archive, or a single Parquet file.

    Args:
        place: A folder, a file, or an opener of a file.
        source: Its name in messages.

    Raises:
        InputError: If it isn't a folder, zip, tar, or Parquet file, or if it names a file twice or outside of
            the archive.
    """
    openers: dict[str, Opener] = {}
    unused: dict[str, set[str]] = defaultdict(set)
    try:
        if isinstance(place, Path) and place.is_dir():
            listed = _in_folder(str(place), "", frozenset())
        else:
            listed = _in_archive(OnDisk(str(place)) if isinstance(place, Path) else place)
        for path, file in listed:
            if isinstance(file, str):
                unused[file].add(path)
            elif ".." in path.split("/") or re.match("/|[A-Za-z]:/", path):
                raise ValueError(f"it names a file outside the archive, {as_text(path)[:100]!r}")
            elif path in openers:
                raise ValueError(f"it holds {as_text(path)[:100]!r} twice")
            elif hidden := _HIDDEN.match(path):
                unused["hidden"].add(hidden[0])
            else:
                openers[path] = file
    except Exception as error:  # zipfile and tarfile raise many exception types
        name = as_text(str(getattr(error, "filename", None) or source))
        raise InputError(f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    notes = [note for reason, paths in unused.items() for note in _count(reason, paths)]
    return Files(source, dict(sorted(openers.items())), tuple(notes))


def _in_folder(folder: str, prefix: str, above: frozenset[str]) -> _Listed:
    """List a folder at any depth. Links are followed, except those to a folder above them."""
    real = os.path.realpath(folder)
    if real in above:
        yield prefix.rstrip("/"), "a link to a folder above it"
        return
    for entry in os.scandir(folder):
        path = prefix + entry.name
        if _HIDDEN.match(entry.name):
            yield path, "hidden"
        elif entry.is_dir():
            yield from _in_folder(entry.path, f"{path}/", above | {real})
        else:
            yield path, OnDisk(entry.path) if entry.is_file() else "a broken link or a device"


def _in_archive(opener: Opener) -> _Listed:
    """List a zip under the names that it unpacks to, an uncompressed tar, or one Parquet file."""
    with opener() as stream:
        start = stream.read(512)
        stream.seek(0)
        if start.startswith(b"PAR1"):
            yield "rows.parquet", opener
        elif start[257:262] == b"ustar":
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                for entry in tar:
                    place = partial(_open_range, opener, entry.offset_data, entry.size)
                    if not entry.isdir():
                        yield entry.name.removeprefix("./"), place if entry.isreg() else LINK
        elif not start.startswith(b"PK"):
            raise ValueError("not a zip, tar, or Parquet file; unpack it or give the folder with the images")
    for member in _zip(opener, os.getpid()).infolist() if start.startswith(b"PK") else ():
        name = member.filename
        if not member.flag_bits & 0x800:  # without a declared encoding; often UTF-8
            try:
                name = name.encode("cp437").decode("utf-8")
            except UnicodeError:
                yield name, "a name in an unknown encoding, read as cp437 (or give the unpacked folder)"
        if member.flag_bits & 1:
            raise ValueError(f"{name!r} in it is encrypted")
        if stat.S_ISLNK(member.external_attr >> 16):
            yield name, LINK
        elif not member.is_dir():
            yield name.replace("\\", "/").removeprefix("./"), partial(_open_member, opener, member.filename)


@lru_cache(maxsize=4)
def _zip(archive: Opener, process: int) -> ZipFile:
    """Open a zip, once per process, because a shared file has a single position."""
    return ZipFile(archive.path if isinstance(archive, OnDisk) else archive())


def _open_member(archive: Opener, name: str) -> IO[bytes]:
    return _zip(archive, os.getpid()).open(name)


def _open_range(archive: Opener, start: int, size: int) -> IO[bytes]:
    with archive() as stream:
        stream.seek(start)
        return BytesIO(stream.read(size))
