"""Rehearse the paper's study on this machine, from compute to the app: `python -m scripts.rehearse --small`.

A local server replaces the Hub, with a few rows of each dataset in its real schema and the six models with
random weights. Three more replace the LLM judges. The rehearsal runs `compute --paper` of
docs/reproduce-the-paper.md, then `report`, `publish`, and the app on the published results. It prints time,
disk, memory, and every missing result.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from ccs.cli.command_line import Command

REPOSITORY = "user/rehearsal"
SMALL = ("ViT-B-32-OpenAI",)


@dataclass(frozen=True)
class RehearsalOptions:
    """Rehearse the paper's study on local servers. The exit status is 1 if a result is missing.

    Examples:
        python -m scripts.rehearse --small
    """

    models: tuple[str, ...] = ()
    """Printed names of the paper's models, such as ViT-B-16-LAION (default: all six)"""
    _: KW_ONLY
    small: bool = False
    """One model with 8 dimensions per head"""
    folder: Path | None = None
    """Folder to work in and resume from (default: a temporary one)"""


def rehearse(options: RehearsalOptions) -> int:
    """Return rehearse in the folder."""
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        return _rehearse(stack, folder.resolve(), options)


def _rehearse(stack: ExitStack, folder: Path, options: RehearsalOptions) -> int:
    from tests.support.hub_server import TOKEN, Hub

    hub = stack.enter_context(Hub())
    # Set before the first import of huggingface_hub, which reads them once.
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
    from ccs.judges import provider
    from scripts import rehearsal_hub
    from tests.support.llm_server import SERVERS

    for kind, key in (("openai", "OPENAI"), ("anthropic", "ANTHROPIC"), ("google", "GEMINI")):
        server = stack.enter_context(SERVERS[kind](rehearsal_hub.answer))
        os.environ |= {f"{key}_API_KEY": "sk-test-0123456789abcdef", f"{key}_BASE_URL": server.base_url}
    provider.SERVERS |= {
        "google": os.environ["GEMINI_BASE_URL"],
        "anthropic": os.environ["ANTHROPIC_BASE_URL"],
    }
    from ccs import paper

    small, steps, out = options.small, _Steps(), folder / "results"
    studied = options.models or (SMALL if small else [])
    models = tuple(model.name for model in paper.models() if not studied or model.paper_name in studied)
    with steps("serve"):
        rehearsal_hub.serve_datasets(hub, folder / "sets", folder / "data")
        rehearsal_hub.serve_models(hub, folder / "models", models, narrow=small)
    rehearsal_hub.reduce_work(40, folder / "data", small=small)
    chosen = [word for name in models for word in ("--model", name)]
    skip = ["--skip-unreadable"]  # a third of the videos here
    with steps("compute"):
        steps.run("ccs.batch.compute.__main__", ["--paper", *chosen, "--out", str(out), *skip])
    with steps("report"):
        report = folder / "docs" / "report"
        steps.run("ccs.batch.report", ["--results", str(out), "--out", str(report)])
    with steps("publish"):
        steps.run("ccs.batch.publish", ["--repo", REPOSITORY, "--results", str(out)])
    with steps("app"):
        app_models = _models_in_the_app(models)
    problems = [*steps.failed, *_missing_results(out, models)]
    problems += [f"the app lacks {model}" for model in models if model not in app_models]
    missing = [f"missing: {problem}" for problem in problems]
    print("\n".join([steps.summary(folder), *missing, f"{len(problems)} missing results."]))
    return int(bool(problems))


class _Steps:
    """The time of each step in seconds, and the commands that failed."""

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
        """Run a module's command in this process, and note its failure.

        Args:
            module: The module, whose `main` runs.
            argv: Its arguments.

        Raises:
            KeyboardInterrupt: If the command was interrupted.
        """
        import importlib

        command: Callable[[list[str]], int] = importlib.import_module(module).main
        if (code := command(argv)) == 130:
            raise KeyboardInterrupt
        if code:
            self.failed.append(f"{module} ended with {code}")

    def summary(self, folder: Path) -> str:
        """Format time, disk, and memory."""
        lines = [f"{name:10s} {seconds:8.1f} s" for name, seconds in self.seconds.items()]
        lines.append(f"{'all':10s} {sum(self.seconds.values()):8.1f} s")
        for part in sorted(path for path in folder.iterdir() if path.is_dir()):
            size = sum(file.lstat().st_size for file in part.rglob("*") if file.is_file())
            lines.append(f"{part.name:10s} {size / 1e6:8.1f} MB on disk")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)
        return "\n".join([*lines, f"peak memory {peak:.1f} GB"])


def _models_in_the_app(models: Sequence[str]) -> list[str]:
    """Return the models whose scores the app shows when it is started on the published results."""
    from tests.support.processes import start_app
    from tests.support.visitor import Visitor

    results = {"CCS_RESULTS": f"hf://datasets/{REPOSITORY}"}
    scored_models = []
    with start_app({**os.environ, **results}) as (url, _), Visitor(url) as visitor:
        for name in models:
            visitor.open(model=name, tab="heads")
            if visitor.figure("heads")[0]["K"]:
                scored_models.append(name)
    return scored_models


def _missing_results(out: Path, models: Sequence[str]) -> Iterator[str]:
    """Yield what is missing in the results."""
    from ccs import results
    from ccs.batch import report
    from ccs.data import SOURCES
    from ccs.results import schema

    studied = {name for name, record in SOURCES.items() if record.kind != "images" and not record.sample}
    for model in models:
        folder = out / results.folder_name(model)
        if not folder.is_dir():
            yield f"{model} has no results"
            continue
        model_results = results.read_results(folder)
        for record in model_results.manifest["absent"]:
            yield f"{model}: {record['name']} is absent: {record['reason']}"
        for name in studied - {
            record["name"] for record in [*model_results.manifest["sets"], *model_results.manifest["absent"]]
        }:
            yield f"{model}: no entry for {name}"
        for name in schema.TABLES:
            if not len(model_results.table(name)):
                yield f"{model}: the table {name} is empty"
        if unknown := int(model_results.table("scores")["ccs"].isna().sum()):
            yield f"{model}: {unknown} scores are unknown"
        ablations = set(model_results.table("pruning")["ablation"])
        layers = set(model_results.table("ccr")["layer"].dropna())
        for key in report.TABLES:
            for claim in report.claims(key):
                # Layers and concepts without high heads have no ratio and no ablation set.
                unlabeled = claim.ablation.startswith("concept:") and claim.ablation not in ablations
                if claim.layer in layers or unlabeled:
                    continue
                if claim.model == model and not report.compare_claim(claim, model_results).measured:
                    yield f"{model}: {key}, {claim.row} {claim.column} has no measured number"


main = Command(RehearsalOptions, rehearse)

if __name__ == "__main__":
    sys.exit(main())
