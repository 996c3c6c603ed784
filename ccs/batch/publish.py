"""Publish results as a dataset on the Hub, and the app as a Space: `clip-ccs publish --repo USER/NAME`."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
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
from ccs.files import one_line, read_text, write_text
from ccs.results import Results, schema, searches
from ccs.results.hub_repository import Repository

ROOT = Path(__file__).resolve().parents[2]
_CARD = Path(__file__).with_name("card.md")
_SPACE_FILES = ("README.md", "LICENSE", "NOTICE", "app.py", "requirements.txt", "pyproject.toml")
_SPACE_FOLDERS = ("ccs", "docs")
_HIDDEN = shutil.ignore_patterns("__pycache__", ".*", "*.tmp")

Manifest = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Publish results as a dataset on the Hub, and the app as a Space that shows them.

    Each run gets a tag. Results of other models in the dataset are left unchanged.
    """

    repo: Annotated[str | None, options.OUTPUT, options.describe("Dataset on the Hub, USER/NAME", "none")] = (
        None
    )
    space: Annotated[
        str | None, options.OUTPUT, options.describe("Space on the Hub for the app, USER/NAME", "none")
    ] = None
    results: options.ResultsFolder = None
    model: Annotated[
        tuple[str, ...], options.DATA, options.describe("Models to publish; repeatable", "all")
    ] = ()
    public: options.Public = False
    tag: Annotated[str | None, options.OUTPUT, options.describe("Tag of this run", "its date and a hash")] = (
        None
    )
    dry_run: Annotated[bool, options.OUTPUT] = False
    """Print the changes without making them"""


def publish(settings: PublishOptions) -> None:
    """Publish the results, and the app that shows them."""
    if not settings.repo and not settings.space:
        raise InputError("No place to publish; give --repo USER/NAME, --space USER/NAME, or both.")
    published: dict[str, Results] = {}
    if settings.repo:
        folder = settings.results or results.default_folder()
        print(f"Results: {folder}", file=sys.stderr)
        published = complete_results(folder, settings.model)
    dataset = Repository(settings.repo, "dataset", dry=settings.dry_run) if settings.repo else None
    space = Repository(settings.space, "space", dry=settings.dry_run) if settings.space else None
    if dataset and space and dataset.private and not settings.public:
        raise InputError(
            f"The Space can't read {settings.repo}, which is private; give --public, or leave out --repo."
        )
    address = publish_results(dataset, published, settings) if dataset else None
    if space:
        publish_space(space, settings.public, address)
    if settings.dry_run:
        print("This was a dry run: nothing was sent.")


def complete_results(folder: Path, models: Sequence[str]) -> dict[str, Results]:
    """Read and validate the results of models.

    Args:
        folder: Folder of results.
        models: Names of the models; all models if empty.

    Returns:
        The results by name of the model's folder.

    Raises:
        InputError: If results are missing or incomplete.
    """
    collection = results.read_all(folder, str(folder))
    for notice in collection.notices:
        raise InputError(f"Nothing was published, because the results must be complete: {notice}")
    available = collection.models
    if missing := sorted(set(models) - set(available)):
        raise InputError(
            f"{folder} has no results of {', '.join(missing)}; it has {', '.join(available) or 'none'}."
        )
    if not available:
        raise InputError(f"{folder} holds no results; compute some with clip-ccs compute.")
    return {results.folder_name(name): available[name] for name in models or available}


def publish_results(
    repository: Repository, published: Mapping[str, Results], settings: PublishOptions
) -> str:
    """Push results to the dataset and tag them.

    Args:
        repository: The dataset.
        published: Results by name of the model's folder.
        settings: Options of the command.

    Returns:
        The address of exactly these results.
    """
    names = ", ".join(sorted(result.model for result in published.values()))
    manifests = {folder: result.manifest for folder, result in published.items()}
    manifests |= other_manifests(repository, manifests)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_results(published, folder)
        tag = settings.tag or run_tag(published, folder)
        (folder / "README.md").write_text(dataset_card(repository.name, manifests), "utf-8")
        owned = [f"{name}/*" for name in published]
        commit = repository.push(folder, f"Results of {names}", public=settings.public, owned=owned)
    if commit and (settings.tag or tag not in repository.tags):
        repository.tag(tag, commit)
    address = f"hf://datasets/{repository.name}@{tag}"
    print(f"Published as {address}.")
    return address


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


def run_tag(published: Mapping[str, Results], folder: Path) -> str:
    """Return a tag for this run: its last day and a hash of the folder's files.

    Args:
        published: The results.
        folder: Folder with their files.
    """
    content = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content.update(path.read_bytes())
    day = max(str(result.manifest["created"])[:10] for result in published.values())
    return f"run-{day}-{content.hexdigest()[:8]}"


def publish_space(space: Repository, public: bool, address: str | None) -> None:
    """Create or update the Space.

    Args:
        space: The Space.
        public: Make a new Space public.
        address: Address of the results that it shows, or None for the bundled ones.

    Raises:
        InputError: If there is no app.py to publish.
    """
    if not (ROOT / "app.py").is_file():
        raise InputError(f"{ROOT} holds no app.py, so no Space can be published; run this in a clone.")
    with TemporaryDirectory() as scratch:
        for file in _SPACE_FILES:
            if (ROOT / file).is_file():
                shutil.copy(ROOT / file, scratch)
        for folder in _SPACE_FOLDERS:
            if (ROOT / folder).is_dir():
                shutil.copytree(ROOT / folder, Path(scratch) / folder, ignore=_HIDDEN)
        readme, files = (
            Path(scratch) / "README.md",
            f"https://huggingface.co/spaces/{space.name}/resolve/main",
        )
        write_text(readme, read_text(readme).replace("thumbnail: ", f"thumbnail: {files}/", 1))
        owned = [f"{folder}/*" for folder in _SPACE_FOLDERS]
        commit = space.push(Path(scratch), "The app", public=public, owned=owned)
    if commit and address:
        space.set_variable("CCS_RESULTS", address)
    print(f"The Space {space.name} shows {address or 'the bundled results'}.")


main = Command(
    PublishOptions,
    publish,
    (
        "clip-ccs publish --results results --repo USER/NAME --dry-run",
        "clip-ccs publish --results results --repo USER/NAME --space USER/NAME --public",
    ),
    "Interrupted; repeat the command.",
)

if __name__ == "__main__":
    sys.exit(main())
