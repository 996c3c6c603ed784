"""The results of a run: its tables, written first, the manifest, written last, and a page to read."""

from __future__ import annotations

import json
import math
import platform
import resource
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import monotonic
from typing import Any

import pandas as pd

from ccs import results
from ccs.batch.compute import inputs
from ccs.batch.compute.run import Run
from ccs.errors import InputError
from ccs.files import disk_errors
from ccs.measures import agreement
from ccs.measures.stats import signed
from ccs.results import queries, schema

_PACKAGES = ("clip-ccs", "torch", "open_clip_torch", "numpy", "scipy", "pillow", "pyarrow", "pandas")

Row = Mapping[str, Any]


def write(run: Run) -> list[str]:
    """Write a model's tables and, last, its manifest; sentences on earlier tables that were there.

    Figures of other sets stay if they were made with the same images, texts, labels and settings. All else of
    an earlier run is replaced, and said.
    """
    folder = run.folder
    about = {"model": run.model.name, "weights": run.model.weights_hash[:16]}
    made = {name: [about | row for row in rows] for name, rows in run.tables.items()}
    now = json.loads(json.dumps(manifest(run, {})))  # as the earlier one is read
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
_SAME_SETTINGS = ("k", "further_k", "random_sets", "as_published", "precision", "layers", "off")
_OF_SETS = ("pruning", "retrieval", "bias", "heads")
"""Tables whose rows are of one evaluation set each."""


def _add_earlier(folder: Path, made: dict[str, list[dict[str, Any]]], now: dict[str, Any]) -> list[str]:
    """Add to these tables and manifest what stays of the folder's earlier ones; sentences that say so."""
    try:
        found = results.read(folder)
    except InputError:
        return []
    before, names = found.manifest, {one["name"] for one in now["sets"]}
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
        rows = found.table(name)
        plain = rows["dataset"].str.removesuffix(schema.ONE_POOL).str.removesuffix(" (as-published)")
        if len(rows := rows[plain.isin(kept)]):
            earlier: list[dict[Any, Any]] = rows.astype(object).to_dict("records")
            made[name] = [*earlier, *made.get(name, [])]
    now["sets"] = [*others, *now["sets"]]
    now["measured"]["seconds"] = before["measured"].get("seconds", {}) | now["measured"]["seconds"]
    return told


def manifest(run: Run, tables: Mapping[str, Any]) -> dict[str, Any]:
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
        "measured": measured(run),
        "absent": run.absent + [{"name": "plans", "reason": notice} for notice in run.notices],
        "tables": dict(tables),
    }


