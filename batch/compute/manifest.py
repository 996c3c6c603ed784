"""What a run leaves besides its tables: the manifest, and a page for a person to read."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from batch.compute import inputs
from batch.compute.embed import device_memory, peak_memory
from batch.compute.outcome import Outcome
from batch.compute.processes import Processes
from ccs.results import schema
from ccs.texts import score

_PACKAGES = ("torch", "open_clip_torch", "numpy", "scipy", "pillow", "pyarrow", "pandas")
_SHOWN = ("none", "high", "low", "random")


def manifest(outcome: Outcome, tables: Mapping[str, Any], processes: Processes) -> dict[str, Any]:
    """The manifest of a model's results; its keys are those of `ccs.results.schema.MANIFEST`."""
    model, images, pool, settings = outcome.model, outcome.images, outcome.pool, outcome.settings
    return {
        "schema_version": schema.VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "tag": model.tag,
            "weights_hash": model.weights_hash,
            "layers": model.n_layers,
            "heads_a_layer": model.n_heads,
            "heads": str(model.heads),
            "dim": model.dim,
            "image_size": model.image_size,
        },
        "texts": {
            "name": pool.name,
            "fingerprint": pool.fingerprint,
            "count": len(pool.texts),
            "dropped": pool.dropped,
            "rank": model.head_dim,
        },
        "images": {
            "name": images.name,
            "fingerprint": images.fingerprint,
            "count": len(images.images),
            "source": images.source,
            "skipped": list(images.skipped),
        },
        "sets": [inputs.described(data) for data in outcome.sets],
        "labeler": outcome.labeler or {"name": settings.labeler, "stand_in": settings.labeler == "tags"},
        "judges": outcome.judges,
        "chance_ccs": outcome.chance,
        "settings": settings.described(),
        "seeds": {
            "seed": settings.seed,
            "random plans": list(range(settings.seed, settings.seed + settings.seeds)),
        },
        "versions": versions(),
        "largest_error": outcome.errors,
        "measured": measured(outcome, processes),
        "absent": [{"name": one.name, "reason": one.reason} for one in outcome.absent]
        + [{"name": "plans", "reason": notice} for notice in outcome.notices],
        "tables": dict(tables),
    }


def versions() -> dict[str, str]:
    """This project's version and those of the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for name in ("clip-ccs", *_PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def measured(outcome: Outcome, processes: Processes) -> dict[str, Any]:
    """Time, waiting and memory. Stages that were done before keep the time they took then."""
    notes = {name: stage.notes() for name, stage in outcome.stages.items()}
    images = {name: note["images"] for name, note in notes.items() if note.get("images")}
    waiting = [(note["waiting_share"], note["images"]) for note in notes.values() if note.get("images")]
    seen = sum(count for _, count in waiting)
    return {
        "seconds": _seconds(outcome),
        "images": images,
        "waiting_share": round(sum(share * count for share, count in waiting) / seen, 4) if seen else 0.0,
        "peak_memory_bytes": peak_memory(),
        "peak_device_memory_bytes": device_memory(),
        "processes": processes.size,
        "device": processes.device,
        "batch_sizes": {name: note["batch_size"] for name, note in notes.items() if "batch_size" in note},
    }


def _seconds(outcome: Outcome) -> dict[str, float]:
    """Seconds of every stage, also of those done before; a set's embedding apart from its figures."""
    found = {}
    for name, stage in outcome.stages.items():
        if "embed_seconds" in (notes := stage.notes()):
            found[name.replace("measure/", "embed/")] = round(float(notes["embed_seconds"]), 2)
        found[name] = round(stage.seconds(), 2)
    return found


def page(outcome: Outcome) -> str:
    """A model's run in a screenful."""
    model, tables = outcome.model, outcome.tables
    lines = ["", f"{model.name} ({model.architecture}, weights {model.weights_hash[:12]})"]
    seconds = sum(_seconds(outcome).values())
    lines.append(
        f"  {len(outcome.images.images)} images, {len(outcome.pool.texts)} texts, {seconds:.0f} s of stages"
    )
    if "scores" in tables:
        lines += _scores(tables["scores"], outcome.settings.all_ks, outcome.chance)
    if "pruning" in tables:
        lines += _plans(
            "accuracy (top-1)", tables["pruning"], {"metric": "top1", "subset": ""}, "dataset", 100, "%"
        )
    if "retrieval" in tables:
        chosen = {"metric": "R@1", "direction": "text-to-clip"}
        lines += _plans("retrieval (R@1, text to clip)", tables["retrieval"], chosen, "dataset", 100, "%")
    if "bias" in tables:
        for attribute in sorted({row["attribute"] for row in tables["bias"]}):
            chosen = {"metric": "MaxSkew mean", "attribute": attribute, "mode": "correct", "occupation": ""}
            lines += _plans(f"MaxSkew an occupation, {attribute}", tables["bias"], chosen, "dataset", 1, "")
    lines += _effects(tables.get("effects", ()), tables.get("correlations", ()))
    lines += [f"  note: {notice}" for notice in outcome.notices]
    stand_ins = [one["name"] for one in [outcome.labeler, *outcome.judges] if one.get("stand_in")]
    if stand_ins and "scores" in tables:
        lines.append("  Labels and verdicts are by `tags`, a stand-in that reads the pool's own concepts;")
        lines.append("  no language model was asked.")
    lines.append(f"  tables in {outcome.folder}")
    return "\n".join(lines)


