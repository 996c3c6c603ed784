"""Taking a model apart for a visitor: the batch's own stages, one run at a time, in a process of its own.

A run is identified by the weights, the images and the pool of texts; the same request gets the same tables.
They are kept in a folder of limited size, from which the least recently used go first.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cachetools import LRUCache

from ccs import results
from ccs.errors import InputError
from ccs.model.sources import without_folders
from ccs.results import Results
from ccs.ui.service.uploads import InputImage

log = logging.getLogger(__name__)

PHOTOGRAPHS = {
    "Open Images (CC BY 2.0)": "hf://datasets/bitmind/open-image-v7-256:train",
    "COCO 2017 (Flickr’s terms)": "hf://datasets/detection-datasets/coco:val",
    "Oxford-IIIT Pet (CC BY-SA 4.0)": "hf://datasets/timm/oxford-iiit-pet:test",
    "Food-101 (terms not stated)": "hf://datasets/ethz/food101:validation",
    "drawn scenes": "world",
}
"""Images to take a model apart on, by the name that is shown: sets of the Hub, and the drawn world."""
UPLOADS = "uploads"  # the visitor's own, in the list
FEWEST, MOST = 2, 5000
KEEP_BYTES = 2**30
QUEUE = 5  # runs that may wait
LONGEST = 1800.0  # seconds that a run may take
LEFT = 120.0  # seconds without a question after which nobody waits for a run any more
STAGES = "moments,spans,labels,judgments"
NICE = 15  # a run takes what visitors leave of the machine; it stays in the session, or nice has no effect
SECRETS = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL", re.IGNORECASE)
_BAR = re.compile(r"(\w+): +\d+%\|[^|]*\| (\d+)/(\d+)")
_PARTS = {"photographs": (0.05, 0.25), "moments": (0.3, 0.35), "texts": (0.65, 0.3)}
"""The shares of a run at which a stage begins and that it takes, roughly."""
_HOME = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Request:
    """A request to take a model apart.

    place: what `ccs.load` takes, of the model with these weights (their hash). images: a spec of
    `ccs.open_images`, or "" for the visitor's own `pictures`. texts: the pool.
    """

    model: str
    place: str
    weights: str
    images: str
    count: int
    texts: str
    pictures: tuple[InputImage, ...] = ()

    @property
    def key(self) -> str:
        """The same for the same weights, images and texts; names the tables in links."""
        about = [self.weights, self.images, self.count, self.texts, [one.key for one in self.pictures]]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


@dataclass
class Run:
    """A run that was asked for, by its request's key.

    share, words: how far it is. error: why it failed, "" if it did not.
    """

    key: str
    request: Request
    share: float = 0.0
    words: str = ""
    error: str = ""
    asked: float = field(default_factory=time.monotonic)
    began: float = 0.0
    visitors: int = 1
    canceled: bool = False
    ended: bool = False

    @property
    def left(self) -> float | None:
        """Seconds until it is done, about; None as long as that cannot be said."""
        seconds = time.monotonic() - self.began
        if not self.began or self.share < 0.1 or seconds < 5:
            return None
        return seconds * (1 - self.share) / self.share


class Workshop:
    """The runs of all visitors: one at work, the others in a visible queue. Threads may share it."""

    def __init__(self, folder: Path, limit: int = KEEP_BYTES) -> None:
        self.folder, self._limit = folder.resolve(), limit
        shutil.rmtree(self.folder / "uploads", ignore_errors=True)  # of an app that was killed
        self._runs: LRUCache[str, Run] = LRUCache(50)
        self._waiting: list[Run] = []
        self._read: LRUCache[str, Results] = LRUCache(8)
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    def ask(self, request: Request) -> Run:
        """Queue a run, or join the same one; it is over where its tables are kept. InputError: too many."""
        key = request.key
        with self._lock:
            known = self._runs.get(key)
            if known is not None and not known.ended:
                known.visitors += 1
                return known
            run = self._runs[key] = Run(key, request)
            if self._tables(key) is not None:
                run.ended, run.share = True, 1.0
                return run
            if len(self._waiting) >= QUEUE:
                del self._runs[key]
                raise InputError(
                    f"{QUEUE} models are already waiting to be taken apart; try again in a few minutes."
                )
            self._waiting.append(run)
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(target=self._work, daemon=True)
                self._worker.start()
            return run

    def run(self, key: str) -> Run | None:
        """The run of that key, if there is or was one; asking keeps it going."""
        with self._lock:
            if (found := self._runs.get(key)) is not None:
                found.asked = time.monotonic()
            return found

    def join(self, key: str) -> bool:
        """One visitor more who waits for a run; False where there is none under way."""
        with self._lock:
            if (run := self._runs.get(key)) is None or run.ended:
                return False
            run.visitors += 1
            return True

    def ahead(self, run: Run) -> int:
        """The number of runs before this one."""
        with self._lock:
            return self._waiting.index(run) + 1 if run in self._waiting else 0

    def leave(self, key: str) -> None:
        """One visitor less who waits for a run; the last one ends it, or takes it from the queue."""
        with self._lock:
            run = self._runs.get(key)
            if run is None or run.ended:
                return
            run.visitors -= 1
            if run.visitors < 1:
                run.canceled = True
                del self._runs[key]
                self._waiting = [one for one in self._waiting if one is not run]

    def results(self, key: str) -> Results | None:
        """The tables of a run, None where they are not kept (any more)."""
        with self._lock:
            if (known := self._read.get(key)) is not None:
                return known
        if (folder := self._tables(key)) is None:
            return None
        try:
            found = results.read(folder)
        except InputError as error:
            log.warning("tables that were kept cannot be read: %s", error)
            return None
        os.utime(folder.parent)  # asked for now
        with self._lock:
            self._read[key] = found
        return found

    def archive(self, key: str) -> bytes:
        """The tables as they stand in a folder of results, zipped; InputError where they are not kept."""
        if (folder := self._tables(key)) is None:
            raise InputError("These tables are not kept any more; take the model apart again.")
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, f"{folder.name}/{path.name}")
        return out.getvalue()

    def _tables(self, key: str) -> Path | None:
        if not re.fullmatch(r"[0-9a-f]{16}", key):
            return None
        return next((path.parent for path in (self.folder / key).glob(f"*/{results.MANIFEST_FILE}")), None)

    def _work(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                self._waiting = [one for one in self._waiting if now - one.asked < LEFT]
                if not self._waiting:
                    self._worker = None
                    return
                run = self._waiting.pop(0)
            try:
                self._do(run)
            except InputError as error:
                run.error = str(error)
            except Exception:
                log.exception("a model could not be taken apart")
                run.error = "The model could not be taken apart; the error has been logged."
            finally:
                run.request = replace(run.request, pictures=())
                run.ended = True

    def _do(self, run: Run) -> None:
        # By names that tell nothing of this machine: they stand in the tables.
        request, out, images = run.request, self.folder / "work", run.request.images
        uploads = self.folder / "uploads" / run.key
        run.began, run.words = time.monotonic(), "starting"
        try:
            _clear(out)
            out.mkdir(parents=True, exist_ok=True)
            uploads.mkdir(parents=True)
            for number, picture in enumerate(request.pictures):
                picture.pixels.save(uploads / f"{number:03d}.png")
            if not images:
                images = f"uploads/{run.key}"
            elif Path(images).is_absolute():
                (uploads / Path(images).name).symlink_to(images)
                images = f"uploads/{run.key}/{Path(images).name}"
            _compute(run, [
                *("--model", request.place, "--images", images),
                *("--max-images", str(request.count), "--texts", request.texts),
                *("--stages", STAGES, "--suite", "none", "--out", out.name),
            ], self.folder)  # fmt: skip
            done = next(path.parent for path in out.glob(f"[!.]*/{results.MANIFEST_FILE}"))
            target = self.folder / run.key
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            done.rename(target / done.name)
            run.share = 1.0
            log.warning("%s was taken apart; its tables: %s", request.model, target)
        finally:
            shutil.rmtree(uploads, ignore_errors=True)
            _clear(out)
            self._tidy()

    def _tidy(self) -> None:
        """Remove what was asked for longest ago until the rest is within the limit."""
        parts = [*self.folder.glob("[0-9a-f]*"), *(self.folder / "work" / results.STAGES).glob("*")]
        parts = sorted((path for path in parts if path.is_dir()), key=lambda path: path.stat().st_mtime)
        sizes = {path: sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) for path in parts}
        while parts and sum(sizes[path] for path in parts) > self._limit:
            gone = parts.pop(0)
            shutil.rmtree(gone, ignore_errors=True)
            with self._lock:
                self._read.pop(gone.name, None)


def _clear(out: Path) -> None:
    """Remove the tables of a run; its stages stay, for the next that begins alike."""
    for path in out.glob("[!.]*"):
        shutil.rmtree(path, ignore_errors=True)


def _compute(run: Run, arguments: Sequence[str], folder: Path) -> None:
    """`python -m batch.compute` in the folder to its end, its progress noted in the run. InputError says why
    it failed.
    """
    environment = {name: value for name, value in os.environ.items() if not SECRETS.search(name)}
    path = os.pathsep.join(filter(None, (str(_HOME), os.environ.get("PYTHONPATH"))))
    environment |= {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "CCS_PROGRESS": "1", "PYTHONPATH": path}
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "batch.compute", *arguments],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, process_group=0,
    ) as process:  # fmt: skip
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        atexit.register(_end, process)
        reader = threading.Thread(target=_listen, args=(process, run, said), daemon=True)
        reader.start()
        why = ""
        while process.poll() is None and not why:
            now = time.monotonic()
            if run.canceled or now - run.asked > LEFT:
                why = "It was canceled."
            elif now - run.began > LONGEST:
                why = f"It took more than {LONGEST / 60:.0f} minutes and was ended; take fewer photographs."
            time.sleep(0.2)
        if why:
            _end(process)
        process.wait()
        atexit.unregister(_end)
        reader.join(5)
    if why or process.returncode:
        errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
        log.warning("taking apart ended with %s: %s", process.returncode, " / ".join(said[-5:]))
        raise InputError(why or without_folders(errors[-1] if errors else "It stopped; the log says why."))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run with the processes that decode for it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _listen(process: subprocess.Popen[bytes], run: Run, said: list[str]) -> None:
    """Read what a run says: bars, which overwrite one another, are its progress; lines are kept in `said`."""
    assert isinstance(process.stderr, io.BufferedReader)
    rest = ""
    while chunk := process.stderr.read1(65536):
        *lines, rest = re.split(r"[\r\n]", rest + chunk.decode("utf-8", "replace"))
        for line in filter(str.strip, lines):
            if bar := _BAR.search(line):
                name, done, total = bar[1], int(bar[2]), int(bar[3])
                start, part = _PARTS.get(name, (0.95, 0.0))
                run.share, run.words = start + part * done / max(1, total), f"{name}: {done:,} of {total:,}"
            else:
                said.append(line)
        rest = rest[-100_000:]
