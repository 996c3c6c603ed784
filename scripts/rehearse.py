"""The study from one command to the published data set and the app that loads it, on this machine alone.

    python scripts/rehearse.py [MODEL ...] [--small] [--folder DIR]

A local server stands in for the Hub: it has every data set in its real schema with a few rows (videos too)
and the six models under their names with random weights. Three more stand in for the judges. The line
`--paper --out results` of docs/reproduce-the-paper.md runs, then the report, publishing, and the app on what
was published. MODEL: names from the six, such as ViT-B-16-LAION; `--small` uses a model of eight numbers per
head. At the end: time, disk, memory, and every hole that was found; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
REPOSITORY = "user/rehearsal"
SMALL = ("ViT-B-32-OpenAI",)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python scripts/rehearse.py")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="the study's models (default: all six)")
    parser.add_argument("--small", action="store_true", help="one model of eight numbers per head")
    parser.add_argument(
        "--folder",
        type=Path,
        help="work here, keep everything, and resume from it (default: a temporary one)",
    )
    args = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        return _rehearse(stack, folder.resolve(), args)


def _rehearse(stack: ExitStack, folder: Path, args: argparse.Namespace) -> int:
    from tests.support.hub_server import TOKEN, Hub

    hub = stack.enter_context(Hub())
    # Before anything imports the Hub's client, which reads them once.
    os.environ |= {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(folder / "home"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "CCS_DATA": str(folder / "data"),
    }
    from scripts import rehearsal_hub as study
    from tests.support.llm_server import SERVERS

    for kind, key, place in (
        ("openai", "OPENAI", "OPENAI"),
        ("anthropic", "ANTHROPIC", "ANTHROPIC"),
        ("google", "GEMINI", "GOOGLE_GEMINI"),
    ):
        server = stack.enter_context(SERVERS[kind](study.answer))
        os.environ |= {f"{key}_API_KEY": "sk-test-0123456789abcdef", f"{place}_BASE_URL": server.base_url}
    from ccs import paper

    small, steps, out = args.small, _Steps(), folder / "results"
    studied = args.models or (SMALL if small else [])
    models = tuple(one.name for one in paper.models() if not studied or one.paper_name in studied)
    with steps("serve"):
        study.serve_sets(hub, folder / "sets", folder / "data")
        study.serve_models(hub, folder / "models", models, narrow=small)
    study.less(40, folder / "data", small=small)
    skip = ["--skip-unreadable"]  # a third of the videos here
    with steps("compute"):
        steps.run("ccs.batch.compute.__main__", ["--paper", *studied, "--out", str(out), *skip])
    with steps("report"):
        report = folder / "docs" / "report"
        steps.run("ccs.batch.report", ["--results", str(out), "--out", str(report)])
    with steps("publish"):
        steps.run("ccs.batch.publish", ["--repo", REPOSITORY, "--results", str(out), "--tag", "v1"])
    with steps("app"):
        shown = _models_in_the_app(models)
    holes = [*steps.failed, *_holes(out, models)]
    holes += [f"the app does not have {model}" for model in models if model not in shown]
    print("\n".join([steps.page(folder), *(f"hole: {hole}" for hole in holes), f"{len(holes)} holes."]))
    return int(bool(holes))


class _Steps:
    """Seconds of each step, and the commands that failed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began

    def run(self, module: str, argv: list[str]) -> None:
        """The module's command line, in this process."""
        import importlib

        command: Callable[[list[str]], int] = importlib.import_module(module).main
        if (code := command(argv)) == 130:
            raise KeyboardInterrupt
        if code:
            self.failed.append(f"{module} ended with {code}")

    def page(self, folder: Path) -> str:
        """Time, disk and memory."""
        lines = [f"{name:10s} {seconds:8.1f} s" for name, seconds in self.seconds.items()]
        lines.append(f"{'all':10s} {sum(self.seconds.values()):8.1f} s")
        for part in sorted(path for path in folder.iterdir() if path.is_dir()):
            size = sum(file.lstat().st_size for file in part.rglob("*") if file.is_file())
            lines.append(f"{part.name:10s} {size / 1e6:8.1f} MB on disk")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)
        return "\n".join([*lines, f"peak memory {peak:.1f} GB"])


def _models_in_the_app(models: Sequence[str]) -> list[str]:
    """The models of whose heads app.py knows the scores when it is started on the published results."""
    from tests.support.app_page import rows
    from tests.support.app_process import started
    from tests.support.visitor import Visitor

    results = {"CCS_RESULTS": f"hf://datasets/{REPOSITORY}@v1"}
    with started({**os.environ, **results}) as (url, _), Visitor(url) as visitor:
        grids = {name: visitor.open(model=name, tab="heads")["left"] for name in models}
    return [name for name, grid in grids.items() if rows("heads", grid)[0]["K"]]


def _holes(out: Path, models: Sequence[str]) -> Iterator[str]:
    """Holes that a reader of these results would notice."""
    from ccs import results
    from ccs.batch import report
    from ccs.data import SOURCES
    from ccs.results import schema

    studied = {name for name, record in SOURCES.items() if record.measured}
    for model in models:
        folder = out / results.folder_name(model)
        if not folder.is_dir():
            yield f"{model} has no results"
            continue
        found = results.read(folder)
        for one in found.manifest["absent"]:
            yield f"{model}: {one['name']} is absent: {one['reason']}"
        for name in studied - {one["name"] for one in [*found.manifest["sets"], *found.manifest["absent"]]}:
            yield f"{model}: nothing is said of {name}"
        for name in schema.TABLES:
            if not len(found.table(name)):
                yield f"{model}: the table {name} is empty"
        if unknown := int(found.table("scores")["ccs"].isna().sum()):
            yield f"{model}: {unknown} scores are unknown"
        plans = set(found.table("pruning")["ablation"])
        layers = set(found.table("ccr")["layer"].dropna())
        for key in report.TABLES:
            for claim in report.claims(key):
                # A layer without high heads has no ratio, a concept without them no plan.
                if claim.layer in layers or (claim.plan.startswith("concept:") and claim.plan not in plans):
                    continue
                if claim.model == model and not report.compare(claim, found).measured:
                    yield f"{model}: {key}, {claim.row} {claim.column} has no measured figure"


if __name__ == "__main__":
    sys.exit(main())
