"""What a model's run came to, and how it is written: tables first, the manifest last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch.compute.inputs import Absent, EvaluationSet
from batch.compute.settings import Settings
from batch.compute.stages import Stage, Store
from ccs import results
from ccs.datasets.sets import ImageSet
from ccs.errors import InputError
from ccs.model.model import Model
from ccs.results import schema
from ccs.texts.pools import Pool

Row = dict[str, Any]


@dataclass
class Outcome:
    """What a model's run came to: its tables' rows and what the manifest needs."""

    model: Model
    settings: Settings
    images: ImageSet
    pool: Pool
    sets: list[EvaluationSet]
    absent: list[Absent]
    folder: Path
    tables: dict[str, list[Row]] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    labeler: dict[str, Any] = field(default_factory=dict)
    judges: list[dict[str, Any]] = field(default_factory=list)
    chance: list[float] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def write(outcome: Outcome, manifest: Callable[[dict[str, Any]], dict[str, Any]], store: Store) -> None:
    """Write a model's tables and, last, its manifest. What else lies in the folder is set aside."""
    folder, weights = outcome.folder, outcome.model.weights_hash[:16]
    folder.mkdir(parents=True, exist_ok=True)
    ours = {f"{name}.parquet" for name in schema.TABLES} | {results.MANIFEST_FILE}
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".tmp") and path.is_file():
            path.unlink()
        elif path.name not in ours:
            store.set_aside(path, "is not a table of results")
        elif path.suffix == ".parquet" and not _readable(path):
            store.set_aside(path, "is corrupt")
        elif path.name.removesuffix(".parquet") not in outcome.tables and path.suffix == ".parquet":
            store.set_aside(path, "is of an earlier run that had more stages")
    whole = {}
    for name in schema.TABLES:
        if name in outcome.tables:
            first = {"model": outcome.model.name, "weights": weights}
            whole[name] = [first | row for row in outcome.tables[name]]
    entries = {name: results.write_table(folder, name, rows) for name, rows in whole.items()}
    results.write_manifest(folder, manifest(entries))


def _readable(path: Path) -> bool:
    try:
        results.read_table(path)
    except InputError:
        return False
    return True
