"""Visitors of whom one is hostile: what the others wait, and what memory the server keeps.

    python -m benchmarks.hostile [--minutes 6]

Starts `app.py` on 127.0.0.1 and nothing else. Quiet and hostile parts take turns, a minute and three, so that
other work on the machine touches both. Quiet: all but one visitor click, one after another, with a pause.
Hostile: one more joins, from an address of its own (127.0.0.2), and does as much as it can: many pages at
once, each opened by another link, with large uploads, the largest gallery, the most texts, and answers it
never reads. The server's memory is read meanwhile; growth is the highest reading of the second half of the
hostile parts less the highest of the first. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import functools
import io
import itertools
import json
import os
import random
import struct
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Sequence
from statistics import median
from typing import Any
from urllib.parse import urlencode

import httpx
from PIL import Image

from benchmarks.common import keep, memory, served
from tests.support.visitor import Visitor

PORT, VISITORS = 7988, 12  # the hostile one included
ADDRESS = f"http://127.0.0.1:{PORT}"
ALLOWED = {"ratio": 2.0, "growth MB": 200.0, "faults": 0}
PAUSE = 1.0  # seconds that a quiet visitor looks at the screen
AT_ONCE = 8  # pages that the hostile visitor has open
READINGS = 4
FAULTS: list[str] = []  # routes that answered with a fault of the server
WORDS = [f"occupation number {i} with many words " + "x" * 120 for i in range(200)]


def quiet(stop: threading.Event, opened: int, act: tuple[int, int], took: list[float], number: int) -> None:
    visitor = Visitor(ADDRESS, f"127.0.1.{number + 1}")
    visitor.join(opened, -1)
    visitor.wait()
    heads = itertools.cycle(f"L{layer}.H{head}" for layer in (7, 6, 5, 4) for head in range(6))
    while not stop.wait(PAUSE * random.uniform(0.5, 1.5)):
        start = time.perf_counter()
        if visitor.join(*act, {"do": "inspect", "head": next(heads)}).status_code == 200:
            visitor.wait()
            took.append(time.perf_counter() - start)


def hostile(stop: threading.Event, opened: int, act: tuple[int, int]) -> None:
    """As many pages as it can, each with the heaviest actions; few answers are read."""
    chance = random.Random(threading.get_ident())
    while not stop.is_set():
        visitor = Visitor(ADDRESS, "127.0.0.2")
        off = ",".join({f"L{chance.randrange(8)}.H{chance.randrange(6)}" for _ in range(9)})
        link = {"off": off, "tab": chance.choice(("heads", "classify", "bias", "paradox", "about"))}
        actions = [
            {"do": "tab", "value": "bias"},
            {"do": "bias", "gallery": "world/counterfactuals", "occupations": "\n".join(WORDS), "k": "0"},
            {"do": "off", "off": off},
            {"do": "tab", "value": "classify"},
            {"do": "classify", "classes": "\n".join(WORDS), "template": ""},
            {"do": "name-model", "name": "x" * 200},
        ]
        try:
            visitor.join(opened, -1, link=urlencode(link))
            if path := visitor.upload(photograph(chance)):
                visitor.join(*act, {"do": "upload", "files": [{"path": path, "name": "x" * 300}] * 2})
            tricks(visitor, chance, act)
            for action in actions:
                visitor.join(*act, action)
            if chance.random() < 0.2:
                visitor.wait()
            stop.wait(0.5)
        except httpx.HTTPError:
            stop.wait(0.2)


def tricks(visitor: Visitor, chance: random.Random, act: tuple[int, int]) -> None:
    """What once cost more than it weighs: scans without end, alone and in a gallery, and odd texts."""
    scans = many_scans(chance)
    gallery = io.BytesIO()
    with zipfile.ZipFile(gallery, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a/1.jpg", "b/2.jpg"):
            archive.writestr(name, scans)
    if path := visitor.upload(scans):
        visitor.join(*act, {"do": "upload", "files": [{"path": path, "name": "x"}]})
    if path := visitor.upload(gallery.getvalue()):
        visitor.join(*act, {"do": "gallery", "path": path})
    digits = f"L{'9' * 5000}.H0"
    visitor.join(*act, {"do": "toggle", "head": digits})
    for route, body in (
        ("queue/join", b'{"fn_index": 1, "session_hash": "\\ud800", "data": [null]}'),
        ("queue/join", b'{"fn_index": 99999, "session_hash": "x", "data": [null]}'),
        ("cancel", b"[]"),
        ("call/act", json.dumps({"data": [digits, "organism"]}).encode()),
    ):
        answer = visitor.client.post(f"/gradio_api/{route}", content=body)
        FAULTS.extend([route] * (answer.status_code >= 500))


def many_scans(chance: random.Random) -> bytes:
    """A progressive JPEG of which the last scan comes 2,000 times, and which no other equals."""
    whole = _jpeg()
    last = whole.rindex(b"\xff\xda")
    comment = b"\xff\xfe\x00\x12" + chance.randbytes(16)
    return whole[:2] + comment + whole[2:last] + whole[last:-2] * 2000 + b"\xff\xd9"


def photograph(chance: random.Random) -> bytes:
    """A PNG of twelve megapixels that no other equals."""
    whole, text = _png(), b"tEXt" + b"Comment\x00" + chance.randbytes(8).hex().encode()
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return whole[:33] + chunk + whole[33:]  # 33 bytes: the signature and the header


# Encoded once: a hostile visitor's own work is not done on the server's processors.
@functools.cache
def _jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (5000, 4000), 90).save(buffer, "JPEG", progressive=True)
    return buffer.getvalue()


@functools.cache
def _png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4000, 3000), (200, 90, 40)).save(buffer, "PNG")
    return buffer.getvalue()


def part(
    seconds: float, is_hostile: bool, opened: int, act: tuple[int, int], process: int
) -> tuple[list[float], list[float]]:
    """The seconds of the quiet visitors' clicks, and the server's memory, read so many times."""
    stop, took = threading.Event(), []  # type: tuple[threading.Event, list[float]]
    threads = [
        threading.Thread(target=quiet, args=(stop, opened, act, took, number))
        for number in range(VISITORS - 1)
    ]
    if is_hostile:
        threads += [threading.Thread(target=hostile, args=(stop, opened, act)) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    readings = []
    for _ in range(READINGS):
        time.sleep(seconds / READINGS)
        readings.append(round(memory("VmRSS", process), 1))
    stop.set()
    for thread in threads:
        thread.join(150)
    kind = "hostile" if is_hostile else "quiet"
    print(f"{kind}: {len(took)} clicks, median {median(took):.2f} s, {readings[-1]:.0f} MB", flush=True)
    return took, readings


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the figures; 1 where one is above what is allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0, help="of the hostile parts together")
    args = parser.parse_args(argv)
    rounds = max(2, round(args.minutes / 3))
    calm, busy, memories = [], [], []  # type: tuple[list[float], list[float], list[float]]
    with tempfile.TemporaryDirectory() as cache, served(PORT, GRADIO_TEMP_DIR=cache) as process:
        first = Visitor(ADDRESS)
        opened, act = first.events()
        first.join(opened, -1)
        first.wait()
        at_start = memory("VmRSS", process.pid)
        for _ in range(rounds):
            calm += part(args.minutes * 20 / rounds, False, opened, act, process.pid)[0]
            took, readings = part(args.minutes * 60 / rounds, True, opened, act, process.pid)
            busy, memories = busy + took, memories + readings
    found: dict[str, Any] = {"MB at start": at_start, "MB hostile": memories}
    found |= {"clicks quiet": len(calm), "median quiet": median(calm), "clicks hostile": len(busy)}
    found |= {"median hostile": median(busy), "ratio": median(busy) / median(calm)}
    found["growth MB"] = max(memories[len(memories) // 2 :]) - max(memories[: len(memories) // 2])
    found |= {"hostile minutes": args.minutes, "visitors": VISITORS}
    found["cores"], found["faults"] = os.cpu_count(), len(FAULTS)
    keep("hostile", found)
    for name, value in found.items():
        print(f"{name:28} {value if isinstance(value, list) else format(value, '10.2f')}")
    return int(any(found[name] > limit for name, limit in ALLOWED.items()))


if __name__ == "__main__":
    sys.exit(main())
