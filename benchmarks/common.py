"""Shared by the benchmarks: clocks, the app in a separate process, and the files of results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MACHINE = platform.processor() or platform.machine()
PHOTOGRAPHS = ROOT.parent / "shared" / "data" / "imagenet-sample"


def keep(name: str, results: Mapping[str, Any]) -> None:
    """Write a benchmark's results to results/NAME.json.

    Args:
        name: NAME.
        results: The results, serializable as JSON.
    """
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def memory(field: str, process: int | str = "self") -> float:
    """Return the memory of a process in MiB (Linux only).

    Args:
        field: `VmRSS` for the memory in use, or `VmHWM` for its peak.
        process: The process's id. Default: this process.
    """
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def timed(run: Callable[[], object]) -> float:
    """Seconds on the wall."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def smallest(
    passes: Mapping[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Measure the least seconds of each pass; they take turns, after one round to warm up.

    Args:
        passes: Name -> the pass.
        repeats: Number of measured rounds.
        clock: Returns seconds. Default: this process's CPU time.
    """
    best = dict.fromkeys(passes, float("inf"))
    for turn in range(repeats + 1):
        for name, run in passes.items():
            start = clock()
            run()
            seconds = clock() - start
            if turn:
                best[name] = min(best[name], seconds)
    return best


@contextmanager
def served(port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`app.py` on 127.0.0.1, from the moment when it serves its page."""
    command = [sys.executable, "app.py", "--port", str(port), "--host", "127.0.0.1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, **environment}
    ) as process:
        try:
            while process.poll() is None:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield process
        finally:
            process.terminate()
