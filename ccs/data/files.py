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
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
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
"""Formats that Pillow lists, but whose files are rarely images of a dataset."""
_DATA = frozenset(
    {".parquet", ".npy", ".npz", ".pt", ".pth", ".safetensors", ".md", ".yaml", ".yml", ".lock"}
)
NO_IMAGE, HIDDEN = "not an image", "hidden"


@dataclass(frozen=True, slots=True)
class File:
    """A file on the disk, in an archive there, or elsewhere.

    disk: path of the file or its archive, "" if it isn't on the disk. member: opens it, if it isn't `disk`.
    """

    disk: str = ""
    member: Callable[[], IO[bytes]] | None = None

    def open(self) -> IO[bytes]:
        return self.member() if self.member else open(self.disk, "rb")

    def read(self, size: int = -1) -> bytes:
        with self.open() as stream:
            return stream.read(size)


@dataclass(frozen=True)
class Files:
    """Files by their path below `source`, in order. passed: reason -> paths of files that aren't used."""

    source: str
    by_path: Mapping[str, File]
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def images(self) -> list[str]:
        """The paths of images: known endings, and files of no known type whose first bytes are an image's."""
        return [path for path, file in self.by_path.items() if _is_image(path, file)]

    def ending_in(self, *endings: str) -> list[str]:
        return [path for path in self.by_path if ending(path) in endings]

    def only(self, paths: Iterable[str], reason: str, below: str = "") -> Files:
        """Keep some files, and count the others.

        Args:
            paths: Paths of the files.
            reason: The reason under which the others are counted.
            below: The first part of these paths, which is cut off.
        """
        chosen = set(paths)
        passed = dict(self.passed)
        if left_out := tuple(path for path in self.by_path if path not in chosen):
            passed[reason] = (*passed.get(reason, ()), *left_out)
        by_path = {path.removeprefix(below): file for path, file in self.by_path.items() if path in chosen}
        return Files(self.source, by_path, passed)

    def notes(self) -> tuple[str, ...]:
        """Describe the files that aren't used, one sentence per reason and ending."""
        groups = defaultdict(list)
        for reason, paths in self.passed.items():
            for path in paths:
                groups[reason, ending(path) if reason == NO_IMAGE else ""].append(as_text(path))
        return tuple(
            f"{reason}: {f'{len(paths)} files, for example' if len(paths) > 1 else '1 file'} {paths[0]}"
            for (reason, _), paths in groups.items()
        )


def ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


@cache
def _image_endings() -> frozenset[str]:
    """Return the endings of files that Pillow opens."""
    Image.preinit()  # else the usual formats are tried last whenever an image is opened
    formats = Image.registered_extensions().items()
    return frozenset(name for name, kind in formats if kind in Image.OPEN.keys() - _NO_PICTURES)


def _is_image(path: str, file: File) -> bool:
    suffix = ending(path)
    if suffix in _image_endings():
        return True
    kind = "data" if suffix in VIDEOS | _DATA else mimetypes.guess_type(f"x{suffix}")[0]
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


def list_files(place: Path | bytes, source: str) -> Files:
    """List the files in a folder or an archive; a Parquet file is the only one of its list.

    Args:
        place: A folder, a file, or the bytes of one.
        source: Its name in messages.

    Raises:
        InputError: If it is no folder, zip, tar, or Parquet file.
    """
    if isinstance(place, Path) and place.is_dir():
        return _list_folder(place, source)
    archive = place if isinstance(place, bytes) else str(place)
    file = File(member=partial(io.BytesIO, place)) if isinstance(place, bytes) else File(str(place))
    try:
        start = file.read(512)
        if start.startswith(b"PAR1"):
            return Files(source, {"rows.parquet": file})
        if start.startswith(b"PK"):
            return _of_members(*_zip_members(archive, source), source)
        if start[257:262] == b"ustar" and isinstance(archive, str):
            return _of_members(_tar_members(archive), [], source)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{source!r} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # zipfile and tarfile raise many kinds
        raise InputError(f"{source!r} cannot be read as an archive ({error}).") from None
    raise InputError(f"{source!r} cannot be read: it is no folder, zip, tar, or Parquet file.")


def unpack(files: Files, archives: Collection[str]) -> Files:
    """Replace archives among files by their members.

    Args:
        files: The files.
        archives: Paths of the archives.

    Returns:
        The files, each member below the path of its archive.

    Raises:
        InputError: If the files are in an archive themselves.
    """
    by_path: dict[str, File] = {}
    for path, file in files.by_path.items():
        if path not in archives:
            by_path[path] = file
        elif file.member:
            raise InputError(f"{files.source!r} is an archive with an archive in it, {path}: unpack one.")
        else:
            held = list_files(Path(file.disk), path).by_path
            by_path |= {f"{path}/{name}": member for name, member in held.items()}
    return Files(files.source, by_path, files.passed)


