"""Visitors of whom one is hostile: what the others wait, and what memory the server keeps.

    python -m benchmarks.hostile [--seconds 120] [--visitors 12]

Starts `app.py` on 127.0.0.1 and asks nothing else. Quiet: all but one visitor click, one after another, with
a pause. Hostile: one more joins, from an address of its own (127.0.0.2), and does as much as it can: many
pages at once, largest galleries, most texts, answers that it never reads. The quiet part runs `seconds`, the
hostile one twice as long, so that memory can be seen to stay. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results" / "hostile.json"
ROOT = Path(__file__).parent.parent
PORT = 7988
ALLOWED = {"ratio": 2.0, "growth MB": 200.0}
PAUSE = 1.0  # seconds that a quiet visitor looks at the screen
AT_ONCE = 8  # pages that the hostile visitor has open
WORDS = [f"occupation number {i} with many words " + "x" * 120 for i in range(200)]


class Visitor:
    """One page's talk with the server, in Gradio's protocol."""

    def __init__(self, source: str = "127.0.0.1") -> None:
        self.source, self.page = source, uuid.uuid4().hex[:12]

    def ask(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(
            "127.0.0.1", PORT, timeout=120, source_address=(self.source, 0)
        )
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        return connection.getresponse()

    def config(self) -> dict[str, Any]:
        with self.ask("GET", "/config") as response:
            found: dict[str, Any] = json.load(response)
            return found

    def join(self, event: int, trigger: int, data: Any = None) -> bool:
        body = {"fn_index": event, "trigger_id": trigger, "session_hash": self.page, "data": [None]}
        with self.ask("POST", "/gradio_api/queue/join", {**body, "event_data": data}) as response:
            response.read()
            return response.status == 200

    def wait(self) -> None:
        """Read until the server says that all is answered."""
        with self.ask("GET", f"/gradio_api/queue/data?session_hash={self.page}") as response:
            for line in response:
                if b"close_stream" in line:
                    return


def events(config: dict[str, Any]) -> tuple[int, tuple[int, int]]:
    """The indices of the listeners for a page that opens, and for an action (with its element)."""
    found = {}
    for one in config["dependencies"]:
        for target, name in one["targets"]:
            found.setdefault(name, (one["id"], target))
    return found["load"][0], found["act"]


def memory(process: int) -> float:
    """Resident megabytes of the server."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the server has no memory")


def quiet(stop: threading.Event, opened: int, act: tuple[int, int], took: list[float], number: int) -> None:
    visitor = Visitor(f"127.0.1.{number + 1}")
    visitor.join(opened, -1)
    visitor.wait()
    heads = itertools.cycle(f"L{layer}.H{head}" for layer in (7, 6, 5, 4) for head in range(6))
    while not stop.wait(PAUSE * random.uniform(0.5, 1.5)):
        start = time.perf_counter()
        if visitor.join(*act, {"do": "inspect", "head": next(heads)}):
            visitor.wait()
            took.append(time.perf_counter() - start)


def hostile(stop: threading.Event, opened: int, act: tuple[int, int]) -> None:
    """As many pages as it can, each with the heaviest actions; few answers are read."""
    chance = random.Random(0)
    while not stop.is_set():
        visitor = Visitor("127.0.0.2")
        actions = [
            {"do": "tab", "value": "bias"},
            {"do": "bias", "gallery": "world/counterfactuals", "occupations": "\n".join(WORDS), "k": "0"},
            {"do": "random", "n": str(chance.randint(1, 20)), "seed": str(chance.randint(0, 10**6))},
            {"do": "tab", "value": "classify"},
            {"do": "classify", "classes": "\n".join(WORDS), "template": ""},
            {"do": "filter", "find": "x" * 200},
        ]
        try:
            visitor.join(opened, -1)
            for action in actions:
                visitor.join(*act, action)
            if chance.random() < 0.2:
                visitor.wait()
            stop.wait(0.5)
        except OSError:
            stop.wait(0.2)


def half(seconds: float, visitors: int, is_hostile: bool, opened: int, act: tuple[int, int]) -> list[float]:
    stop, took = threading.Event(), []  # type: tuple[threading.Event, list[float]]
    threads = [
        threading.Thread(target=quiet, args=(stop, opened, act, took, number))
        for number in range(visitors - 1)
    ]
    if is_hostile:
        threads += [threading.Thread(target=hostile, args=(stop, opened, act)) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join(150)
    return took


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the figures; 1 where one is above what is allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each part")
    parser.add_argument("--visitors", type=int, default=12, help="the hostile one included")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "app.py", "--port", str(PORT), "--host", "127.0.0.1"]
        environment = {**os.environ, "GRADIO_TEMP_DIR": cache}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                while True:
                    try:
                        opened, act = events(Visitor().config())
                        break
                    except OSError:
                        time.sleep(0.2)
                first = Visitor()
                first.join(opened, -1)
                first.wait()
                found: dict[str, Any] = {"MB at start": memory(process.pid)}
                calm = half(args.seconds, args.visitors, False, opened, act)
                found["MB after quiet"] = memory(process.pid)
                for part in ("first", "second"):
                    busy = half(args.seconds, args.visitors, True, opened, act)
                    found[f"MB after hostile, {part}"] = memory(process.pid)
            finally:
                process.terminate()
    found |= {"clicks quiet": len(calm), "median quiet": median(calm), "clicks hostile": len(busy)}
    found |= {"median hostile": median(busy), "ratio": median(busy) / median(calm)}
    found["growth MB"] = found["MB after hostile, second"] - found["MB after hostile, first"]
    found |= {"seconds": args.seconds, "visitors": args.visitors, "cores": os.cpu_count()}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    for name, value in found.items():
        print(f"{name:28} {value:10.2f}")
    return int(any(found[name] > limit for name, limit in ALLOWED.items()))


if __name__ == "__main__":
    sys.exit(main())
