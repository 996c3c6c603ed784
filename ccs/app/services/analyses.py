"""Analyzing a model for a visitor: a run of `batch.compute` in a process of its own, whose tables are kept.

One runs at a time, the others wait in line. The same weights, images, and texts get the same tables. They are
kept in a folder of limited size, from which the least recently used go first.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ccs import results, sandbox
from ccs.app.html import count
from ccs.app.services.cache import Cache
from ccs.app.services.records import ModelRecords
from ccs.errors import InputError
from ccs.model.loading.sources import without_folders

log = logging.getLogger(__name__)

DATASETS = {
    "Open Images (CC BY 2.0)": "hf://datasets/bitmind/open-image-v7-256:train",
    "COCO 2017 (Flickr’s terms)": "hf://datasets/detection-datasets/coco:val",
    "Oxford-IIIT Pet (CC BY-SA 4.0)": "hf://datasets/timm/oxford-iiit-pet:test",
    "Food-101 (terms not stated)": "hf://datasets/ethz/food101:validation",
    "synthetic scenes": "world",
}
"""Images to analyze a model on, by the name that is shown: datasets of the Hub, and synthetic scenes."""
MIN_COUNT, DEFAULT_COUNT, MAX_COUNT = 2, 1000, 5000
KEEP_BYTES = 2**30
LINE = 8  # runs of visitors, one at work and the others waiting
LONGEST = 1800.0  # seconds that a run may take
NICE = 15  # a run takes what visitors leave of the machine; it stays in the session, or nice has no effect

Progress = Iterator[tuple[float, str]]  # the share that is done, and what is being done


@dataclass(frozen=True)
class Request:
    """A request to analyze a model.

    Attributes:
        model: its name.
        place: where `ccs.load` finds it.
        weights: the hash of its weights.
        images: what `ccs.open_images` takes.
        count: the number of images.
        texts: the pool of texts.
    """

    model: str
    place: str
    weights: str
    images: str
    count: int
    texts: str

    @property
    def key(self) -> str:
        """The same for the same weights, images, and texts; names the tables in links."""
        about = [self.weights, self.images, self.count, self.texts]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


class Analyses:
    """The tables of models that were analyzed here, in a folder (by default a temporary one)."""

    def __init__(self, folder: Path | None, cache: Cache) -> None:
        self.folder = (folder or Path(tempfile.gettempdir()) / f"clip-ccs-{os.getpid()}").resolve()
        self._cache = cache
        self._line: list[str] = []  # addresses whose runs wait; the first one's is at work
        self._lock = threading.Lock()

    def records(self, key: str) -> ModelRecords | None:
        """Return the tables of a request, None if they aren't kept."""
        folder = self._tables(key)
        if folder is None:
            return None
        os.utime(folder.parent)  # asked for now
        try:
            return self._cache.get(("analysis", key), lambda: _records(folder))
        except InputError as error:
            log.warning("kept tables cannot be read: %s", error)
            return None

    def archive(self, key: str) -> bytes:
        """Return the tables as a zipped folder of results; InputError if they aren't kept."""
        if (folder := self._tables(key)) is None:
            raise InputError("These tables are no longer kept; analyze the model again.")
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, f"{folder.name}/{path.name}")
        return out.getvalue()

    def make(self, request: Request, client: str = "") -> Progress:
        """Analyze a model unless its tables are kept, after those that wait already; one for an address.

        Closing the iterator ends the run, or leaves the line. InputError says why it failed.
        """
        if self._tables(request.key) is not None:
            return
        with self._lock:
            if client in self._line:
                raise InputError("an analysis from your address is under way; try again when it is done.")
            if len(self._line) >= LINE:
                raise InputError(f"{LINE} others are waiting already; try again later.")
            self._line.append(client)
        try:
            while before := self._line.index(client):
                yield 0.0, f"waiting for {count(before, 'other')}"
                time.sleep(0.5)
            if self._tables(request.key) is None:
                yield from self._make(request)
        finally:
            self._line.remove(client)

    def _make(self, request: Request) -> Progress:
        out = self.folder / "work"
        _clear(out)
        try:
            yield 0.0, "starting"
            # The folder by a name that tells nothing of this machine: it stands in the tables.
            yield from compute_tables(
                [
                    *("--model", request.place, "--images", request.images),
                    *("--max-images", str(request.count), "--texts", request.texts),
                    *("--suite", "none", "--out", out.name),
                ],
                self.folder,
                request.count,
            )
            done = next(path.parent for path in out.glob(f"[!.]*/{results.MANIFEST_FILE}"))
            target = self.folder / request.key
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            done.rename(target / done.name)
            log.warning("%s was analyzed; its tables: %s", request.model, target)
        finally:
            _clear(out)
            self._tidy()

    def _tables(self, key: str) -> Path | None:
        if not re.fullmatch(r"[0-9a-f]{16}", key):
            return None
        return next((path.parent for path in (self.folder / key).glob(f"*/{results.MANIFEST_FILE}")), None)

    def _tidy(self) -> None:
        """Remove the least recently used tables until the others are within the limit."""
        parts = [*self.folder.glob("[0-9a-f]*"), *(self.folder / "work" / results.STAGES).glob("*")]
        parts = sorted((path for path in parts if path.is_dir()), key=lambda path: path.stat().st_mtime)
        sizes = {path: sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) for path in parts}
        while parts and sum(sizes[path] for path in parts) > KEEP_BYTES:
            shutil.rmtree(parts.pop(0), ignore_errors=True)


