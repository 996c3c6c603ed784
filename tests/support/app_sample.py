"""The bundled tables of the organism with another name and other weights, and one missing verdict."""

from tests.support import results_sample

MISSING = {"judgments": {"verdict": None, "cause": "refusal"}, "scores": {"ccs": None, "level": "unknown"}}


def write_app_results(folder, model, weights, change=lambda table, rows: None):
    """Write a model's folder.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        weights: The full hash of the model's weights.
        change: Function of a table's name and its rows that may change them.

    Returns:
        The model's folder.
    """
    tables = {}
    for name, table in results_sample.bundled_tables().items():
        rows = table.astype(object).where(table.notna(), None).assign(model=model, weights=weights[:16])
        if cells := MISSING.get(name):
            of_head = (rows["layer"] == 5) & (rows["head"] == 3)
            rows.loc[of_head & (rows.get("rank", 4) == 4), [*cells]] = [*cells.values()]
        change(name, records := rows.to_dict("records"))
        tables[name] = records
    return results_sample.write_results(folder, model, tables, weights)
