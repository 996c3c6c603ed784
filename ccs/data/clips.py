"""Clips from videos: frames from the middle of equal intervals, decoded by PyAV."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from ccs.data import DatasetRecord, Lazy, RetrievalSet
from ccs.data.rows import Rows, is_several
from ccs.errors import InputError, require


def frames(video: bytes | str | Path, count: int) -> tuple[Image.Image, ...]:
    """Decode the frames that a video shows at the middle of equal parts of its duration.

    Args:
        video: The video, or its path.
        count: The number of frames.

    Returns:
        The frames. If the stream breaks off, the last good frame is repeated.

    Raises:
        OSError, ValueError: If no frame can be decoded.
    """
    with _opened(video) as (container, stream, length):
        stream.thread_type = "AUTO"
        times = [(part + 0.5) * length / count for part in range(count)]
        start = float(stream.start_time * stream.time_base) if stream.start_time is not None else 0.0
        taken: list[Image.Image] = []
        current_frame: Any = None
        with suppress(OSError, ValueError):  # the stream breaks off
            for frame in container.decode(stream):
                now = frame.time - start if frame.time is not None else 0.0
                # The current frame stays on the screen until this one.
                while current_frame is not None and len(taken) < count and times[len(taken)] < now:
                    taken.append(_upright(current_frame))
                if len(taken) == count:
                    break
                current_frame = frame
        if current_frame is None:
            raise ValueError("no frame can be decoded")
        return (*taken, *[_upright(current_frame)] * (count - len(taken)))


def _upright(frame: Any) -> Image.Image:
    """Return a frame as an image, rotated as the file says. Phones store upright clips on their side."""
    image: Image.Image = frame.to_image()
    return image.rotate(frame.rotation, expand=True)  # counterclockwise, in degrees


@contextmanager
def _opened(video: bytes | str | Path) -> Iterator[tuple[Any, Any, float]]:
    """Open a video, and yield its container, stream, and length in seconds. Raises OSError or ValueError."""
    require("data", "av")
    import av  # here, because only clips need it, and the import is slow

    container: Any
    with av.open(BytesIO(video) if isinstance(video, bytes) else video) as container:
        if not container.streams.video:
            raise ValueError("no video stream")
        stream = container.streams.video[0]
        seconds = float((stream.duration or 0) * (stream.time_base or 0))
        if not (seconds := seconds or float((container.duration or 0) / av.time_base)):
            raise ValueError("its duration is not known")
        yield container, stream, seconds


def make_clips(record: DatasetRecord, rows: Rows, max_clips: int | None = None) -> RetrievalSet:
    """Make clips from rows of videos.

    Args:
        record: The set's record, with frames per clip.
        rows: Videos, with the columns `file` and `caption`: a text, or a list of all captions.
        max_clips: Maximum number of clips; the first are taken.

    Raises:
        InputError: If no clip can be used.
    """
    captions: dict[int, tuple[str, ...]] = {}
    skipped: list[str] = []
    total = hashlib.sha256(f"{record.frames} frames".encode())
    cells = rows.columns.get("caption") or rows.columns.get("captions") or [""] * rows.count
    for row, cell in enumerate(cells[:max_clips]):
        try:
            data = rows.read(row)
            texts = [text for text in (cell if isinstance(cell, list) else [cell]) if isinstance(text, str)]
            if not any(map(str.strip, texts)) or any(map(is_several, texts)):
                raise ValueError("the column caption holds no text, or a list that is written as text")
            with _opened(data) as (container, stream, _):
                if next(container.decode(stream), None) is None:
                    raise ValueError("no frame can be decoded")
            captions[row] = tuple(filter(str.strip, texts))
            total.update(hashlib.sha256(data).digest() + "\x00".join(captions[row]).encode())
        except (OSError, ValueError, LookupError) as error:  # PyAV's errors are of these types
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            skipped.append(f"{rows.columns['file'][row] or 'an entry without a file'}: {reason}")
    if not captions:
        refusal = f"None of the {len(skipped)} clips in {rows.source!r} can be used."
        raise InputError(" ".join((refusal, *skipped[:1])))
    return RetrievalSet(
        name=record.name,
        clips=Lazy(partial(frames, count=record.frames), Lazy(rows.read, tuple(captions))),
        captions=tuple(captions.values()),
        fingerprint=total.hexdigest(),
        source=rows.source,
        skipped=tuple(skipped),
        notes=rows.notes,
    )
