"""Visitors of whom one is hostile: what the others wait, and what memory the server keeps.

    python -m benchmarks.hostile [--minutes 6]
    python -m benchmarks.hostile --class 10

Starts `app.py` on 127.0.0.1 and nothing else. Quiet and hostile parts take turns, a minute and three, so that
other work on the machine touches both. Quiet: all but one visitor click, one after another, with a pause.
Hostile: one more joins, from an address of its own (127.0.0.2), and does as much as it can: many pages at
once, each opened by another link, with large uploads, the largest gallery, the most texts, and answers it
never reads, with analyses of a model, with API calls, and with what the page never asks for. The server's
memory is read meanwhile; growth is the highest reading after five hostile minutes (the half, of less than
ten) minus the highest before. With --class nobody is hostile: forty visitors of one address click for so many
minutes, every other time twice before the first answer is there. Linux only: memory is read from /proc.
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
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any
from urllib.parse import urlencode

import httpx
from PIL import Image

from benchmarks.common import keep, memory, served
from tests.support.visitor import Visitor

PORT, VISITORS = int(os.environ.get("PORT", "7988")), 12  # the hostile one included
CLASS = 40
ADDRESS = f"http://127.0.0.1:{PORT}"
ALLOWED = {"ratio": 1.5, "growth MB": 100.0, "faults": 0, "refused": 0}
PAUSE = 1.0  # seconds that a quiet visitor looks at the screen
NO_ANSWER = 0  # in place of a status
GIVES_UP = 20.0  # seconds that the hostile visitor waits for an answer, so that its parts end in time
AT_ONCE = 8  # pages that the hostile visitor has open
READINGS = 4
FAULTS: list[str] = []  # routes that answered with a fault of the server
REFUSED: list[int] = []  # what the others were answered instead of a screen
WORDS = [f"occupation number {i} with many words " + "x" * 120 for i in range(200)]


def quiet(stop: threading.Event, took: list[float], number: int) -> None:
    """Click as a quiet visitor, one head after another, until stopped.

    Args:
        stop: Ends the visit.
        took: Receives the seconds of each click.
        number: The visitor's number, which sets its address.
    """
    visitor = Visitor(ADDRESS, f"127.0.1.{number + 1}").visit("tab=heads").wait()
    heads = itertools.cycle(f"L{layer}.H{head}" for layer in (7, 6, 5, 4) for head in range(6))
    while not stop.wait(PAUSE * random.uniform(0.5, 1.5)):
        start = time.perf_counter()
        try:
            if (status := visitor.send("heads/inspect", head=next(heads)).status_code) == 200:
                visitor.read_regions(visitor.last_response).wait()
        except httpx.HTTPError:
            status = NO_ANSWER
        if status == 200:
            took.append(time.perf_counter() - start)
        else:
            REFUSED.append(status)


def pupil(stop: threading.Event, took: list[float]) -> None:
    """Click as one of many visitors at one address, until stopped.

    Args:
        stop: Ends the visit.
        took: Receives the seconds of each answer.
    """
    visitor = Visitor(ADDRESS, "127.0.3.1").visit("tab=heads").wait()
    while not stop.wait(random.uniform(5, 15)):
        start = time.perf_counter()
        for _ in range(random.choice((1, 2))):
            answer = visitor.send("heads/inspect", head=f"L{random.randrange(4, 8)}.H{random.randrange(6)}")
            REFUSED.append(answer.status_code)
        visitor.read_regions(answer).wait()
        took.append(time.perf_counter() - start)


def one_class(minutes: float) -> int:
    """Forty honest visitors of one address; 1 where one was refused."""
    took: list[float] = []
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as cache, served(PORT, GRADIO_TEMP_DIR=cache) as process:
        threads = [threading.Thread(target=pupil, args=(stop, took)) for _ in range(CLASS)]
        for thread in threads:
            thread.start()
        time.sleep(minutes * 60)
        stop.set()
        for thread in threads:
            thread.join(150)
        held = memory("VmRSS", process.pid)
    numbers = {"visitors": CLASS, "minutes": minutes, "statuses": Counter(map(str, REFUSED))}
    numbers |= {"clicks": len(took), "median": median(took), "slowest": max(took), "MB": held}
    numbers |= {"load": os.getloadavg(), "cores": os.cpu_count()}
    keep("one_address", numbers)
    print(*(f"{name} {value}" for name, value in numbers.items()), sep="\n")
    return int(set(REFUSED) != {200})


def hostile(stop: threading.Event) -> None:
    """As many pages as it can, each with the heaviest forms; few answers are read."""
    chance = random.Random(threading.get_ident())
    while not stop.is_set():
        visitor = Visitor(ADDRESS, "127.0.0.2")
        visitor.client.timeout = httpx.Timeout(GIVES_UP)
        ablate = ",".join({f"L{chance.randrange(8)}.H{chance.randrange(6)}" for _ in range(9)})
        tab = chance.choice(("heads", "classify", "bias", "paradox", "about"))
        occupations = "\n".join(WORDS)
        forms = [
            ("tab", {"tab": "bias"}),
            ("bias", {"gallery": "world/counterfactuals", "occupations": occupations, "k": "0"}),
            ("heads/ablate", {"ablate": ablate}),
            ("tab", {"tab": "classify"}),
            ("classify", {"classes": occupations}),
            ("model", {"model": "x" * 200}),
            *(
                ("analyze", {"images": "synthetic scenes", "count": str(n), "texts": "world"})
                for n in (20, 99)
            ),
        ]
        try:
            visitor.visit(urlencode({"ablate": ablate, "tab": tab}))
            _send(visitor, "images/add", [("files", ("x" * 300, photograph(chance)))])
            tricks(visitor, chance)
            for path, fields in forms:
                _send(visitor, path, **fields)
            if chance.random() < 0.2:
                visitor.wait()
            stop.wait(0.5)
        except (httpx.HTTPError, AssertionError):  # refused
            stop.wait(0.2)


def _send(visitor: Visitor, path: str, files: Any = None, **fields: str) -> None:
    if visitor.send(path, files, **fields).status_code == 500:
        FAULTS.append(path)


def tricks(visitor: Visitor, chance: random.Random) -> None:
    """Send requests that once cost far more than their size: endless scans, in a gallery too, and odd texts.

    Args:
        visitor: The visitor who sends them.
        chance: The source of random numbers.
    """
    scans = many_scans(chance)
    gallery = io.BytesIO()
    with zipfile.ZipFile(gallery, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a/1.jpg", "b/2.jpg"):
            archive.writestr(name, scans)
    _send(visitor, "images/add", [("files", ("x", scans))])
    _send(visitor, "bias/gallery", [("files", ("x.zip", gallery.getvalue()))])
    digits = f"L{'9' * 5000}.H0"
    _send(visitor, "heads/toggle", head=digits)
    many = json.dumps({"data": [WORDS[:20], "world/counterfactuals", "gender", "", "organism"]}).encode()
    for route, body in (
        ("queue/join", b'{"fn_index": 1, "session_hash": "\\ud800", "data": [null]}'),
        ("queue/join", b'{"fn_index": 99999, "session_hash": "x", "data": [null]}'),
        ("cancel", b"[]"),
        ("component_server", b'{"component_id": 1, "data": [], "fn_name": "x", "session_hash": "x"}'),
        ("call/find_heads", json.dumps({"data": [digits, "organism"]}).encode()),
        *(("call/measure_bias", many) for _ in range(5)),
    ):
        headers = {"content-type": "application/json"}
        answer = visitor.client.post(f"/gradio_api/{route}", content=body, headers=headers)
        FAULTS.extend([route] * (answer.status_code == 500))


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


def part(seconds: float, is_hostile: bool, process: int) -> tuple[list[float], list[float]]:
    """Run the visitors for a time, and read the server's memory meanwhile.

    Args:
        seconds: Duration of the clicks.
        is_hostile: Add the hostile visitor.
        process: The server's process id.

    Returns:
        The seconds of each click of quiet visitors, and the readings of memory in MiB.
    """
    stop, took = threading.Event(), []  # type: tuple[threading.Event, list[float]]
    threads = [threading.Thread(target=quiet, args=(stop, took, number)) for number in range(VISITORS - 1)]
    if is_hostile:
        threads += [threading.Thread(target=hostile, args=(stop,)) for _ in range(AT_ONCE)]
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
    """Measure, print, and store the results; return 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0, help="of the hostile parts together")
    parser.add_argument("--class", type=float, dest="honest", help="minutes of forty honest visitors instead")
    args = parser.parse_args(argv)
    if args.honest:
        return one_class(args.honest)
    rounds = max(2, round(args.minutes / 3))
    calm, busy, memories = [], [], []  # type: tuple[list[float], list[float], list[float]]
    with tempfile.TemporaryDirectory() as cache, served(PORT, GRADIO_TEMP_DIR=cache) as process:
        Visitor(ADDRESS).visit().wait()
        at_start = memory("VmRSS", process.pid)
        for _ in range(rounds):
            calm += part(args.minutes * 20 / rounds, False, process.pid)[0]
            took, readings = part(args.minutes * 60 / rounds, True, process.pid)
            busy, memories = busy + took, memories + readings
    numbers: dict[str, Any] = {"MB at start": at_start, "MB hostile": memories}
    numbers |= {"clicks quiet": len(calm), "median quiet": median(calm), "clicks hostile": len(busy)}
    numbers |= {"median hostile": median(busy), "ratio": median(busy) / median(calm)}
    first_ones = round(len(memories) * min(0.5, 5 / args.minutes))
    numbers["growth MB"] = max(memories[first_ones:]) - max(memories[:first_ones])
    numbers |= {"hostile minutes": args.minutes, "visitors": VISITORS}
    numbers["cores"], numbers["faults"] = os.cpu_count(), len(FAULTS)
    numbers["refused"], numbers["load"] = len(REFUSED), os.getloadavg()
    keep("hostile", numbers)
    for name, value in numbers.items():
        print(f"{name:28} {value if isinstance(value, list | tuple) else format(value, '10.2f')}")
    return int(any(numbers[name] > limit for name, limit in ALLOWED.items()))


if __name__ == "__main__":
    sys.exit(main())
