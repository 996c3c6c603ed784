"""Made-up but valid tables for the embedded models, for tests of the app: its plumbing, not its findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ccs import results
from ccs.heads import Head, HeadSet
from tests.support.results_sample import manifest_for

CONCEPTS = ("Colors", "Places", "Animals", "Professions", "Letters", "Patterns")
JUDGES = ("tags", "second")
HEADS = tuple(Head(layer, head) for layer in range(4, 8) for head in range(6))
UNKNOWN = Head(5, 3)


def interval(value: float, width: float, name: str = "") -> dict[str, float]:
    """The three cells of an estimate."""
    low, high = (f"{name}_low", f"{name}_high") if name else ("low", "high")
    return {name or "value": value, low: value - width, high: value + width}


def rows_for(model: str, weights: str, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Rows of every table but retrieval: 24 heads, CCS 0 to 5, one head with a verdict missing."""
    rng = np.random.default_rng(seed)
    first = {"model": model, "weights": weights[:16]}
    out: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in [
            "spans",
            "labels",
            "judgments",
            "scores",
            "pruning",
            "bias",
            "heads",
            "effects",
            "correlations",
        ]
    }
    ccs_of: dict[Head, int | None] = {}
    for number, head in enumerate(HEADS):
        at = {**first, "layer": head.layer, "head": head.head}
        label, fits = CONCEPTS[number % len(CONCEPTS)], number % 6
        ccs_of[head] = None if head == UNKNOWN else fits
        out["labels"].append({**at, "label": label, "labeler": "tags"})
        shares = np.sort(rng.dirichlet(np.ones(8))[:7])[::-1]
        for rank in range(7):
            concept = label if rank < fits else CONCEPTS[(number + 1) % len(CONCEPTS)]
            text = f"{concept.lower()} text {rank} of {head}"
            out["spans"].append(
                {**at, "rank": rank, "text": text, "concept": concept, "share": float(shares[rank])}
            )
            for judge in JUDGES:
                missing = head == UNKNOWN and judge == "second" and rank == 4
                said = {
                    "verdict": None if missing else rank < fits,
                    "reason": "it fits" if rank < fits else "it does not",
                    "cause": "refusal" if missing else "",
                }
                out["judgments"].append(
                    {**at, "rank": rank, "text": text, "label": label, "judge": judge, **said}
                )
        # A further K: it is named and decides nothing.
        at_seven = {"k": 7, "ccs": None if head == UNKNOWN else fits, "level": "", "majority": fits}
        level = "unknown" if head == UNKNOWN else {5: "high", 3: "moderate", 1: "low", 0: "low"}.get(fits, "")
        out["scores"].append(
            {
                **at,
                "label": label,
                "k": 5,
                "ccs": ccs_of[head],
                "level": level,
                "majority": fits,
                "share": float(shares[:5].sum()),
                "variance": 0.01 * (number + 1),
            }
        )
        out["scores"].append({**out["scores"][-1], **at_seven})
        where = {"measure": "selectivity", "dataset": "world/images", "metric": "", "factor": "color"}
        known = {**interval(0.1 * fits, 0.1), "chance": 0.02, "p_value": None, "q_value": None}
        out["heads"].append({**at, **where, **known})
    high = HeadSet(h for h, score in ccs_of.items() if score == 5)
    low = HeadSet(h for h, score in ccs_of.items() if score in (0, 1))
    plans: list[tuple[str, int | None, HeadSet]] = [
        ("none", None, HeadSet()),
        ("high", None, high),
        ("low", None, low),
        ("high@7", None, HeadSet(HEADS[:2])),
    ]
    plans += [("random", s, HeadSet(HEADS[i] for i in rng.choice(24, 4, replace=False))) for s in range(3)]
    plans += [(f"single:{head}", None, HeadSet([head])) for head in HEADS[:6]]
    for plan, plan_seed, off in plans[1:3]:
        both = {
            name + part: 0.01 * (1 + len(part))
            for name in ("direct", "total")
            for part in ("", "_low", "_high", "_p_value")
        }
        at = {"plan": plan, "seed": plan_seed, "heads": str(off), "n_heads": len(off)}
        where = {"dataset": "world/subjects", "metric": "top1", "factor": ""}
        out["effects"].append({**first, **at, **where, **both})
    for method in ("spearman", "pearson"):
        told = {"value": 0.9, "low": 0.7, "high": 1.0, "p_value": 0.01, "n": 24, "method": method}
        where = {"dataset": "world/subjects", "metric": "top1", "factor": ""}
        out["correlations"].append({**first, "between": "direct and total effect", **where, **told})
    for plan, plan_seed, off in plans:
        drop = 0.0 if plan == "none" else float(0.02 * len(off) * rng.uniform(0.5, 1.5))
        shared = {**first, "plan": plan, "seed": plan_seed, "heads": str(off), "n_heads": len(off), "n": 300}
        for dataset in ("world/subjects", "world/occupations"):
            out["pruning"].append(
                {
                    **shared,
                    "dataset": dataset,
                    "subset": "",
                    "metric": "top1",
                    **interval(0.8 - drop, 0.05),
                    **interval(-drop, 0.02, "difference"),
                    "baseline": 0.8,
                    "p_value": 0.03,
                }
            )
        for attribute in ("gender", "skin tone"):
            for metric in ("MaxSkew mean", "MaxSkew sum"):
                scale = 20.0 if metric.endswith("sum") else 1.0
                change = 0.0 if plan == "none" else float(rng.normal(0, 0.05))
                out["bias"].append(
                    {
                        **shared,
                        "dataset": "world/faces",
                        "attribute": attribute,
                        "occupation": "",
                        "metric": metric,
                        "target": "pool",
                        "mode": "correct",
                        "k": 60,
                        **interval(scale * (0.5 + change), scale * 0.1),
                        **interval(scale * 0.09, scale * 0.02, "chance"),
                        **interval(scale * change, scale * 0.05, "difference"),
                        "baseline": scale * 0.5,
                        "p_value": 0.2,
                    }
                )
    return out


def write(folder: Path, model: str, weights: str, seed: int = 0) -> Path:
    """A model's folder with these tables and a manifest of their own; `weights` is the model's full hash."""
    target = folder / results.folder_name(model)
    rows = rows_for(model, weights, seed)
    tables = {name: results.write_table(target, name, rows[name]) for name in rows}
    manifest = manifest_for(model, tables)
    manifest["model"]["weights_hash"] = weights
    manifest["judges"] = [{"name": "tags", "stand_in": True}, {"name": "second", "stand_in": True}]
    results.write_manifest(target, manifest)
    return target
