"""List the files of a folder, a zip, or a tar as one mapping from paths to files, and choose among them.

Nothing disappears: a file that isn't used is counted under a reason in `Files.passed`.
"""

from __future__ import annotations

import io
import mimetypes
import os
import re
import stat
import tarfile
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from PIL import Image

from ccs.errors import InputError
from ccs.files import as_text

_WORDS = {"test": "test testing", "validation": "val valid validation dev eval", "train": "train training"}
SPLITS = {word: split for split, words in _WORDS.items() for word in words.split()}
"""Each word that names a split. Of several splits the first of `test`, `validation`, and `train` is read."""
TABLES = ("labels.csv", "metadata.csv", "metadata.jsonl")
VIDEOS = frozenset({".mp4", ".webm", ".avi", ".mkv", ".mov", ".m4v", ".mpg", ".wmv", ".3gp", ".m2ts"})
_JUNK = frozenset({"__MACOSX", "Thumbs.db", "desktop.ini"})
_NO_PICTURES = frozenset({"MPEG", "PDF", "HDF5", "BUFR", "GRIB", "EPS", "WMF"})
"""Formats that Pillow lists, but whose files are rarely images of a data set."""
_DATA = frozenset(
    {".parquet", ".npy", ".npz", ".pt", ".pth", ".safetensors", ".md", ".yaml", ".yml", ".lock"}
)


@dataclass(frozen=True, slots=True)
class File:
    """A file on the disk, in an archive there, or in memory. disk: the file, or its archive."""

    disk: str = ""
    member: Callable[[], IO[bytes]] | None = None

    def open(self) -> IO[bytes]:
        return self.member() if self.member else open(self.disk, "rb")

    def read(self, size: int = -1) -> bytes:
        with self.open() as opened:
            return opened.read(size)


@dataclass(frozen=True)
class Files:
    """Files by their path below `source`, in order. passed: reason -> paths of files that aren't used."""

    source: str
    by_path: Mapping[str, File]
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def only(self, paths: Iterable[str], reason: str, below: str = "") -> Files:
        """Keep these paths, without their first part `below`; count the others under the reason."""
        chosen = set(paths)
        left_out = tuple(path for path in self.by_path if path not in chosen)
        passed = dict(self.passed)
        if left_out:
            passed[reason] = (*passed.get(reason, ()), *left_out)
        kept = {path.removeprefix(below): file for path, file in self.by_path.items() if path in chosen}
        return Files(self.source, kept, passed)

    def notes(self) -> tuple[str, ...]:
        """Describe the files that aren't used, one sentence per reason and ending."""
        sentences = []
        for reason, paths in self.passed.items():
            by_ending: dict[str, list[str]] = {}
            for path in paths:
                by_ending.setdefault(ending(path) if reason == NO_IMAGE else "", []).append(path)
            for group in by_ending.values():
                files = "1 file" if len(group) == 1 else f"{len(group)} files, for example"
                sentences.append(f"{reason}: {files} {as_text(group[0])}")
        return tuple(sentences)


NO_IMAGE = "not an image"
HIDDEN = "hidden"
OTHER_SPLIT = "of another split"


def ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


@cache
def _image_endings() -> frozenset[str]:
    """The endings of files that Pillow opens."""
    Image.preinit()  # else the usual formats are tried last whenever an image is opened
    return frozenset(
        name
        for name, kind in Image.registered_extensions().items()
        if kind in Image.OPEN.keys() - _NO_PICTURES
    )


def image_paths(files: Files) -> list[str]:
    """List the images: known endings, and files of no known type whose first bytes are an image's."""
    return [path for path, file in files.by_path.items() if _is_image(path, file)]


def _is_image(path: str, file: File) -> bool:
    suffix = ending(path)
    if suffix in _image_endings():
        return True
    if suffix in VIDEOS or suffix in _DATA:
        return False
    kind = mimetypes.guess_type(f"x{suffix}")[0]
    if kind is not None:
        return kind.startswith("image/")  # of a format that Pillow doesn't read: reported as unreadable
    try:
        start = file.read(32)
    except OSError:
        return False
    tests = (accept for kind, (_, accept) in Image.OPEN.items() if kind not in _NO_PICTURES and accept)
    return any(accept(start) is True for accept in tests)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _JUNK


# Listing --------------------------------------------------------------------------------------------------


