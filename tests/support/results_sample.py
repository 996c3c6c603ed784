"""Small valid tables and manifests for tests of reading, publishing and showing results."""

from functools import cache

from ccs import results
from ccs.results import schema

HASH = "0123456789abcdef" * 4


@cache
def bundled_tables():
    """Read the tables of the organism."""
    return results.read_results(results.PRECOMPUTED / "organism").tables


def interval_cells(value, width, name=""):
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
    """Make two rows of every table from a bundled table; the second has empty cells where allowed."""
    rows_by_table = {}
    for name, table in schema.TABLES.items():
        first = bundled_tables()[name].dropna().iloc[0].to_dict() | {"model": model, "weights": HASH[:16]}
        second = first | {column.name: None for column in table.columns if column.nullable}
        place = "rank" if "rank" in second else "head"
        rows_by_table[name] = [first, second | ({place: first[place] + 1} if place in second else {})]
    return rows_by_table


def make_manifest(model, tables):
    """Make a complete manifest from the organism's, with another name.

    Args:
        model: Name of the model.
        tables: Entries of its tables.

    Returns:
        The manifest.
    """
    manifest = results.read_manifest(results.PRECOMPUTED / "organism")
    manifest["model"] |= {"name": model, "weights_hash": HASH}
    return manifest | {"settings": {"k": 2}, "absent": [], "tables": tables}


def write_sample_results(folder, model, only=tuple(schema.TABLES)):
    """Write a model's folder with two rows in each table, and its manifest.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        only: Names of the tables.

    Returns:
        The model's folder.
    """
    return write_results(folder, model, {name: sample_rows(model)[name] for name in only})


def write_results(folder, model, tables, weights=HASH):
    """Write a model's folder with tables of given rows, and its manifest.

    Args:
        folder: Folder of the results.
        model: Name of the model.
        tables: Rows by table.
        weights: The full hash of the model's weights.

    Returns:
        The model's folder.
    """
    target = folder / results.folder_name(model)
    manifest = make_manifest(
        model, {name: results.write_table(target, name, rows) for name, rows in tables.items()}
    )
    manifest["model"]["weights_hash"] = weights
    results.write_manifest(target, manifest)
    return target
