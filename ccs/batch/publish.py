"""Publish results as a dataset on the Hub: `clip-ccs publish --repo USER/NAME`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from huggingface_hub import DatasetCard, DatasetCardData

from ccs import results
from ccs.batch.leaderboard import PAPER
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs.files import one_line, write_text
from ccs.results import Results, schema, searches
from ccs.results.hub_repository import Repository

_CARD = Path(__file__).with_name("card.md")

Manifest = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Publish results as a dataset on the Hub, and print the address of exactly these results.

    Results of other models in the dataset are left unchanged.
    """

    repo: Annotated[str, options.OUTPUT]
    """Dataset on the Hub, USER/NAME"""
    results: options.ResultsFolder = None
    public: options.Public = False


def publish(settings: PublishOptions) -> None:
    """Publish all results of the folder, and print their address."""
    folder, name = settings.results or results.default_folder(), settings.repo
    print(f"Results: {folder}", file=sys.stderr)
    published = complete_results(folder)
    repository = Repository(name, "dataset")
    manifests = {subfolder: result.manifest for subfolder, result in published.items()}
    manifests |= other_manifests(repository, manifests)
    with TemporaryDirectory() as scratch:
        copy_results(published, Path(scratch))
        write_text(Path(scratch) / "README.md", dataset_card(name, manifests))
        names = ", ".join(sorted(result.model for result in published.values()))
        owned = [f"{subfolder}/*" for subfolder in published]
        commit = repository.push(Path(scratch), f"Results of {names}", public=settings.public, owned=owned)
    print(f"Published as hf://datasets/{name}@{commit}.")


def complete_results(folder: Path) -> dict[str, Results]:
    """Return the results of all models by their folder's name. Raises InputError if any is incomplete."""
    collection = results.read_all(folder, str(folder))
    for notice in collection.notices:
        raise InputError(f"Nothing was published, because the results must be complete: {notice}")
    if not collection.models:
        raise InputError(f"{folder} holds no results; compute some with clip-ccs compute.")
    return {results.folder_name(name): model_results for name, model_results in collection.models.items()}


def copy_results(published: Mapping[str, Results], folder: Path) -> None:
    """Copy the files of results, and of searches next to them, to a folder.

    Args:
        published: Results by name of the model's folder.
        folder: The destination.
    """
    for name, result in published.items():
        (folder / name).mkdir()
        for file in (*(f"{table}.parquet" for table in result.tables), results.MANIFEST_FILE):
            shutil.copy(result.folder / file, folder / name)
        path = searches.place(result.folder.parent, result.model)
        if path.exists():
            shutil.copy(path, folder)


def other_manifests(repository: Repository, published: Collection[str]) -> dict[str, Manifest]:
    """Return the manifests of the dataset's other models.

    Args:
        repository: The dataset.
        published: Names of the folders to leave out.

    Raises:
        InputError: If one follows another version of the schema.
    """
    manifests: dict[str, Manifest] = {}
    for path in repository.files:
        folder, _, name = path.partition("/")
        if name == results.MANIFEST_FILE and folder not in published:
            manifests[folder] = schema.parse_manifest(repository.fetch(path), f"{repository.name}/{path}")
    return manifests


def dataset_card(repository: str, manifests: Mapping[str, Manifest]) -> str:
    """Return the dataset's card, with a configuration for each table that a model has.

    Args:
        repository: The dataset, USER/NAME.
        manifests: Manifests of all models in it.
    """
    models = sorted(manifests.values(), key=lambda manifest: str(manifest["model"]["name"]))
    rows = {
        name: sum(int(manifest["tables"].get(name, {}).get("rows", 0)) for manifest in models)
        for name in schema.TABLES
        if any(name in manifest["tables"] for manifest in models)
    }
    configs = [
        {"config_name": name, "data_files": f"*/{name}.parquet", "default": name == "scores"} for name in rows
    ]
    tags = ["clip", "interpretability", "fairness", PAPER]
    judges = [judge for manifest in models for judge in (manifest["labeler"], *manifest["judges"])]
    card = DatasetCard.from_template(
        DatasetCardData(license="mit", tags=tags, configs=configs),
        template_path=str(_CARD),
        repository=repository,
        tables=[{"name": name, "meaning": schema.TABLES[name].meaning, "rows": rows[name]} for name in rows],
        models=_on_one_line(models),
        stand_in=any(judge.get("stand_in") for judge in judges),
    )
    return str(card)


def _on_one_line(value: Any) -> Any:
    """Return a manifest with each text on one line."""
    if isinstance(value, dict):
        return {one_line(str(name)): _on_one_line(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_on_one_line(item) for item in value]
    return one_line(value) if isinstance(value, str) else value


main = Command(
    PublishOptions,
    publish,
    (
        "clip-ccs publish --repo USER/NAME",
        "clip-ccs publish --results results --repo USER/NAME --public",
    ),
    "Interrupted; repeat the command.",
)

if __name__ == "__main__":
    sys.exit(main())