def list_files(place: Path | bytes, source: str, most_files: int = 0, most_bytes: int = 0) -> Files:
    """List the files in a folder or an archive; a Parquet file is the only one of its list.

    Args:
        place: A folder, a file, or the bytes of one.
        source: Its name in messages.
        most_files: The most files of an archive; 0 for no limit.
        most_bytes: The most bytes of an archive once unpacked; 0 for no limit.

    Raises:
        InputError: If it is no folder, zip, tar, or Parquet file, or exceeds a limit.
    """
    if isinstance(place, Path) and place.is_dir():
        return _list_folder(place, source)
    file = File(str(place)) if isinstance(place, Path) else File(member=partial(io.BytesIO, place))
    try:
        start = file.read(512)
    except OSError as error:
        raise InputError(f"{source!r} cannot be read: {error.strerror}.") from None
    if start.startswith(b"PAR1"):
        return Files(source, {"rows.parquet": file})
    if start.startswith(b"PK"):
        return _list_zip(place, source, most_files, most_bytes)
    if start[257:262] == b"ustar" and isinstance(place, Path):
        return list_tar(place, source)
    raise InputError(f"{source!r} cannot be read: it is no folder, zip, tar, or Parquet file.")


def _list_folder(root: Path, source: str) -> Files:
    """List a folder at any depth. Links are followed, except to a folder that is already above."""
    listed: dict[str, File] = {}
    passed: dict[str, list[str]] = {}

    def enter(folder: str, prefix: str, above: frozenset[str]) -> None:
        real = os.path.realpath(folder)
        if real in above:
            passed.setdefault("a link to a folder above it", []).append(prefix.rstrip("/"))
            return
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = prefix + entry.name
            if _is_hidden(entry.name):
                passed.setdefault(HIDDEN, []).append(path)
            elif entry.is_dir():
                enter(entry.path, f"{path}/", above | {real})
            elif entry.is_file():
                listed[path] = File(entry.path)
            else:
                passed.setdefault("a broken link or a device", []).append(path)

    try:
        enter(str(root), "", frozenset())
    except OSError as error:
        raise InputError(f"{as_text(str(error.filename))!r} cannot be read: {error.strerror}.") from None
    return Files(
        source, dict(sorted(listed.items())), {reason: tuple(paths) for reason, paths in passed.items()}
    )


def _list_zip(place: Path | bytes, source: str, most_files: int, most_bytes: int) -> Files:
    """List a zip by the names that it unpacks to."""
    try:
        if isinstance(place, bytes):
            archive = ZipFile(io.BytesIO(place))
            opener: Callable[[str], Callable[[], IO[bytes]]] = lambda name: partial(archive.open, name)  # noqa: E731
        else:
            archive = _zip(str(place), place.stat().st_mtime_ns, os.getpid())
            opener = lambda name: partial(_open_member, str(place), name)  # noqa: E731
    except Exception as error:  # zipfile raises many kinds
        raise InputError(f"{source!r} cannot be read as zip ({error}).") from None
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if most_files and len(entries) > most_files:
        raise InputError(f"The file holds {len(entries)} images; at most {most_files} are accepted.")
    if most_bytes and sum(entry.file_size for entry in entries) > most_bytes:
        raise InputError(f"The file holds more than {most_bytes >> 20} MB once unpacked.")
    disk, members, links = str(place) if isinstance(place, Path) else "", [], []
    for entry in entries:
        name = entry.filename
        if not entry.flag_bits & 0x800:  # its names have no declared encoding: UTF-8 if they can be
            with suppress(UnicodeError):
                name = name.encode("cp437").decode("utf-8")
        if entry.flag_bits & 1:
            raise InputError(f"{source!r} cannot be read: {name!r} in it is encrypted.")
        if stat.S_ISLNK(entry.external_attr >> 16):
            links.append(name)
        else:
            members.append((name, File(disk, opener(entry.filename))))
    return _of_members(members, source, links)


@lru_cache(maxsize=4)
def _zip(path: str, changed: int, process: int) -> ZipFile:
    """Open a zip as it is now; each process opens it again, for a shared file has one position."""
    return ZipFile(path)


def _open_member(path: str, name: str) -> IO[bytes]:
    return _zip(path, os.stat(path).st_mtime_ns, os.getpid()).open(name)


def list_tar(place: Path, source: str) -> Files:
    """List a tar that isn't compressed."""
    try:
        with tarfile.open(place, "r:") as archive:
            found = [
                (entry.name.removeprefix("./"), File(str(place), partial(_open_range, str(place), *at)))
                for entry in archive
                if entry.isreg() and (at := (entry.offset_data, entry.size))
            ]
    except (tarfile.TarError, OSError) as error:
        raise InputError(f"{source!r} cannot be read as tar ({error}).") from None
    return _of_members(found, source, [])


