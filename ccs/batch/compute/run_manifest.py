"""The results of a run: its tables, the manifest, which is written last, and a summary."""

from __future__ import annotations

import platform
import resource
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from time import monotonic
from typing import Any

import pandas as pd

from ccs import results
from ccs.batch.compute import inputs
from ccs.batch.compute.run import Run
from ccs.batch.pages import count, in_brackets, printed
from ccs.errors import InputError
from ccs.files import disk_errors
from ccs.metrics import agreement
from ccs.results import queries, schema

_PACKAGES = ("clip-ccs", "torch", "open_clip_torch", "numpy", "scipy", "pillow", "pyarrow", "pandas")


def write(run: Run) -> str:
    """Write a model's tables and, last, its manifest, in place of those of an earlier run.

    Returns:
        A sentence on the sets whose earlier results are replaced by none, or "".
    """
    folder = run.folder
    model = {"model": run.model.name, "weights": run.model.weights_hash[:16]}
    entries, now = dict[str, Any](), manifest(run)
    try:
        earlier = [data["name"] for data in results.read_manifest(folder)["sets"]]
    except InputError:
        earlier = []
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            outdated = (
                path.stem in schema.TABLES and path.stem not in run.tables and path.suffix == ".parquet"
            )
            if outdated or (path.suffix == ".tmp" and path.is_file()):
                path.unlink()
        for name in schema.TABLES:
            if name in run.tables:
                rows = [model | row for row in run.tables[name]]
                entries[name] = results.write_table(folder, name, rows)
        results.write_manifest(folder, now | {"tables": entries})
    lost = [name for name in earlier if name not in {data.name for data in run.sets}]
    return (
        f"{folder} no longer has the earlier results of {', '.join(lost)}: name all datasets in one command; "
        "what was computed before is reused."
        if lost
        else ""
    )


def manifest(run: Run) -> dict[str, Any]:
    """Describe a model's results. The keys are those of `ccs.results.schema.MANIFEST` but `tables`."""
    model, images, pool, settings = run.model, run.images, run.pool, run.settings
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
            inputs.described(data) | ({"alike": same} if (same := run.alike.get(data.name)) else {})
            for data in run.sets
        ],
        "labeler": run.judging.labeler,
        "judges": run.judging.judges if "judgments" in run.tables else [],
        "chance_ccs": run.chance,
        "settings": settings.described(),
        "seeds": {"seed": settings.seed},
        "versions": versions(),
        "largest_error": run.errors,
        "measured": {
            "seconds": run.store.seconds,  # of the stages that this run did
            "peak_memory_bytes": peak_memory(),
            "processes": run.processes.size,
            "device": run.processes.device,
            "spent": run.judging.spent,
            **({"precision": run.precision} if run.precision else {}),
        },
        "absent": run.absent + [{"name": "ablation sets", "reason": notice} for notice in run.notices],
    }


def _fields(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def versions() -> dict[str, str]:
    """Return this project's version and those of the packages that results depend on."""
    by_package = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            by_package[name] = metadata.version(name)
    return by_package


def peak_memory() -> int:
    """Return the peak memory of this process plus that of its largest worker, in bytes."""
    peaks = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(peaks) * (1 if sys.platform == "darwin" else 1024)


# The summary --------------------------------------------------------------------------------------------


def summarize(run: Run) -> str:
    """Return a summary of a run for a person to read."""
    tables, k = results.read_results(run.folder), run.settings.k
    heads = [row for row in run.tables.get("scores", ()) if row["k"] == k]
    by_ccs = Counter(row["ccs"] for row in heads)
    sections = [
        ("accuracy (top-1)", _changes(queries.top1(tables), 100)),
        ("retrieval (R@1, text to clip)", _changes(queries.recall(tables, direction="text-to-clip"), 100)),
    ]
    for attribute, rows in queries.max_skew(tables).groupby("attribute"):
        sections.append((f"mean MaxSkew over occupations, {attribute}", _changes(rows, 1)))
    judgments = run.tables.get("judgments", ())
    verdicts: dict[str, list[bool | None]] = {}
    for row in judgments:
        verdicts.setdefault(row["judge"], []).append(row["verdict"])
    by_tags = [judge["stand_in"] for judge in run.judging.judges]
    judged = ["verdicts" if all(by_tags) else "one judge's verdicts"] * any(by_tags)
    return printed(
        "compute",
        run=run,
        seconds=monotonic() - run.started,
        heads=heads,
        judged=bool(verdicts),
        counts=[f"{value}: {by_ccs[value]}" for value in range(k + 1)],
        unknown=by_ccs[None],
        chance=[f"{value}: {len(heads) * share:.1f}" for value, share in enumerate(run.chance)],
        k=k,
        high=[f"L{row['layer']}.H{row['head']} {row['label']}" for row in heads if row["level"] == "high"],
        sections=[(title, lines) for title, lines in sections if lines],
        judges=queries.decided_by({"labeler": run.judging.labeler, "judges": run.judging.judges}),
        stand_ins=["labels"] * run.judging.labeler["stand_in"] + judged,
        pairs=agreement.judge_pairs(verdicts) if verdicts else [],
        unscored=Counter((row["judge"], row["cause"]) for row in judgments if row["verdict"] is None),
    )


def _changes(rows: pd.DataFrame, factor: int) -> list[str]:
    """Return a line per set: the metric, and its change with high, low, random, or chosen heads ablated."""
    lines = []
    for dataset in rows["dataset"].unique():
        baseline = queries.of_ablation(rows, "none", dataset).iloc[0]
        cells = [f"{baseline['value'] * factor:7.2f}{'%' if factor == 100 else ''}"]
        if "chance" in baseline:
            chance = queries.chance(baseline)
            cells.append(f"(chance {chance.value:.2f}, {chance.low:.2f} to {chance.high:.2f})")
            cells.append(f"K {baseline['k']} of {baseline['n']}, at most {baseline['ceiling']:.2f}")
        for name in ("high", "low", "random", "chosen"):
            for _, row in queries.of_ablation(rows, name, dataset).iterrows():
                change = in_brackets(queries.difference(row).times(factor), 2, "+")
                cells.append(f"{name} ({count(int(row['n_heads']), 'head')}) {change}")
        lines.append(f"{dataset:24s} " + "  ".join(cells))
    return lines
