"""Clips from video files: frames from the middle of equal intervals, decoded by PyAV."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from ccs.data import Lazy, RetrievalSet
from ccs.data.digests import Digests, identity
from ccs.errors import InputError, require
from ccs.files import as_text, sha256

SUFFIXES = frozenset({".mp4", ".webm", ".avi", ".mkv", ".mov", ".m4v", ".mpg", ".wmv", ".3gp", ".m2ts"})


def frames(path: Path, count: int) -> tuple[Image.Image, ...]:
    """`count` frames, those shown at the middle of `count` equal parts of the video's duration; if the stream
    breaks off, its last good one. OSError or ValueError if no frame can be decoded.
    """
    with _opened(path) as (container, stream, length):
        stream.thread_type = "AUTO"
        times = [(part + 0.5) * length / count for part in range(count)]
        start = float(stream.start_time * stream.time_base) if stream.start_time is not None else 0.0
        taken: list[Image.Image] = []
        shown: Any = None
        try:
            for frame in container.decode(stream):
                now = frame.time - start if frame.time is not None else 0.0
                # `shown` stays on the screen until this frame.
                while shown is not None and len(taken) < count and times[len(taken)] < now:
                    taken.append(shown.to_image())
                if len(taken) == count:
                    break
                shown = frame
        except (OSError, ValueError):
            if shown is None:
                raise
        if shown is None:
            raise ValueError("no frame can be decoded")
        if len(taken) < count:
            taken += [shown.to_image()] * (count - len(taken))
    return tuple(taken)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any, float]]:
    """The file as a container, its video stream, and its seconds. Raises OSError or ValueError."""
    require("data", "av")
    import av  # here, because only clips need it and its import is slow

    with av.open(str(path)) as container:
        if not container.streams.video:
            raise ValueError("no video stream")
        stream = container.streams.video[0]
        if stream.duration is not None and stream.time_base is not None:
            yield container, stream, float(stream.duration * stream.time_base)
        elif container.duration is not None:
            yield container, stream, float(container.duration / av.time_base)
        else:
            raise ValueError("its duration is not known")


def _read(path: Path) -> tuple[str, str, int]:
    """A video's digest, the reason why it cannot be used, from its first frame, and its bytes."""
    try:
        with _opened(path) as (container, stream, _):
            why = "no frame can be decoded" if next(container.decode(stream), None) is None else ""
    except (OSError, ValueError) as error:  # PyAV's errors are of both types
        why = " ".join(str(error).split())
    return "" if why else sha256(path), why, path.stat().st_size


def retrieval_set(
    folders: Sequence[Path],
    *,
    name: str,
    count: int,
    annotations: str | None = None,
    max_clips: int | None = None,
    source: str = "",
) -> RetrievalSet:
    """Video files with captions, anywhere below the folders; the first folder has the annotations.

    `annotations`: the name of a JSON list of objects with `video` or `file` (a path, or its end) and
    `caption` (a text or several); by default the only JSON file. `skipped`: clips that cannot be had, decoded
    or described.
    """
    entries = annotations_in(_annotation_file(folders[0], annotations))
    by_name: dict[str, Path] = {}
    found = (path for folder in folders for path in sorted(folder.rglob("*")))
    for path in (path for path in found if path.suffix.lower() in SUFFIXES):
        by_name.setdefault(path.name, path)
        by_name.setdefault(path.stem, path)
    paths: list[Path] = []
    captions: list[tuple[str, ...]] = []
    skipped: list[str] = []
    total = hashlib.sha256(f"{count} frames".encode())
    files = sorted(set(by_name.values()))
    known = Digests(identity(files))
    for entry in entries[:max_clips]:
        wanted = file_of(entry)
        given = entry.get("caption", entry.get("captions"))
        texts = tuple(given) if isinstance(given, list) else (given,) if given else ()
        file = by_name.get(Path(wanted).name) or by_name.get(Path(wanted).stem)
        digest, why = ("", "no such file") if file is None else ("", "no caption")
        if file is not None and texts:
            digest, why = known.of(files.index(file), partial(_read, file))
        if why or file is None:
            skipped.append(f"{wanted or 'an entry without a file'}: {why}")
            continue
        total.update(bytes.fromhex(digest))
        total.update("\x00".join(texts).encode())
        paths.append(file)
        captions.append(texts)
    known.keep()
    if not paths:
        example = f" (for example {skipped[0]})" if skipped else ""
        raise InputError(f"None of the {len(skipped)} clips in {str(folders[0])!r} can be used{example}.")
    return RetrievalSet(
        name=name,
        clips=Lazy(partial(frames, count=count), paths),
        captions=tuple(captions),
        fingerprint=total.hexdigest(),
        source=as_text(source or str(folders[0])),
        skipped=tuple(skipped),
    )


def file_of(entry: Mapping[str, Any]) -> str:
    """The file that an annotation is about: its path, or the end of it, with or without its suffix."""
    return str(entry.get("video") or entry.get("file") or entry.get("video_id") or "")


def _annotation_file(root: Path, name: str | None) -> Path:
    listed = sorted(root.rglob("*.json"))
    found = [path for path in listed if path.name == name] or listed
    if not found:
        raise InputError(f"{str(root)!r} has no JSON file with the captions of its clips.")
    if len(found) > 1:
        raise InputError(
            f"{str(root)!r} has several JSON files ({', '.join(path.name for path in found[:5])}); "
            f"keep the one with the captions{f', {name}' if name else ''}."
        )
    return found[0]


def annotations_in(file: Path) -> list[dict[str, Any]]:
    """The entries of a JSON file of annotations. Raises InputError."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{str(file)!r} is not valid JSON ({error}).") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{str(file)!r} is not a list of objects with a file and a caption each.")
    return entries
