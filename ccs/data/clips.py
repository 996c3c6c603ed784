"""Clips from video files: frames from the middle of equal intervals, decoded by PyAV."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from ccs.data import DatasetRecord, Lazy, RetrievalSet
from ccs.data.files import VIDEOS, Files, OnDisk, Opener, unpack
from ccs.data.rows import NO_FILE
from ccs.data.tables import match, read_rows
from ccs.errors import InputError, require
from ccs.files import as_text

_FILE = ("video", "file", "file_name", "video_id")
"""The columns of a clip's file: its path, or the end of it, with or without its suffix."""


def frames(video: Opener | str | Path, count: int) -> tuple[Image.Image, ...]:
    """Decode the frames that are shown at the middle of equal parts of a video's duration.

    Args:
        video: The path of the video, or what opens it.
        count: The number of frames.

    Returns:
        The frames; if the stream breaks off, the last good one is repeated.

    Raises:
        OSError, ValueError: If no frame can be decoded.
    """
    with _opened(video if callable(video) else OnDisk(str(video))) as (container, stream, length):
        stream.thread_type = "AUTO"
        times = [(part + 0.5) * length / count for part in range(count)]
        start = float(stream.start_time * stream.time_base) if stream.start_time is not None else 0.0
        taken: list[Image.Image] = []
        current_frame: Any = None
        try:
            for frame in container.decode(stream):
                now = frame.time - start if frame.time is not None else 0.0
                # `shown` stays on the screen until this frame.
                while current_frame is not None and len(taken) < count and times[len(taken)] < now:
                    taken.append(current_frame.to_image())
                if len(taken) == count:
                    break
                current_frame = frame
        except (OSError, ValueError):
            if current_frame is None:
                raise
        if current_frame is None:
            raise ValueError("no frame can be decoded")
        last = [current_frame.to_image()] if len(taken) < count else []
        return (*taken, *last * (count - len(taken)))


@contextmanager
def _opened(video: Opener) -> Iterator[tuple[Any, Any, float]]:
    """Open a video: its container, its stream, and its seconds. Raises OSError or ValueError."""
    require("data", "av")
    import av  # here, because only clips need it and its import is slow

    container: Any
    with video() as file, av.open(file) as container:
        if not container.streams.video:
            raise ValueError("no video stream")
        stream = container.streams.video[0]
        seconds = float((stream.duration or 0) * (stream.time_base or 0))
        if not (seconds := seconds or float((container.duration or 0) / av.time_base)):
            raise ValueError("its duration is not known")
        yield container, stream, seconds


def _digest(video: Opener) -> bytes:
    """Return a video's SHA-256. Raises OSError or ValueError if its first frame can't be decoded."""
    with _opened(video) as (container, stream, _):
        if next(container.decode(stream), None) is None:
            raise ValueError("no frame can be decoded")
    with video() as file:
        return hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]


def retrieval_set(files: Files, record: DatasetRecord, max_clips: int | None = None) -> RetrievalSet:
    """Open video files with captions.

    Args:
        files: Videos at any depth, or archives of them, and the annotations: a table with the columns `video`
            or `file` and `caption`, or a JSON list of such objects, with all their captions.
        record: The set's record, with the name of that file (by default the only one) and frames per clip.
        max_clips: The most clips.

    Raises:
        InputError: If there are no captions, two videos fit one of them, or no clip can be used.
    """
    tables = files.ending_in(".json", ".jsonl", ".csv")
    tables = [path for path in tables if path.rpartition("/")[2] == record.annotations] or tables
    if len(tables) != 1:
        listed = f"the tables {', '.join(tables[:5])}: keep the one" if tables else "no JSON file or table"
        raise InputError(f"{files.source!r} has {listed} with the captions of its clips.")
    entries = read_rows(files.read(tables[0]), tables[0])
    record.require_recorded(files.source, len(entries), record.rows, "clips")
    if not files.ending_in(*VIDEOS):
        files = unpack(files, files.ending_in(".zip", ".tar"))
    wanted = [str(next(filter(None, map(entry.get, _FILE)), "")) for entry in entries[:max_clips]]
    paths = match(wanted, files.ending_in(*VIDEOS), files.source, VIDEOS)
    clips: dict[str, tuple[str, ...]] = {}
    skipped: list[str] = []
    total = hashlib.sha256(f"{record.frames} frames".encode())
    for entry, name, path in zip(entries, wanted, paths, strict=False):
        cell = entry.get("caption", entry.get("captions"))
        captions = tuple(cell) if isinstance(cell, list) else (cell,) if cell else ()
        try:
            if path is None or not captions:
                raise ValueError("no caption" if path else NO_FILE)
            total.update(_digest(files.openers[path]) + "\x00".join(captions).encode())
            clips[path] = captions
        except (OSError, ValueError) as error:  # PyAV's errors are of both types
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            skipped.append(f"{name or 'an entry without a file'}: {reason}")
    if not clips:
        refusal = f"None of the {len(skipped)} clips in {files.source!r} can be used."
        raise InputError(" ".join((refusal, *skipped[:1])))
    return RetrievalSet(
        name=record.name,
        clips=Lazy(partial(frames, count=record.frames), [files.openers[path] for path in clips]),
        captions=tuple(clips.values()),
        fingerprint=total.hexdigest(),
        source=as_text(files.source),
        skipped=tuple(skipped),
    )
