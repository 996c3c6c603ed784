"""The bundled tables of the organism under other names and weights, with one verdict missing."""

from functools import cache

from ccs import results
from tests.support.results_sample import manifest_for

MISSING = {"judgments": {"verdict": None, "cause": "refusal"}, "scores": {"ccs": None, "level": "unknown"}}


@cache
def _bundled():
    tables = results.read_results(results.PRECOMPUTED / "organism").tables
    return {name: table.astype(object).where(table.notna(), None) for name, table in tables.items()}


def write(folder, model, weights):
    """Write a model's folder.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        weights: The model's hash in full.

    Returns:
        The model's folder.
    """
    target, entries = folder / results.folder_name(model), {}
    for name, table in _bundled().items():
        rows = table.assign(model=model, weights=weights[:16])
        if cells := MISSING.get(name):
            of_head = (rows["layer"] == 5) & (rows["head"] == 3)
            rows.loc[of_head & (rows.get("rank", 4) == 4), [*cells]] = [*cells.values()]
        entries[name] = results.write_table(target, name, rows.to_dict("records"))
    manifest = manifest_for(model, entries)
    manifest["model"]["weights_hash"], manifest["sets"][0]["templates"] = weights, ["a {}", "one {}"]
    results.write_manifest(target, manifest)
    return target
