"""Analyze a model for a visitor: a run of `batch.compute` in its own process, whose tables are kept.

One analysis runs at a time. Requests with the same weights, images, and texts share their tables, which are
kept in a folder. The least recently used tables are deleted first.
"""

import hashlib
import importlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccs import results, sandbox
from ccs.app.jobs import Tell
from ccs.app.services.model_cache import Cache
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
"""Shown name -> images to analyze a model on: datasets of the Hub, and synthetic scenes."""
MIN_COUNT, DEFAULT_COUNT, MAX_COUNT = 2, 1000, 5000
MAX_RESULTS = 50  # the least recently used are deleted first
MAX_SECONDS = 1800.0  # of a run
NICENESS = 15  # a run has a lower priority than visitors; only within a session does nice have an effect

Progress = Generator[tuple[float, str], None, None]  # the finished share, and the current step


@dataclass(frozen=True)
class Request:
    """A request to analyze a model.

    Attributes:
        model: The model's name.
        place: The argument of `ccs.load` that finds it.
        weights: The hash of its weights.
        images: A dataset, as `ccs.open_images` takes it.
        count: The number of images.
        texts: The pool of texts.
    """

    model: str
    place: str
    weights: str
    images: str
    count: int
    texts: str

    @property
    def key(self) -> str:
        """The name of the results in links, the same for the same weights, images, and texts."""
        parts = json.dumps([self.weights, self.images, self.count, self.texts])
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


class Analyses:
    """The results of models that were analyzed here.

    Args:
        folder: The folder that keeps them, by default a temporary one.
        cache: The cache of what is read from it.
    """

    def __init__(self, folder: Path | None, cache: Cache) -> None:
        self.folder = (folder or Path(tempfile.gettempdir()) / f"clip-ccs-{os.getpid()}").resolve()
        self._cache, self._turn = cache, threading.Lock()

    def records(self, key: str) -> ModelRecords:
        """Return the results of a request. Raises InputError if they aren't kept or can't be read."""
        folder = self._find(key)
        os.utime(folder.parent)  # used now
        return self._cache.get(("analysis", key), lambda: ModelRecords(**vars(results.read_results(folder))))

    def archive(self, key: str) -> Path:
        """Return the zip file of a request's results. Raises InputError if they aren't kept."""
        return self._find(key).with_name("tables.zip")

    def make(self, request: Request, tell: Tell) -> None:
        """Analyze a model unless its results are kept. Earlier requests go first.

        Args:
            request: The model, images, and texts.
            tell: Publishes the progress. An exception that it raises ends the run.

        Raises:
            InputError: If the run fails, with the reason.
        """
        while not self._turn.acquire(timeout=0.5):
            tell(0.0, "Waiting for another analysis")
        work, target = self.folder / "work", self.folder / request.key
        try:
            if not target.exists():
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir(parents=True)
                with closing(compute_tables(request, work)) as steps:
                    for share, doing in steps:
                        tell(share, f"Analyzing {request.model}: {doing}")
                (tables,) = (path.parent for path in work.glob(f"[!.]*/{results.MANIFEST_FILE}"))
                shutil.rmtree(work / results.STAGES, ignore_errors=True)
                shutil.make_archive(str(work / "tables"), "zip", work, tables.name)
                work.rename(target)
                log.warning("%s was analyzed; its tables: %s", request.model, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            for path in sorted(self.folder.glob("[0-9a-f]*"), key=os.path.getmtime)[:-MAX_RESULTS]:
                shutil.rmtree(path, ignore_errors=True)
            self._turn.release()

    def _find(self, key: str) -> Path:
        if re.fullmatch(r"[0-9a-f]{16}", key):
            for path in (self.folder / key).glob(f"*/{results.MANIFEST_FILE}"):
                return path.parent
        raise InputError("These tables have been deleted; analyze the model again.")


def compute_tables(request: Request, folder: Path) -> Progress:
    """Run `clip-ccs compute`: on ZeroGPU's GPU if the visitor may use it, else on this machine.

    Args:
        request: The model, images, and texts. A GPU is requested for 20 s, plus 20 per 1,000 images, at most
            120.
        folder: The folder to run in.

    Raises:
        InputError: If it fails, with the reason.
    """
    if os.environ.get("SPACES_ZERO_GPU"):
        import gradio

        lend = importlib.import_module("spaces").GPU(duration=min(120, 20 + request.count // 50))
        try:
            yield from lend(_compute)(request, folder, "cuda")
            return
        except gradio.Error as error:  # the visitor's quota, or no GPU is free
            log.warning("ZeroGPU refused: %s", error)
            yield 0.0, "no GPU is free for you now, so the CPU computes"
    yield from _compute(request, folder, os.environ.get("CCS_DEVICE", ""))


def _compute(request: Request, folder: Path, device: str) -> Progress:
    """Run the command in its own process, whose messages go to a file."""
    messages, end = folder / "messages.txt", time.monotonic() + MAX_SECONDS
    options = {"model": request.place, "images": request.images, "max-images": request.count}
    options |= {"texts": request.texts, "suite": "none", "out": ".", "progress": "json"}  # names no folder
    command = ["nice", f"-n{NICENESS}", sys.executable, "-m", "ccs.batch.compute"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with messages.open("wb") as file:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        environment = sandbox.environment() | {"CCS_DEVICE": device}
        process = subprocess.Popen(command, cwd=folder, env=environment, process_group=0, **streams)
    try:
        while process.poll() is None:
            lines = messages.read_text("utf-8", "replace").split("\n")[:-1]
            steps = ['{"doing": "starting", "share": 0}', *(x for x in lines if x.startswith('{"doing"'))]
            yield (progress := json.loads(steps[-1]))["share"], progress["doing"]
            if time.monotonic() > end:
                raise InputError(f"It took more than {MAX_SECONDS / 60:.0f} minutes; use fewer images.")
            time.sleep(0.3)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # and the processes that decode images for it
            process.wait()
    if process.returncode:
        lines = messages.read_text("utf-8", "replace").splitlines()
        log.warning("an analysis ended with %s: %s", process.returncode, " / ".join(lines[-5:]))
        errors = ["It stopped; the log says why.", *(x for x in lines if x.startswith("error: "))]
        raise InputError(without_folders(errors[-1].removeprefix("error: ")))
