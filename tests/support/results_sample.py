"""Small valid tables and manifests for tests of reading, publishing and showing results."""

from ccs import results
from ccs.results import schema


def interval(value, width, name=""):
    """The three cells of an estimate."""
    low, high = (f"{name}_low", f"{name}_high") if name else ("low", "high")
    return {name or "value": value, low: value - width, high: value + width}


def sample_rows(model):
    """Two rows or so of every table."""
    first = {"model": model, "weights": "0123456789abcdef"}
    head = {**first, "layer": 6, "head": 1}
    interval = {"value": 0.5, "low": 0.4, "high": None}
    plan = {**first, "plan": "random", "seed": 3, "heads": "L6.H1 L7.H2", "n_heads": 2}
    plan |= {"dataset": "world/faces"}
    against = {"n": 100, "baseline": 0.75, "difference": -0.25, "difference_low": -0.5}
    against |= {"difference_high": None, "p_value": 0.01}
    judged = {**head, "label": "Colors", "judge": "tags", "reason": "", "cause": ""}
    score = {**head, "k": 2, "share": 0.75, "variance": 0.1}
    chance = {"chance": 0.1, "chance_low": 0.05, "chance_high": 0.2}
    return {
        "spans": [
            {**head, "rank": 0, "text": "a red wall", "concept": "Colors", "share": 0.5},
            {**head, "rank": 1, "text": "a blue wall", "concept": None, "share": 0.25},
        ],
        "labels": [
            {**head, "label": "Colors", "given": "colours", "labeler": "tags"},
            {**head, "head": 2, "label": None, "given": None, "labeler": "tags"},
        ],
        "judgments": [
            {**judged, "rank": 0, "text": "a red wall", "verdict": True},
            {**judged, "rank": 1, "text": "a blue wall", "verdict": None, "cause": "refusal"},
        ],
        "scores": [
            {**score, "label": "Colors", "ccs": 2, "level": "high", "majority": 2},
            {**score, "head": 2, "label": None, "ccs": None, "level": "unknown", "majority": None},
        ],
        "ccr": [
            {**first, "layer": layer, "labels": "as given", "high": high, "shared": 0}
            | {"ccr": 0.0 if high else None}
            for layer, high in ((None, 1), (3, 1), (4, 0))
        ],
        "pruning": [{**plan, "subset": "", "metric": "top1", **interval, **against}],
        "retrieval": [{**plan, "direction": "text-to-clip", "metric": "R@1", **interval, **against}],
        "bias": [
            {**plan, "attribute": "gender", "occupation": occupation, "metric": "MaxSkew", "target": "pool"}
            | {"mode": "correct", "k": 60, "ceiling": 0.7, **interval, **chance, **against}
            for occupation in ("judge", "pilot")
        ],
        "heads": [
            {**head, "measure": "total effect", "dataset": "world/faces", "metric": "MaxSkew mean"}
            | {"factor": "gender", **interval, "p_value": 0.1, "q_value": 0.2}
        ],
    }


def manifest_for(model, tables):
    """A complete manifest, as batch.compute writes one."""
    return {
        "schema_version": schema.VERSION,
        "created": "2026-11-21T00:00:00+00:00",
        "model": {"name": model, "architecture": "ViT-tiny", "tag": ""}
        | {"weights_hash": "0123456789abcdef" * 4},
        "texts": {"name": "world", "fingerprint": "aa", "count": 600, "dropped": 0},
        "images": {"name": "world/images", "fingerprint": "bb", "count": 2000, "source": "drawn"}
        | {"skipped": []},
        "sets": [
            {"name": "world/faces", "kind": "bias", "fingerprint": "cc", "count": 100, "source": "drawn"}
        ],
        "labeler": {"name": "tags", "stand_in": True},
        "judges": [{"name": "tags", "stand_in": True}],
        "chance_ccs": [0.0, 0.2, 0.6, 0.15, 0.04, 0.01],
        "settings": {"k": 2},
        "seeds": {"seed": 0},
        "versions": {"clip-ccs": "0.1.0"},
        "largest_error": {"plan": 1e-6, "mean MaxSkew in bf16": 0.0125},
        "measured": {"seconds": {"moments": 1.0}},
        "absent": [],
        "tables": tables,
    }


def write_model(folder, model, only=tuple(schema.TABLES)):
    """A model's folder with these tables and its manifest."""
    return write(folder, model, {name: sample_rows(model)[name] for name in only})


def write(folder, model, tables):
    """The same with tables of these rows."""
    target = folder / results.folder_name(model)
    entries = {name: results.write_table(target, name, rows) for name, rows in tables.items()}
    results.write_manifest(target, manifest_for(model, entries))
    return target
