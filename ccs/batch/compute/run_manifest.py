"""The results of a run: its tables, written first, the manifest, written last, and a page to read."""

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
    """Write a model's tables and, last, its manifest; sentences on earlier tables that were there. Figures of
    other sets stay if they were made with the same images, texts, labels and settings; all else is replaced.
    """
    folder = run.folder
    about = {"model": run.model.name, "weights": run.model.weights_hash[:16]}
    made = {name: [about | row for row in rows] for name, rows in run.tables.items()}
    now = json.loads(json.dumps(manifest(run)))  # as the earlier one is read
    told = _add_earlier(folder, made, now)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        ours = {f"{name}.parquet" for name in schema.TABLES}
        for path in sorted(folder.iterdir()):
            left = path.name.endswith(".tmp") and path.is_file()
            if left or (path.name in ours and path.stem not in made):
                path.unlink()
        now["tables"] = {
            name: results.write_table(folder, name, made[name]) for name in schema.TABLES if name in made
        }
        results.write_manifest(folder, now)
    return told


_SAME = ("model", "texts", "images", "labeler", "judges", "chance_ccs", "seeds")
_SAME_SETTINGS = ("k", "further_k", "random_sets", "as_published", "precision", "layers", "ablate")
_OF_SETS = ("pruning", "retrieval", "bias", "heads")
"""Tables whose rows are of one evaluation set each."""


def _add_earlier(folder: Path, made: dict[str, list[dict[str, Any]]], now: dict[str, Any]) -> list[str]:
    """Add to these tables and manifest what stays of the folder's earlier ones; sentences that say so."""
    try:
        there = results.read(folder)
    except InputError:
        return []
    before, names = there.manifest, {one["name"] for one in now["sets"]}
    others = [one for one in before["sets"] if one["name"] not in names]
    differs = [key for key in _SAME if before[key] != now[key]]
    differs += [key for key in _SAME_SETTINGS if before["settings"].get(key) != now["settings"][key]]
    gone = [
        one["name"] for one in before["sets"] if differs or (one["name"] in names and one not in now["sets"])
    ]
    told = []
    if gone:
        why = f" (other {', '.join(differs)})" if differs else ""
        told.append(f"Replaced in {folder}: the earlier figures of {', '.join(gone)}{why}.")
    if differs or not others:
        return told
    kept = {one["name"] for one in others}
    told.append(f"Kept in {folder}: the earlier figures of {', '.join(sorted(kept))}.")
    for name in _OF_SETS:
        rows = there.table(name)
        plain = rows["dataset"].str.removesuffix(schema.ONE_POOL).str.removesuffix(schema.AS_PUBLISHED)
        if len(rows := rows[plain.isin(kept)]):
            earlier: list[dict[Any, Any]] = rows.astype(object).to_dict("records")
            made[name] = [*earlier, *made.get(name, [])]
    now["sets"] = [*others, *now["sets"]]
    now["measured"]["seconds"] = before["measured"].get("seconds", {}) | now["measured"]["seconds"]
    return told


def manifest(run: Run) -> dict[str, Any]:
    """The manifest of a model's results; its keys are those of `ccs.results.schema.MANIFEST`."""
    model, images, pool, settings = run.model, run.images, run.pool, run.settings
    return {
        "schema_version": schema.VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": _named(model, "name", "architecture", "tag", "weights_hash", "dim", "image_size")
        | {"layers": model.n_layers, "heads_a_layer": model.n_heads, "heads": str(model.heads)},
        "texts": _named(pool, "name", "fingerprint", "dropped")
        | {"count": len(pool.texts), "rank": model.head_dim},
        "images": _named(images, "name", "fingerprint", "source", "skipped") | {"count": len(images.images)},
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
        },
        "absent": run.absent + [{"name": "plans", "reason": notice} for notice in run.notices],
        "tables": {},
    }


def _named(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def versions() -> dict[str, str]:
    """This project's version and those of the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def peak_memory() -> int:
    """The most memory this process has held, in bytes, and its largest worker's."""
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return int(own.ru_maxrss + workers.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


# The page -----------------------------------------------------------------------------------------------


def page(run: Run) -> str:
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
    """A line per data set: the value without pruning, and the change under high, low and random plans."""
    lines = []
    for dataset in rows["dataset"].unique():
        none = queries.of_plan(rows, "none", dataset).iloc[0]
        cells = [f"{none['value'] * factor:7.2f}{'%' if factor == 100 else ''}"]
        if "chance" in none:
            chance = queries.chance(none)
            cells.append(f"(chance {chance.value:.2f}, {chance.low:.2f} to {chance.high:.2f})")
            cells.append(f"K {none['k']} of {none['n']}, at most {none['ceiling']:.2f}")
        for plan in ("high", "low", "random", "chosen"):
            for _, row in queries.of_plan(rows, plan, dataset).iterrows():
                change = in_brackets(queries.difference(row).times(factor), 2, "+")
                cells.append(f"{plan} ({count(int(row['n_heads']), 'head')}) {change}")
        lines.append(f"{dataset:24s} " + "  ".join(cells))
    return lines
