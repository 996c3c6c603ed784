"""Check exactness, speed, and memory on a GPU, in one command.

    python -m benchmarks.gpu --out DIR            # on a GPU, under ten minutes; on a CPU, a part
    python -m benchmarks.gpu --keep DIR/gpu.json  # adds a run on a GPU to benchmarks/results/gpu.md

It needs no network: models of full width have random weights, and pictures are generated. All lines run, even
if one fails; the exit code is then 1. The JSON in DIR is written after each line, so that nothing is lost if
the machine is taken away.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.gpu.lines import Bench, Line

PARTS = ("exactness", "speed", "memory", "app", "processes")
PACKAGES = {
    **{
        name: name for name in ("torch", "torchvision", "timm", "ftfy", "numpy", "scipy", "pandas", "pyarrow")
    },
    **{name: name for name in ("tqdm", "safetensors", "huggingface_hub", "accelerate", "emoji", "pydantic")},
    **{name: name for name in ("tenacity", "cachetools", "jinja2", "markupsafe", "krippendorff")},
    **{"open_clip": "open_clip_torch", "PIL": "pillow", "sklearn": "scikit-learn"},
}
"""Imported module -> the package that has it. Gradio is not included."""


def missing() -> str:
    """Return a sentence about missing packages, or "" if none is missing."""
    absent = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if not absent:
        return ""
    return (
        f"Not installed here: {', '.join(absent)}; install them, or, where there is no network, bring their "
        "wheels (see docs/gpus.md)."
    )


def all_lines() -> list[Line]:
    """Return all lines in their order."""
    from benchmarks.gpu import clicks_on_gpu, exact, memory, processes, speed

    return [line for part in (exact, speed, memory, clicks_on_gpu, processes) for line in part.lines()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 if all lines hold, 1 if one fails, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for gpu.json")
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda or cuda:N (default: a GPU if there is one)"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="this part only; repeatable")
    parser.add_argument("--keep", type=Path, metavar="JSON", help="store the results of this run, and stop")
    arguments = parser.parse_args(argv)
    if arguments.out is None and arguments.keep is None:
        parser.error("one of --out and --keep is needed")
    if sentence := missing():
        print(f"error: {sentence}", file=sys.stderr)
        return 2
    from benchmarks.gpu import document, lines
    from ccs.errors import InputError

    if arguments.keep is not None:
        lines.keep(json.loads(arguments.keep.read_text("utf-8")))
        document.write(all_lines())
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            bench = lines.Bench.on(arguments.device, Path(folder))
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        return show(bench, arguments.out, arguments.part or PARTS)


def show(bench: Bench, out: Path, parts: Sequence[str]) -> int:
    """Run the lines of these parts, print and store each, then list those never seen on a GPU.

    Args:
        bench: The device and the size of the work.
        out: The folder of `gpu.json`.
        parts: The parts whose lines run.

    Returns:
        1 if a line failed, otherwise 0.
    """
    from benchmarks.gpu import lines

    outcomes, chosen = [], [line for line in all_lines() if line.part in parts]
    day = datetime.now(UTC).date().isoformat()
    for line in chosen:
        outcomes.append(line.look(bench))
        print(lines.row(outcomes[-1]), flush=True)
        text = json.dumps(lines.record(bench, outcomes, day), indent=1)
        (out / "gpu.json").write_text(text + "\n", "utf-8")
    known = lines.seen_results()
    here = {outcome.title for outcome in outcomes if bench.gpu and outcome.verdict != lines.NEEDS_A_GPU}
    never = [line.title for line in all_lines() if line.title not in known and line.title not in here]
    print(f"\nNever seen on a GPU: {len(never)} of {len(all_lines())} lines", *never, sep="\n  ")
    failed = sum(outcome.verdict == "fails" for outcome in outcomes)
    print(f"\n{failed} of {len(outcomes)} failed; {out / 'gpu.json'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