def _list_folder(root: Path, source: str) -> Files:
    """List a folder at any depth. Links are followed, except to a folder that is already above."""
    by_path: dict[str, File] = {}
    passed: dict[str, list[str]] = defaultdict(list)

    def enter(folder: str, prefix: str, above: frozenset[str]) -> None:
        real = os.path.realpath(folder)
        if real in above:
            passed["a link to a folder above it"].append(prefix.rstrip("/"))
            return
        for entry in os.scandir(folder):
            path = prefix + entry.name
            if _is_hidden(entry.name):
                passed[HIDDEN].append(path)
            elif entry.is_dir():
                enter(entry.path, f"{path}/", above | {real})
            elif entry.is_file():
                by_path[path] = File(entry.path)
            else:
                passed["a broken link or a device"].append(path)

    try:
        enter(str(root), "", frozenset())
    except OSError as error:
        raise InputError(f"{as_text(str(error.filename))!r} cannot be read: {error.strerror}.") from None
    return Files(source, dict(sorted(by_path.items())), {why: (*sorted(at),) for why, at in passed.items()})


Members = list[tuple[str, File]]


def _zip_members(archive: str | bytes, source: str) -> tuple[Members, list[str]]:
    """List a zip's files by the names that it unpacks to, and its links."""
    members: Members = []
    links: list[str] = []
    for entry in _zip(archive, _changed(archive), os.getpid()).infolist():
        name = entry.filename
        if not entry.flag_bits & 0x800:  # its names have no declared encoding: UTF-8 if they can be
            with suppress(UnicodeError):
                name = name.encode("cp437").decode("utf-8")
        if entry.flag_bits & 1:
            raise InputError(f"{source!r} cannot be read: {name!r} in it is encrypted.")
        if stat.S_ISLNK(entry.external_attr >> 16):
            links.append(name)
        elif not entry.is_dir():
            disk = "" if isinstance(archive, bytes) else archive
            members.append((name, File(disk, partial(_open_member, archive, entry.filename))))
    return members, links


def _changed(archive: str | bytes) -> int:
    return 0 if isinstance(archive, bytes) else os.stat(archive).st_mtime_ns


@lru_cache(maxsize=4)
def _zip(archive: str | bytes, changed: int, process: int) -> ZipFile:
    """Open a zip as it is now; each process opens it again, for a shared file has one position."""
    return ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive)


def _open_member(archive: str | bytes, name: str) -> IO[bytes]:
    return _zip(archive, _changed(archive), os.getpid()).open(name)


def _tar_members(archive: str) -> Members:
    """List the files of a tar that isn't compressed."""
    with tarfile.open(archive, "r:") as opened:
        return [
            (
                entry.name.removeprefix("./"),
                File(archive, partial(_open_range, archive, entry.offset_data, entry.size)),
            )
            for entry in opened
            if entry.isreg()
        ]


def _open_range(path: str, start: int, size: int) -> IO[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        return io.BytesIO(file.read(size))


def _of_members(members: Members, links: Sequence[str], source: str) -> Files:
    by_path: dict[str, File] = {}
    hidden: dict[str, None] = {}
    for name, file in members:
        path = name.replace("\\", "/")
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or re.match("[A-Za-z]:", path):
            raise InputError(f"{source!r} names a place outside of itself, {as_text(path)[:100]!r}.")
        if path in by_path:
            raise InputError(f"{source!r} holds {as_text(path)[:100]!r} twice.")
        depth = next((depth for depth, part in enumerate(parts, 1) if _is_hidden(part)), 0)
        if depth:
            hidden["/".join(parts[:depth])] = None
        else:
            by_path[path] = file
    passed = {HIDDEN: tuple(hidden), "a link in an archive": tuple(links)}
    return Files(
        source, dict(sorted(by_path.items())), {why: paths for why, paths in passed.items() if paths}
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
        InputError: If a split is requested that is not there, or two folders are one split.
    """
    entered = ""
    while tops := sorted({path.partition("/")[0] for path in files.images if "/" in path}):
        tables = [path for path in files.by_path if path.rpartition("/")[2] in TABLES]
        nested = bool(tables) or any(path.count("/") > 1 for path in files.images)
        if any("/" not in path for path in tables):
            break
        names = [SPLITS.get(top.casefold(), "") for top in tops]
        if not entered and all(names) and (nested or len(tops) > 1):
            entered = _wanted_split(names, split, files.source)
            tops = [top for top, name in zip(tops, names, strict=True) if name == entered]
            if len(tops) > 1:
                raise InputError(f"{files.source!r} has {' and '.join(tops)} for one split: merge them.")
        elif len(tops) > 1 or not nested:
            break
        inside = [path for path in files.by_path if path.startswith(f"{tops[0]}/")]
        reason = (
            f"not in the split {entered}" if entered and len(names) > 1 else "outside of the folders read"
        )
        files = files.only(inside, reason, below=f"{tops[0]}/")
    if split and not entered:
        raise InputError(f"{files.source!r} has no folders of splits, so not the split {split!r} either.")
    return files, entered


def splits_in(path: str) -> set[str]:
    """Return the splits that whole words of a path name."""
    words = re.split(r"[^a-z]+", os.path.splitext(path.casefold())[0])
    return {SPLITS[word] for word in words if word in SPLITS}


def choose_split(paths: Iterable[str], split: str, source: str) -> tuple[list[str], str]:
    """Choose the files of a split by a whole word of their name or folder.

    Args:
        paths: The files' paths, of tars or Parquet files.
        split: The split to read; "" for the first of test, validation, and train that is there.
        source: Their place in messages.

    Returns:
        The paths, and the split; all paths and "" if they aren't splits.

    Raises:
        InputError: If a split is requested that is not there.
    """
    by_split: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        split_words = splits_in(path)
        by_split[split_words.pop() if len(split_words) == 1 else ""].append(path)
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
