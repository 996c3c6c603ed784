"""Clips from video files: frames from the middle of equal intervals, decoded by PyAV."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from ccs.data import DatasetRecord, Lazy, RetrievalSet
from ccs.data.digests import Digests, identity
from ccs.data.files import VIDEOS, Files, ending, list_files
from ccs.data.tables import match, read_rows
from ccs.errors import InputError, require
from ccs.files import as_text, sha256


def frames(path: str | Path, count: int) -> tuple[Image.Image, ...]:
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
def _opened(path: str | Path) -> Iterator[tuple[Any, Any, float]]:
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


def _read(path: str) -> tuple[str, str, int]:
    """Return a video's digest, the reason why its first frame can't be decoded or "", and its bytes."""
    try:
        with _opened(path) as (container, stream, _):
            reason = "no frame can be decoded" if next(container.decode(stream), None) is None else ""
    except (OSError, ValueError) as error:  # PyAV's errors are of both types
        reason = " ".join(str(error).split())
    return "" if reason else sha256(Path(path)), reason, Path(path).stat().st_size


def retrieval_set(
    folders: Sequence[Path], record: DatasetRecord, max_clips: int | None = None, source: str = ""
) -> RetrievalSet:
    """Open video files with captions.

    Args:
        folders: The folders with videos at any depth; the first also has the annotations: a table with the
            columns `video` or `file` and `caption`, or a JSON list of such objects, with all their captions.
        record: The set's record, with the name of that file (by default the only one) and frames per clip.
        max_clips: The most clips.
        source: Where they come from; by default the first folder.

    Raises:
        InputError: If there are no captions, two videos fit one of them, or no clip can be used.
    """
    listed = [list_files(folder, as_text(str(folder))) for folder in folders]
    entries = annotations_in(_annotation_file(listed[0], record.annotations))
    if record.known and not record.approximate and len(entries) != record.rows:
        raise InputError(
            f"{listed[0].source!r} has {len(entries):,} clips, but {record.title} {record.rows:,}."
        )
    videos = [file.disk for files in listed for path, file in files.by_path.items() if ending(path) in VIDEOS]
    wanted = [file_of(entry) for entry in entries[:max_clips]]
    places = match(wanted, dict.fromkeys(videos), listed[0].source, key=_without_ending)
    paths: list[str] = []
    captions: list[tuple[str, ...]] = []
    skipped: list[str] = []
    total = hashlib.sha256(f"{record.frames} frames".encode())
    order = {path: place for place, path in enumerate(sorted(set(videos)))}
    known = Digests(identity(order))
    for entry, name, path in zip(entries, wanted, places, strict=False):
        given = entry.get("caption", entry.get("captions"))
        texts = tuple(given) if isinstance(given, list) else (given,) if given else ()
        digest, reason = "", "no such file" if path is None else "no caption"
        if path is not None and texts:
            digest, reason = known.of(order[path], partial(_read, path))
        if reason or path is None:
            skipped.append(f"{name or 'an entry without a file'}: {reason}")
            continue
        total.update(bytes.fromhex(digest))
        total.update("\x00".join(texts).encode())
        paths.append(path)
        captions.append(texts)
    known.keep()
    if not paths:
        example = f" (for example {skipped[0]})" if skipped else ""
        raise InputError(f"None of the {len(skipped)} clips in {listed[0].source!r} can be used{example}.")
    return RetrievalSet(
        name=record.name,
        clips=Lazy(partial(frames, count=record.frames), paths),
        captions=tuple(captions),
        fingerprint=total.hexdigest(),
        source=as_text(source or listed[0].source),
        skipped=tuple(skipped),
    )


def _without_ending(path: str) -> str:
    return os.path.splitext(path)[0] if ending(path) in VIDEOS else path


def file_of(entry: Mapping[str, Any]) -> str:
    """Return the file that an annotation is about: its path, or the end of it, with or without its suffix."""
    return str(
        entry.get("video") or entry.get("file") or entry.get("file_name") or entry.get("video_id") or ""
    )


def _annotation_file(files: Files, name: str) -> Path:
    listed = [
        file.disk for path, file in files.by_path.items() if ending(path) in (".json", ".jsonl", ".csv")
    ]
    found = [path for path in listed if name and os.path.basename(path) == name] or listed
    if not found:
        raise InputError(f"{files.source!r} has no JSON file or table with the captions of its clips.")
    if len(found) > 1:
        raise InputError(
            f"{files.source!r} has several tables ({', '.join(map(os.path.basename, found[:5]))}); "
            f"keep the one with the captions{f', {name}' if name else ''}."
        )
    return Path(found[0])


def annotations_in(file: Path) -> list[dict[str, Any]]:
    """Read the entries of a table of annotations, or of a JSON list. Raises InputError."""
    if file.suffix.lower() != ".json":
        return [dict(row) for row in read_rows(file.read_bytes(), file.name)]
    try:
        entries = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"{str(file)!r} is not valid JSON ({error}).") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{str(file)!r} is not a list of objects with a file and a caption each.")
    return entries
