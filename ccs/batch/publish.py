"""Publish results as a dataset on the Hub: `clip-ccs publish --repo USER/NAME`."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ccs import results
from ccs.batch.leaderboard import fill_card
from ccs.batch.pages import open_results
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs.files import one_line
from ccs.results import schema, searches
from ccs.results.hub_repository import Repository

_CARD = Path(__file__).with_name("card.md")

Manifest = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Publish results as a dataset on the Hub, and print the address of exactly these results.

    Results of other models in the dataset are left unchanged.

    Examples:
        clip-ccs publish --repo USER/NAME
        clip-ccs publish --results results --repo USER/NAME --public
    """

    repo: Annotated[str, options.OUTPUT]
    """Dataset on the Hub, USER/NAME"""
    results: options.ResultsFolder = None
    public: options.Public = False


def publish(settings: PublishOptions) -> None:
    """Publish all results of the folder, and print their address."""
    collection, name = open_results(settings.results), settings.repo
    for notice in collection.notices:
        raise InputError(f"Nothing was published, because the results must be complete: {notice}")
    published = {results.folder_name(model): result for model, result in collection.models.items()}
    repository = Repository(name, "dataset")
    manifests = {subfolder: result.manifest for subfolder, result in published.items()}
    manifests |= other_manifests(repository, manifests)
    files: dict[str, Path | bytes] = {"README.md": dataset_card(name, manifests).encode()}
    for subfolder, result in published.items():
        for file in (*(f"{table}.parquet" for table in result.tables), results.MANIFEST_FILE):
            files[f"{subfolder}/{file}"] = result.folder / file
        path = searches.place(result.folder.parent, result.model)
        if path.exists():
            files[path.name] = path
    owned = [f"{subfolder}/*" for subfolder in published]
    message = f"Results of {', '.join(sorted(collection.models))}"
    commit = repository.push(files, message, public=settings.public, owned=owned)
    print(f"Published as hf://datasets/{name}@{commit}.")


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
    rows = Counter[str]()
    for manifest in models:
        rows.update({name: int(entry["rows"]) for name, entry in manifest["tables"].items()})
    tables = [table for name, table in schema.TABLES.items() if name in rows]
    configs = [
        {"config_name": name, "data_files": f"*/{name}.parquet", "default": name == "scores"}
        for name in (table.name for table in tables)
    ]
    values = {"repository": repository, "tables": tables, "rows": rows, "models": _on_one_line(models)}
    return fill_card(_CARD, "interpretability", configs, **values)


def _on_one_line(value: Any) -> Any:
    """Return a manifest with each text on one line."""
    if isinstance(value, dict):
        return {one_line(str(name)): _on_one_line(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_on_one_line(item) for item in value]
    return one_line(value) if isinstance(value, str) else value


main = Command(PublishOptions, publish, interrupted="Interrupted; repeat the command.")