def _open_range(path: str, start: int, size: int) -> IO[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        return io.BytesIO(file.read(size))


def _of_members(members: Iterable[tuple[str, File]], source: str, links: Collection[str]) -> Files:
    listed: dict[str, File] = {}
    hidden: dict[str, None] = {}
    for name, file in members:
        path = name.replace("\\", "/")
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or re.match("[A-Za-z]:", path):
            raise InputError(f"{source!r} names a place outside of itself, {as_text(path)[:100]!r}.")
        if path in listed:
            raise InputError(f"{source!r} holds {as_text(path)[:100]!r} twice.")
        depth = next((depth for depth, part in enumerate(parts, 1) if _is_hidden(part)), 0)
        if depth:
            hidden["/".join(parts[:depth])] = None
        else:
            listed[path] = file
    passed = {HIDDEN: tuple(hidden), "a link in an archive": tuple(links)}
    return Files(
        source, dict(sorted(listed.items())), {reason: paths for reason, paths in passed.items() if paths}
    )


# Choosing -------------------------------------------------------------------------------------------------


def descend(files: Files, split: str = "") -> tuple[Files, str]:
    """Enter a wrapper around all images, and one of the splits if all top folders are splits.

    Args:
        files: The files below a folder or in an archive.
        split: The split to read; "" for the first of test, validation, and train that is there.

    Returns:
        The files below, and the split that was entered or "".

    Raises:
        InputError: If a split is requested that is not there.
    """
    entered = ""
    while True:
        deep = [path for path in image_paths(files) if "/" in path]
        tops = {path.partition("/")[0] for path in deep}
        tables = [path for path in files.by_path if path.rpartition("/")[2] in TABLES]
        if not tops or any("/" not in path for path in tables):
            break
        splits = {top: SPLITS.get(top.casefold(), "") for top in tops}
        has_folders = any(path.count("/") > 1 for path in deep) or bool(tables)
        if not entered and all(splits.values()) and (len(tops) > 1 or has_folders):
            entered = _wanted_split(set(splits.values()), split, files.source)
            chosen = [f"{top}/" for top in sorted(tops) if splits[top] == entered]
        elif len(tops) == 1 and has_folders:
            chosen = [f"{next(iter(tops))}/"]
        else:
            break
        reason = OTHER_SPLIT if entered and len(tops) > len(chosen) else "outside of the folders read"
        inside = [path for path in files.by_path if path.startswith(tuple(chosen))]
        files = files.only(inside, reason, below=chosen[0] if len(chosen) == 1 else "")
        if len(chosen) > 1:  # two names of one split, such as val and valid: their folders are joined
            names = [path.partition("/")[2] for path in files.by_path]
            if len(set(names)) < len(names):
                raise InputError(f"{files.source!r} has {' and '.join(chosen)} for one split: rename one.")
            files = Files(files.source, dict(zip(names, files.by_path.values(), strict=True)), files.passed)
    if split and not entered:
        raise InputError(f"{files.source!r} has no folders of splits, so not the split {split!r} either.")
    return files, entered


def splits_in(path: str) -> set[str]:
    """Return the splits that whole words of a path name."""
    return {
        SPLITS[word] for word in re.split(r"[^a-z]+", os.path.splitext(path.casefold())[0]) if word in SPLITS
    }


def choose_split(paths: Iterable[str], split: str, source: str) -> tuple[list[str], str]:
    """Choose the files of a split by a whole word of their name or folder; all where they aren't splits."""
    by_split: dict[str, list[str]] = {}
    for path in paths:
        named = splits_in(path)
        by_split.setdefault(named.pop() if len(named) == 1 else "", []).append(path)
    known = by_split.keys() - {""}
    if split or len(known) > 1 or (known and "" not in by_split):
        chosen = _wanted_split(known, split, source)
        return by_split[chosen], chosen
    return [path for group in by_split.values() for path in group], ""


def _wanted_split(known: Collection[str], split: str, source: str) -> str:
    wanted = SPLITS.get(split.casefold(), split)
    if wanted and wanted not in known:
        raise InputError(f"{source!r} has no split {split!r}; it has {', '.join(sorted(known)) or 'none'}.")
    return wanted or next(name for name in _WORDS if name in known)


def normalized(path: str) -> str:
    """Return a path as the tables are matched by: one kind of slash, no "./", no space around, NFC."""
    parts = unicodedata.normalize("NFC", path.strip().replace("\\", "/")).split("/")
    return "/".join(part for i, part in enumerate(parts) if part != "." and (part or i == 0))