def _records(folder: Path) -> ModelRecords:
    tables = results.read(folder)
    return ModelRecords.read(tables.model, tables)


def _clear(out: Path) -> None:
    """Remove the tables of a run; its stages stay, for the next that begins alike."""
    out.mkdir(parents=True, exist_ok=True)
    for path in out.glob("[!.]*"):
        shutil.rmtree(path, ignore_errors=True)


def gpu_seconds(arguments: Sequence[str], folder: Path, images: int, device: str = "") -> int:
    """Return the time for which a run asks ZeroGPU for a GPU: 20 seconds, and 20 per 1,000 images."""
    return min(120, 20 + images // 50)


def compute_tables(arguments: Sequence[str], folder: Path, images: int) -> Progress:
    """Run `python -m batch.compute`: on ZeroGPU's GPU if the visitor may use it, else on this machine.

    Raises:
        InputError: If it fails, with the reason.
    """
    if os.environ.get("SPACES_ZERO_GPU"):
        import gradio

        lend = importlib.import_module("spaces").GPU(duration=gpu_seconds)
        try:
            yield from lend(_compute)(arguments, folder, images, "cuda")
            return
        except gradio.Error as error:  # the visitor's quota, or no GPU is free
            log.warning("ZeroGPU refused: %s", error)
            yield 0.0, "no GPU is free for you now, so the CPU computes"
    yield from _compute(arguments, folder, images)


def _compute(arguments: Sequence[str], folder: Path, images: int, device: str = "") -> Progress:
    """Run the computation in a process of its own."""
    messages: list[str] = []
    share, doing, end = 0.0, "starting", time.monotonic() + LONGEST
    with subprocess.Popen(
        [sys.executable, "-m", "ccs.batch.compute", "--progress", "json", *arguments],
        cwd=folder,
        env=sandbox.environment() | ({"CCS_DEVICE": device} if device else {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        try:
            with suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
            for line in _lines(process):
                if time.monotonic() > end:
                    raise InputError(
                        f"It took more than {LONGEST / 60:.0f} minutes and was ended; use fewer images."
                    )
                if line.startswith('{"doing"'):
                    progress = json.loads(line)
                    share, doing = progress["share"], progress["doing"]
                elif line:
                    messages.append(line)
                yield share, doing
        finally:
            if process.poll() is None:  # with the processes that decode for it
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        errors = [line.removeprefix("error: ") for line in messages if line.startswith("error: ")]
        log.warning("an analysis ended with %s: %s", process.returncode, " / ".join(messages[-5:]))
        raise InputError(without_folders(errors[-1]) if errors else "It stopped; the log says why.")


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines that a process writes on stderr until it ends; "" once in a while, so that it can be ended
    between them.
    """
    assert process.stderr is not None
    rest = b""
    while True:
        ready, _, _ = select.select([process.stderr], [], [], 0.5)
        if not ready:
            yield ""
            continue
        chunk = os.read(process.stderr.fileno(), 65536)
        if not chunk:
            process.wait()
            return
        *lines, rest = (rest + chunk)[-100_000:].split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").strip()