def _scores(all_rows: Sequence[Mapping[str, Any]], ks: Sequence[int], chance: Sequence[float]) -> list[str]:
    by_k = {k: [row for row in all_rows if row["k"] == k] for k in ks}
    k, rows = ks[0], by_k[ks[0]]
    known = [row["ccs"] for row in rows if row["ccs"] is not None]
    shares = score.ccs_at_k(known, k)
    counts = "  ".join(f"{value}: {sum(1 for one in known if one == value)}" for value in range(k + 1))
    high = [row for row in rows if row["level"] == "high"]
    named = ", ".join(f"L{row['layer']}.H{row['head']} {row['label']}" for row in high[:8])
    lines = [
        f"  heads with CCS  {counts}" + (f"  unknown: {len(rows) - len(known)}" * (len(known) < len(rows)))
    ]
    if chance:
        expected = "  ".join(f"{value}: {len(rows) * share:.1f}" for value, share in enumerate(chance))
        lines.append(f"  with random texts    {expected}")
    if known:
        lines.append(f"  CCS@{k} (all texts agree): {shares[k]:.0%}" + (f"; {named}" if named else ""))
    further = [f"{sum(row['level'] == 'high' for row in by_k[k])} of CCS {k} at K = {k}" for k in ks[1:]]
    if further:
        lines.append(f"  heads all of whose texts agree at further K: {', '.join(further)}")
    return lines


def _plans(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    chosen: Mapping[str, Any],
    by: str,
    factor: float,
    unit: str,
) -> list[str]:
    """A line a data set: the value without pruning, and the change under high, low and random plans."""
    picked = [row for row in rows if all(row[key] == value for key, value in chosen.items())]
    if not picked:
        return []
    lines = [f"  {title}, with no head off and as changed by switching off high, low and random heads [95%]"]
    for dataset in dict.fromkeys(row[by] for row in picked):
        here = {row["plan"]: row for row in picked if row[by] == dataset and row["seed"] is None}
        if "none" not in here:
            continue
        cells = [f"{here['none']['value'] * factor:7.2f}{unit}"]
        if (chance := here["none"].get("chance")) is not None:
            low, high = here["none"]["chance_low"], here["none"]["chance_high"]
            cells.append(f"(chance {chance:.2f}, {low:.2f} to {high:.2f})")
        for plan in _SHOWN[1:]:
            if (row := here.get(plan)) is not None:
                low, high = row["difference_low"], row["difference_high"]
                between = (
                    f" [{low * factor:+.2f}, {high * factor:+.2f}]" if low is not None and low == low else ""
                )
                cells.append(f"{plan} {row['difference'] * factor:+.2f}{between}")
        lines.append(f"    {dataset:24s} " + "  ".join(cells))
    return lines


def _effects(rows: Sequence[Mapping[str, Any]], correlations: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a set and metric: direct beside total effect of the main plans, and how single heads' agree."""
    lines = []
    for one in correlations:
        if one["method"] != "spearman":
            continue
        where = (one["dataset"], one["metric"], one["factor"])
        here = {
            row["plan"]: row
            for row in rows
            if (row["dataset"], row["metric"], row["factor"]) == where and row["seed"] is None
        }
        factor, unit = (100, "%") if one["metric"] == "top1" else (1, "")
        known = [(name, here[name]) for name in _SHOWN if name in here]
        cells = [
            f"{name} {row['direct'] * factor:+.2f}{unit} / {row['total'] * factor:+.2f}{unit}"
            for name, row in known
        ]
        rho = "all heads alike"
        if one["value"] == one["value"]:
            rho = f"rho {one['value']:+.2f} [{one['low']:+.2f}, {one['high']:+.2f}], {one['n']} heads"
        lines.append(f"    {' '.join(part for part in where if part):44s} " + "  ".join([*cells, rho]))
    if lines:
        title = "direct effect (contributions subtracted) / total effect (heads at zero in the forward pass)"
        lines.insert(0, f"  {title}, and their rank correlation over single heads [95%]")
    return lines