def _named(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def versions() -> dict[str, str]:
    """This project's version and those of the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def measured(run: Run) -> dict[str, Any]:
    """Time and memory. Stages that were done before keep the time that they took then."""
    return {
        "seconds": run.store.seconds(),
        "peak_memory_bytes": peak_memory(),
        "processes": run.processes.size,
        "device": run.processes.device,
    }


def peak_memory() -> int:
    """The most memory this process has held, in bytes, and its largest worker's."""
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return int(own.ru_maxrss + workers.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


# The page -----------------------------------------------------------------------------------------------


def page(run: Run) -> str:
    """A summary of a model's results, in a screenful."""
    model, found = run.model, results.read(run.folder)
    lines = ["", f"{model.name} ({model.architecture}, weights {model.weights_hash[:12]})"]
    size = f"{len(run.images.images)} images, {len(run.pool.texts)} texts"
    lines.append(f"  {size}, {monotonic() - run.started:.0f} s")
    if "scores" in run.tables:
        lines += _scores(run.tables["scores"], run.settings.k, run.chance)
    lines += _plans("accuracy (top-1)", queries.top1(found), "%")
    recall = queries.recall(found, direction="text-to-clip")
    lines += _plans("retrieval (R@1, text to clip)", recall, "%")
    for attribute, rows in queries.max_skew(found).groupby("attribute"):
        lines += _plans(f"mean MaxSkew over occupations, {attribute}", rows, "")
    lines += [f"  note: {notice}" for notice in run.notices]
    if "scores" in run.tables:
        lines += _judged(run)
    lines.append(f"  tables in {run.folder}")
    return "\n".join(lines)


def _judged(run: Run) -> list[str]:
    """Who labeled and judged, how far the judges agree, and what they left without a verdict, with causes."""
    asked, rows = [run.judging.labeler, *run.judging.judges], run.tables["judgments"]
    lines = []
    if not rows:
        return []
    if all(one["stand_in"] for one in asked):
        lines.append("  Labels and verdicts are by `tags`, a stand-in that reads the pool's own concepts;")
        lines.append("  no language model was asked.")
    elif any(one["stand_in"] for one in asked):
        parts = ["labels"] * run.judging.labeler["stand_in"]
        parts += ["one judge's verdicts"] * any(one["stand_in"] for one in asked[1:])
        lines.append(f"  By `tags`, a stand-in that reads the pool's own concepts: {' and '.join(parts)}.")
    else:
        lines.append(f"  {queries.decided_by({'labeler': asked[0], 'judges': asked[1:]})}")
    verdicts: dict[str, list[bool | None]] = {}
    for row in rows:
        verdicts.setdefault(row["judge"], []).append(row["verdict"])
    lines += [
        f"  {pair.left} and {pair.right}: kappa {pair.cohen_kappa:.2f} over {pair.n} texts"
        for pair in (agreement.judge_pairs(verdicts) if verdicts else ())
    ]
    unscored = Counter((row["judge"], row["cause"]) for row in rows if row["verdict"] is None)
    lines += [f"  {judge} left {n} texts unscored: {cause}" for (judge, cause), n in unscored.items()]
    return lines


def _scores(every: Sequence[Row], k: int, chance: Sequence[float]) -> list[str]:
    rows = [row for row in every if row["k"] == k]
    known = [row["ccs"] for row in rows if row["ccs"] is not None]
    if not known:
        return ["  CCS: not scored, no judge: no text has a concept and no language model answered"]
    counts = "  ".join(f"{value}: {known.count(value)}" for value in range(k + 1))
    unknown = f"  unknown: {len(rows) - len(known)}" if len(known) < len(rows) else ""
    lines = [f"  heads with CCS  {counts}{unknown}"]
    if chance:
        expected = "  ".join(f"{value}: {len(rows) * share:.1f}" for value, share in enumerate(chance))
        lines.append(f"  expected of random texts  {expected}")
    high = [f"L{row['layer']}.H{row['head']} {row['label']}" for row in rows if row["level"] == "high"]
    if high:
        more = f" and {len(high) - 8} more" if len(high) > 8 else ""
        lines.append(f"  high heads (all {k} texts agree): {', '.join(high[:8])}{more}")
    return lines


def _plans(title: str, rows: pd.DataFrame, unit: str) -> list[str]:
    """A line per data set: the value without pruning, and the change under high, low and random plans."""
    factor = 100 if unit else 1
    lines = [
        f"  {title}: with no head off, and its change with heads off [95% interval; of random, the middle "
        "95% of its sets]"
    ]
    for dataset in rows["dataset"].unique():
        none = queries.of_plan(rows, "none", dataset).iloc[0]
        cells = [f"{none['value'] * factor:7.2f}{unit}"]
        if "chance" in none:
            chance = queries.chance(none)
            cells.append(f"(chance {chance.value:.2f}, {chance.low:.2f} to {chance.high:.2f})")
            cells.append(f"K {none['k']} of {none['n']}, at most {none['ceiling']:.2f}")
        for plan in ("high", "low", "random", "chosen"):
            for _, row in queries.of_plan(rows, plan, dataset).iterrows():
                change = queries.difference(row)
                by, low, high = (signed(one * factor, 2) for one in (change.value, change.low, change.high))
                between = "" if math.isnan(change.low) else f" [{low}, {high}]"
                heads = int(row["n_heads"])
                cells.append(f"{plan} ({heads} head{'s' * (heads != 1)}) {by}{between}")
        lines.append(f"    {dataset:24s} " + "  ".join(cells))
    return lines if len(rows) else []
