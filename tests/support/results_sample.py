"""Small valid tables and manifests for tests of reading, publishing and showing results."""

from ccs import results
from ccs.results import schema

KINDS = {"text": "", "int": 3, "float": 0.5, "bool": True}
VALUES = {"weights": "0123456789abcdef", "layer": 6, "head": 1, "rank": 0, "text": "a red wall"}
VALUES |= {"label": "Colors", "given": "colours", "concept": "Colors", "labeler": "tags", "judge": "tags"}
VALUES |= {"ablation": "random", "heads": "L6.H1 L7.H2", "n_heads": 2, "dataset": "world/faces"}
VALUES |= {"target": "pool"}
OF_TABLE = {
    "pruning": {"metric": "top1"},
    "retrieval": {"metric": "R@1", "direction": "text-to-clip"},
    "bias": {"metric": "MaxSkew", "attribute": "gender", "occupation": "judge", "k": 60},
    "heads": {"metric": "MaxSkew mean", "measure": "total effect", "factor": "gender"},
}


def interval(value, width, name=""):
    """Make the three cells of an estimate.

    Args:
        value: The estimate.
        width: Half of the interval's width.
        name: Name of the estimate, if it isn't `value`.

    Returns:
        The cells by column.
    """
    low, high = (f"{name}_low", f"{name}_high") if name else ("low", "high")
    return {name or "value": value, low: value - width, high: value + width}


def sample_rows(model):
    """Two rows of every table. What may be empty is so in the second."""
    rows_by_table = {}
    for name, table in schema.TABLES.items():
        plain = {
            column.name: column.one_of[0] if column.one_of else KINDS[column.kind] for column in table.columns
        }
        first = plain | {column: value for column, value in VALUES.items() if column in plain}
        first |= {"model": model, **OF_TABLE.get(name, {})}
        second = {table.name: None if table.nullable else first[table.name] for table in table.columns}
        place = "rank" if "rank" in second else "head"
        rows_by_table[name] = [first, second | ({place: first[place] + 1} if place in second else {})]
    return rows_by_table


def manifest_for(model, tables):
    """Make a complete manifest, that of the organism under another name.

    Args:
        model: Name of the model.
        tables: Entries of its tables.

    Returns:
        The manifest.
    """
    manifest = results.read_manifest(results.PRECOMPUTED / "organism")
    manifest["model"] |= {"name": model, "weights_hash": VALUES["weights"] * 4}
    return manifest | {"settings": {"k": 2}, "absent": [], "tables": tables}


def write_model(folder, model, only=tuple(schema.TABLES)):
    """Write a model's folder with two rows in each table, and its manifest.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        only: Names of the tables.

    Returns:
        The model's folder.
    """
    return write(folder, model, {name: sample_rows(model)[name] for name in only})


def write(folder, model, tables, weights=VALUES["weights"] * 4):
    """Write a model's folder with tables of given rows, and its manifest.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        tables: Rows by table.
        weights: The model's hash in full.

    Returns:
        The model's folder.
    """
    target = folder / results.folder_name(model)
    manifest = manifest_for(
        model, {name: results.write_table(target, name, rows) for name, rows in tables.items()}
    )
    manifest["model"]["weights_hash"] = weights
    results.write_manifest(target, manifest)
    return target
