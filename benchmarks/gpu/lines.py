"""Lines of the table of results: a measurement with its goal and its outcome, and the last GPU results."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import RESULTS
from ccs.model.loading.sources import usable_device

SEEN = RESULTS / "gpu.json"
NEEDS_A_GPU = "needs a GPU"


@dataclass(frozen=True)
class Bench:
    """The device and the size of the work; on a CPU there are few images and small models.

    Attributes:
        device: Device to check.
        folder: Folder for files.
        models: Architectures whose exactness is checked.
        timed: Architectures whose speed and memory are measured.
        app: Architecture that the app serves.
        compared: Number of images for exactness.
        images: Number of images for speed and memory.
        ablations: Number of ablation sets of an evaluation.
        files: Number of JPEG files.
        ranked: Number of pictures ranked for MaxSkew.
        faces: Number of pictures ranked in the app.
        repeats: Number of measured rounds.
    """

    device: torch.device
    folder: Path
    models: tuple[str, ...] = ("ViT-B-32", "ViT-B-16", "ViT-L-14", "ViT-B-16-SigLIP", "RN50")
    timed: tuple[str, ...] = ("ViT-B-32", "ViT-B-16", "ViT-L-14")
    app: str = "ViT-L-14"
    compared: int = 32
    images: int = 256
    ablations: int = 40
    files: int = 4000
    ranked: int = 600
    faces: int = 600
    repeats: int = 5

    @classmethod
    def on(cls, name: str, folder: Path) -> Bench:
        """Return the full size of the work for a GPU, and a smaller one for a CPU.

        Args:
            name: The device: cpu, cuda, cuda:N, or auto.
            folder: The folder for files.

        Raises:
            InputError: If this machine doesn't have the device.
        """
        device = usable_device(name)
        if device.type != "cpu":
            return cls(device, folder)
        few = ("ViT-B-32", "ViT-B-16-SigLIP", "RN50")
        return cls(device, folder, few, few[:1], few[0], 2, 4, 8, 24, 24, 24, 1)

    @property
    def gpu(self) -> bool:
        return self.device.type != "cpu"

    @cached_property
    def known(self) -> dict[Any, Any]:
        """Values that several lines share, by key."""
        return {}

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return a value that several lines share; the first request makes it.

        Args:
            key: The value's key.
            make: Makes the value.
        """
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def done(self) -> None:
        """Wait for the device."""
        if self.gpu:
            torch.cuda.synchronize(self.device)


Measured = float | tuple[float, str]
"""The value of a line, and a note on it."""


@dataclass(frozen=True)
class Line:
    """A claim that the value of `work` is at most `limit`. anywhere: it is also checked on a CPU."""

    part: str
    name: str
    unit: str
    limit: float
    work: Callable[[Bench], Measured]
    anywhere: bool = True
    model: str = ""

    @property
    def title(self) -> str:
        return f"{self.part}: {self.name}"

    def look(self, bench: Bench) -> Outcome:
        """Run the line. An exception becomes its outcome."""
        began, value, words = time.perf_counter(), math.nan, ""
        if not bench.gpu and not (self.anywhere and (not self.model or self.model in bench.models)):
            return Outcome(self.part, self.name, self.unit, self.limit, None, NEEDS_A_GPU)
        try:
            returned = self.work(bench)
            value, words = returned if isinstance(returned, tuple) else (returned, "")
        except Exception as error:  # the other lines still run
            words = f"{type(error).__name__}: {error}".strip()[:300]
        verdict = "holds" if value <= self.limit else "fails"
        seconds = round(time.perf_counter() - began, 2)
        rounded = None if math.isnan(value) else float(f"{value:.4g}")
        return Outcome(self.part, self.name, self.unit, self.limit, rounded, verdict, words, seconds)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a line: the value in `unit`, at most `most` if it holds, None without a measurement."""

    part: str
    name: str
    unit: str
    most: float
    value: float | None
    verdict: str
    words: str = ""
    seconds: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.part}: {self.name}"


def row(outcome: Outcome) -> str:
    """Format one line of the printed table."""
    value = "" if outcome.value is None else f"{outcome.value:.3g}"
    text = f"{outcome.title:58s} {value:>9s}  at most {outcome.most:<7g} {outcome.unit:28s} {outcome.verdict}"
    return f"{text}  {outcome.words}".rstrip()


def seen_results() -> dict[str, dict[str, Any]]:
    """Return the last GPU result of each line by title: value, verdict, device, and day."""
    results: dict[str, dict[str, Any]] = json.loads(SEEN.read_text("utf-8"))
    return results


def keep(run: Mapping[str, Any]) -> None:
    """Add the results of a run on a GPU to the stored results; lines that did not run are left out."""
    origin = {"device": run["device"], "day": run["day"]}
    known = seen_results()
    for line in run["lines"] if run["gpu"] else ():
        if line["verdict"] != NEEDS_A_GPU:
            title = f"{line['part']}: {line['name']}"
            known[title] = {"value": line["value"], "verdict": line["verdict"], **origin}
    SEEN.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


def table(lines: Sequence[Line], known: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the lines seen on a GPU as a Markdown table; others are counted.

    Args:
        lines: The lines.
        known: Title -> the last result on a GPU, as `seen_results` returns it.
    """
    rows = ["| line | goal | on a GPU |", "|---|---|---|"]
    for line in lines:
        if result := known.get(line.title):
            cell = f"{result['value']}, {result['verdict']} ({result['device']}, {result['day']})"
            rows.append(f"| {line.title} | at most {line.limit:g} {line.unit} | {cell} |")
    if unseen := sum(line.title not in known for line in lines):
        rows.append(f"| {unseen} lines, with their goals in `benchmarks/gpu/` | – | never seen |")
    return "\n".join(rows) + "\n"


def record(bench: Bench, outcomes: Sequence[Outcome], day: str) -> dict[str, Any]:
    """Return the JSON of a run.

    Args:
        bench: The device and the size of the work.
        outcomes: The outcomes of the lines.
        day: The date, YYYY-MM-DD.
    """
    name = torch.cuda.get_device_name(bench.device) if bench.gpu else "CPU"
    header = {"device": name, "gpu": bench.gpu, "day": day, "torch": torch.__version__}
    return header | {"lines": [asdict(outcome) for outcome in outcomes]}
