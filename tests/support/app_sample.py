"""Made-up but valid tables for the embedded models, for tests of the app: its plumbing, not its findings."""

import numpy as np

from ccs import Head, HeadSet, results
from tests.support.results_sample import interval, manifest_for, sample_rows

CONCEPTS = ("Colors", "Places", "Animals", "Professions", "Letters", "Patterns")
JUDGES = ("tags", "second")
HEADS = tuple(Head(layer, head) for layer in range(4, 8) for head in range(6))
UNKNOWN = Head(5, 3)
LEVELS = {5: "high", 3: "moderate", 1: "low", 0: "low"}


def write(folder, model, weights, seed=0):
    """Write a model's folder with all tables but retrieval: 24 heads, CCS 0 to 5, one verdict missing.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        weights: The model's hash in full.
        seed: Seed of the made-up numbers.

    Returns:
        The model's folder.
    """
    rng = np.random.default_rng(seed)
    sample = {name: rows[0] for name, rows in sample_rows(model).items() if name != "retrieval"}
    out = {name: [] for name in sample}

    def add(table, at, **cells):
        row = {**sample[table], "weights": weights[:16], **at, **cells}
        out[table].append({name: row[name] for name in sample[table]})

    for number, head in enumerate(HEADS):
        label, fits = CONCEPTS[number % len(CONCEPTS)], number % 6
        at = {"layer": head.layer, "head": head.head, "label": label}
        shares = np.sort(rng.dirichlet(np.ones(8))[:7])[::-1].tolist()
        for rank, share in enumerate(shares):
            concept = label if rank < fits else CONCEPTS[(number + 1) % len(CONCEPTS)]
            text = {**at, "rank": rank, "text": f"{concept.lower()} text {rank} of {head}"}
            add("spans", text, concept=concept, share=share)
            for judge in JUDGES:
                missing = head == UNKNOWN and judge == "second" and rank == 4
                reason, cause = "it fits" if rank < fits else "it does not", "refusal" if missing else ""
                verdict = None if missing else rank < fits
                add("judgments", text, judge=judge, verdict=verdict, reason=reason, cause=cause)
        score = None if head == UNKNOWN else fits
        at |= {"ccs": score, "majority": fits, "share": sum(shares[:5]), "variance": 0.01 * (number + 1)}
        add("labels", {**at, "given": label})
        add("scores", at, k=5, level="unknown" if head == UNKNOWN else LEVELS.get(fits, ""))
        add("scores", at, k=7, level="")  # a further K: it is named and decides nothing
    levels = {head: LEVELS.get(i % 6) for i, head in enumerate(HEADS) if head != UNKNOWN}
    high, low = (HeadSet(h for h, level in levels.items() if level == name) for name in ("high", "low"))
    plans = [("none", None, HeadSet()), ("high", None, high), ("low", None, low)]
    plans += [("high@7", None, HeadSet(HEADS[:2]))]
    plans += [("random", s, HeadSet(HEADS[i] for i in rng.choice(24, 4, replace=False))) for s in range(3)]
    plans += [(f"single:{head}", None, HeadSet([head])) for head in HEADS[:6]]
    for plan, plan_seed, off in plans:
        at = {"ablation": plan, "seed": plan_seed, "heads": str(off), "n_heads": len(off), "n": 300}
        drop = 0.0 if plan == "none" else float(0.02 * len(off) * rng.uniform(0.5, 1.5))
        accuracy = {**interval(0.8 - drop, 0.05), **interval(-drop, 0.02, "difference"), "baseline": 0.8}
        for dataset in ("world/subjects", "world/occupations"):
            add("pruning", at, dataset=dataset, **accuracy, p_value=0.03)
        for attribute in ("gender", "skin tone"):
            for metric, scale in (("MaxSkew mean", 1.0), ("MaxSkew sum", 20.0)):
                change = 0.0 if plan == "none" else float(rng.normal(0, 0.05))
                skew = interval(scale * (0.5 + change), scale * 0.1)
                skew |= interval(scale * 0.09, scale * 0.02, "chance")
                skew |= interval(scale * change, scale * 0.05, "difference")
                skew_key = {"attribute": attribute, "occupation": "", "metric": metric}
                add("bias", {**at, **skew_key}, **skew, baseline=scale * 0.5, p_value=0.2)
    target = folder / results.folder_name(model)
    tables = {name: results.write_table(target, name, rows) for name, rows in out.items()}
    manifest = manifest_for(model, tables)
    manifest["model"]["weights_hash"], manifest["sets"][0]["templates"] = weights, ["a {}", "one {}"]
    manifest["judges"] = [{"name": "tags", "stand_in": True}, {"name": "second", "stand_in": True}]
    results.write_manifest(target, manifest)
    return target
