"""The results of a run: its tables, the manifest, which is written last, and a summary."""

import platform
import resource
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from time import monotonic
from typing import Any

from ccs import results
from ccs.batch.compute import inputs
from ccs.batch.compute.run import Run
from ccs.batch.pages import in_brackets, printed
from ccs.cli.command_line import package_version
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError
from ccs.files import disk_errors
from ccs.results import queries, schema

_PACKAGES = ("torch", "open_clip_torch", "numpy", "scipy", "pillow", "pyarrow", "pandas")


def write_tables(run: Run) -> str:
    """Write a model's tables and, last, its manifest, in place of those of an earlier run.

    Returns:
        A sentence about sets whose earlier results are gone now, or "".
    """
    folder, now, earlier = run.folder, manifest(run), []
    with suppress(InputError):  # no earlier results
        earlier = results.read_manifest(folder)["sets"]
    lost = {data["name"] for data in earlier} - {data["name"] for data in now["sets"]}
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            outdated = path.suffix == ".parquet" and path.stem in schema.TABLES.keys() - run.tables.keys()
            if outdated or (path.suffix == ".tmp" and path.is_file()):
                path.unlink()
        model = {"model": run.model.name, "weights": run.model.weights_hash[:16]}
        now["tables"] = {
            name: results.write_table(folder, name, [model | row for row in run.tables[name]])
            for name in schema.TABLES
            if name in run.tables
        }
        results.write_manifest(folder, now)
    if not lost:
        return ""
    return (
        f"{folder} no longer has the earlier results of {', '.join(sorted(lost))}: name all datasets in one "
        "command; what was computed before is reused."
    )


def manifest(run: Run) -> dict[str, Any]:
    """Describe a model's results. The keys are those of `ccs.results.schema.MANIFEST` except `tables`."""
    model, images, pool, settings = run.model, run.images, run.pool, run.settings
    # Of this process and of its largest worker.
    peaks = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "schema_version": schema.VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": _fields(model, "name", "architecture", "tag", "weights_hash", "dim", "image_size")
        | {"layers": model.n_layers, "heads_a_layer": model.n_heads, "heads": str(model.heads)},
        "texts": _fields(pool, "name", "fingerprint", "dropped")
        | {"count": len(pool.texts), "rank": model.head_dim},
        "images": _fields(images, "name", "fingerprint", "source", "skipped", "notes")
        | {"count": len(images.images)},
        "sets": [
            _described(data) | ({"alike": same} if (same := run.alike.get(data.name)) else {})
            for data in run.sets
        ],
        "labeler": run.judging.labeler,
        "judges": run.judging.judges if "judgments" in run.tables else [],
        "chance_ccs": run.chance,
        "settings": settings.described(),
        "seeds": {"seed": settings.seed},
        "versions": {"python": platform.python_version(), "clip-ccs": package_version()}
        | {package: metadata.version(package) for package in _PACKAGES},
        "largest_error": run.errors,
        "measured": {
            "seconds": run.store.seconds,  # of the stages that this run did
            "peak_memory_bytes": sum(peaks) * (1 if sys.platform == "darwin" else 1024),
            "processes": run.processes.size,
            "device": run.processes.device,
            "spent": run.judging.spent,
            **({"precision": run.precision} if run.precision else {}),
        },
        "absent": run.absent + [{"name": "ablation sets", "reason": notice} for notice in run.notices],
    }


def _described(data: inputs.EvaluationSet) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": data.name, "kind": "retrieval", "count": len(inputs.items(data))}
    if isinstance(data, ClassificationSet):
        entry |= {"kind": "classification", "classes": len(data.classes), "templates": [*data.templates]}
    elif isinstance(data, BiasSet):
        entry |= {"kind": "bias", "occupations": len(data.occupations), "k": dict(data.k)}
        entry["templates"] = [*data.templates]
    return entry | _fields(data, "fingerprint", "source", "skipped", "notes")


def _fields(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


# The summary --------------------------------------------------------------------------------------------


def summarize(run: Run) -> str:
    """Return a summary of a run for a person to read."""
    judgments, deciders = run.tables["judgments"], [run.judging.labeler, *run.judging.judges]
    heads = [row for row in run.tables["scores"] if row["k"] == run.settings.k]
    return printed(
        "compute",
        run=run,
        seconds=monotonic() - run.started,
        heads=heads,
        by_ccs=Counter(row["ccs"] for row in heads),
        k=run.settings.k,
        high=[f"L{row['layer']}.H{row['head']} {row['label']}" for row in heads if row["level"] == "high"],
        effects=_effects(results.read_results(run.folder)),
        judged=bool(judgments),
        judges=queries.decided_by({"labeler": run.judging.labeler, "judges": run.judging.judges}),
        by_tags=sum(decider["stand_in"] for decider in deciders),
        unscored=Counter((row["judge"], row["cause"]) for row in judgments if row["verdict"] is None),
    )


def _effects(model_results: results.Results) -> list[dict[str, str]]:
    """Return a row per set and metric: its value, and its change under each ablation that was measured."""
    frames = {"accuracy": queries.top1(model_results)}
    frames["R@1"] = queries.recall(model_results)
    for attribute, of_attribute in queries.max_skew(model_results).groupby("attribute"):
        frames[f"MaxSkew by {attribute}"] = of_attribute
    rows = []
    for metric, frame in frames.items():
        for dataset, of_dataset in frame.groupby("dataset", sort=False):
            row = {"dataset": str(dataset), "metric": metric}
            for name in ("none", "high", "low", "random", "chosen"):
                measured = queries.of_ablation(of_dataset, name).to_dict("records")
                cells = [in_brackets(queries.difference(cell), 2, "+") for cell in measured]
                row[name] = f"{measured[0]['value']:.2f}" if name == "none" else "".join(cells)
            rows.append(row)
    return [{name: cell for name, cell in row.items() if any(other[name] for other in rows)} for row in rows]
