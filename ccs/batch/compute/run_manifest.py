"""The results of a run: its tables, the manifest, which is written last, and a summary."""

from __future__ import annotations

import json
import platform
import resource
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
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


def write(run: Run) -> list[str]:
    """Write a model's tables and, last, its manifest.

    Results of other sets stay if they were made with the same images, texts, labels, and settings; all others
    are replaced.

    Returns:
        Sentences on the tables that were there before.
    """
    folder = run.folder
    model = {"model": run.model.name, "weights": run.model.weights_hash[:16]}
    tables = {name: [model | row for row in rows] for name, rows in run.tables.items()}
    now = json.loads(json.dumps(manifest(run)))  # as the earlier one is read
    sentences = _add_earlier(folder, tables, now)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        ours = {f"{name}.parquet" for name in schema.TABLES}
        for path in sorted(folder.iterdir()):
            left_over = path.name.endswith(".tmp") and path.is_file()
            if left_over or (path.name in ours and path.stem not in tables):
                path.unlink()
        now["tables"] = {
            name: results.write_table(folder, name, tables[name]) for name in schema.TABLES if name in tables
        }
        results.write_manifest(folder, now)
    return sentences


_SAME = ("model", "texts", "images", "labeler", "judges", "chance_ccs", "seeds")
_SAME_SETTINGS = ("k", "further_k", "random_sets", "as_published", "precision", "layers", "ablate")
_OF_SETS = ("pruning", "retrieval", "bias", "heads")
"""Tables whose rows are of one evaluation set each."""


def _add_earlier(folder: Path, tables: dict[str, list[dict[str, Any]]], now: dict[str, Any]) -> list[str]:
    """Add what stays of the folder's earlier tables and manifest to these; return sentences on that."""
    try:
        earlier = results.read(folder)
    except InputError:
        return []
    before, names = earlier.manifest, {data["name"] for data in now["sets"]}
    kept_sets = [data for data in before["sets"] if data["name"] not in names]
    differs = [key for key in _SAME if before[key] != now[key]]
    differs += [key for key in _SAME_SETTINGS if before["settings"].get(key) != now["settings"][key]]
    replaced = [
        data["name"]
        for data in before["sets"]
        if differs or (data["name"] in names and data not in now["sets"])
    ]
    sentences = []
    if replaced:
        reason = f" (other {', '.join(differs)})" if differs else ""
        sentences.append(f"Replaced in {folder}: the earlier results of {', '.join(replaced)}{reason}.")
    if differs or not kept_sets:
        return sentences
    kept_names = {data["name"] for data in kept_sets}
    sentences.append(f"Kept in {folder}: the earlier results of {', '.join(sorted(kept_names))}.")
    for name in _OF_SETS:
        rows = earlier.table(name)
        plain = rows["dataset"].str.removesuffix(schema.ONE_POOL).str.removesuffix(schema.AS_PUBLISHED)
        if len(rows := rows[plain.isin(kept_names)]):
            earlier_rows: list[dict[Any, Any]] = rows.astype(object).to_dict("records")
            tables[name] = [*earlier_rows, *tables.get(name, [])]
    now["sets"] = [*kept_sets, *now["sets"]]
    now["measured"]["seconds"] = before["measured"].get("seconds", {}) | now["measured"]["seconds"]
    return sentences


def manifest(run: Run) -> dict[str, Any]:
    """Describe a model's results. The keys are those of `ccs.results.schema.MANIFEST`."""
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
        "seeds": {"seed": settings.seed, "random plans": settings.seed},
        "versions": versions(),
        "largest_error": run.errors,
        "measured": {
            "seconds": run.store.seconds(),  # of stages that were done before, what they took then
            "peak_memory_bytes": peak_memory(),
            "processes": run.processes.size,
            "device": run.processes.device,
            "spent": run.judging.spent,
            **({"precision": run.precision} if run.precision else {}),
        },
        "absent": run.absent + [{"name": "ablation sets", "reason": notice} for notice in run.notices],
        "tables": {},
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


# The page -----------------------------------------------------------------------------------------------


def page(run: Run) -> str:
    """Return a summary of a run for a person to read."""
    read, k = results.read(run.folder), run.settings.k
    heads = [row for row in run.tables.get("scores", ()) if row["k"] == k]
    known = Counter(row["ccs"] for row in heads)
    figures = [
        ("accuracy (top-1)", _plans(queries.top1(read), 100)),
        ("retrieval (R@1, text to clip)", _plans(queries.recall(read, direction="text-to-clip"), 100)),
    ]
    for attribute, rows in queries.max_skew(read).groupby("attribute"):
        figures.append((f"mean MaxSkew over occupations, {attribute}", _plans(rows, 1)))
    verdicts: dict[str, list[bool | None]] = {}
    for row in run.tables.get("judgments", ()):
        verdicts.setdefault(row["judge"], []).append(row["verdict"])
    by_tags = [judge["stand_in"] for judge in run.judging.judges]
    judged = ["verdicts" if all(by_tags) else "one judge's verdicts"] * any(by_tags)
    return printed(
        "compute",
        run=run,
        seconds=monotonic() - run.started,
        heads=heads,
        judged=bool(verdicts),
        counts=[f"{value}: {known[value]}" for value in range(k + 1)],
        unknown=known[None],
        chance=[f"{value}: {len(heads) * share:.1f}" for value, share in enumerate(run.chance)],
        k=k,
        high=[f"L{row['layer']}.H{row['head']} {row['label']}" for row in heads if row["level"] == "high"],
        figures=[(title, lines) for title, lines in figures if lines],
        judges=queries.decided_by({"labeler": run.judging.labeler, "judges": run.judging.judges}),
        stand_ins=["labels"] * run.judging.labeler["stand_in"] + judged,
        pairs=agreement.judge_pairs(verdicts) if verdicts else [],
        unscored=Counter(
            (row["judge"], row["cause"]) for row in run.tables.get("judgments", ()) if row["verdict"] is None
        ),
    )


def _plans(rows: pd.DataFrame, factor: int) -> list[str]:
    """Return a line per set: the metric, and its change with high, low, random, or chosen heads ablated."""
    lines = []
    for dataset in rows["dataset"].unique():
        none = queries.of_ablation(rows, "none", dataset).iloc[0]
        cells = [f"{none['value'] * factor:7.2f}{'%' if factor == 100 else ''}"]
        if "chance" in none:
            chance = queries.chance(none)
            cells.append(f"(chance {chance.value:.2f}, {chance.low:.2f} to {chance.high:.2f})")
            cells.append(f"K {none['k']} of {none['n']}, at most {none['ceiling']:.2f}")
        for plan in ("high", "low", "random", "chosen"):
            for _, row in queries.of_ablation(rows, plan, dataset).iterrows():
                change = in_brackets(queries.difference(row).times(factor), 2, "+")
                cells.append(f"{plan} ({count(int(row['n_heads']), 'head')}) {change}")
        lines.append(f"{dataset:24s} " + "  ".join(cells))
    return lines
