"""Publish results as a data set on the Hub: `clip-ccs publish --repo USER/NAME`."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import open_clip
from huggingface_hub import DatasetCard, DatasetCardData, SpaceCard

from ccs import results
from ccs.cli.command_line import Command
from ccs.cli.options import DATA, OUTPUT, Public, ResultsFolder, describe
from ccs.errors import InputError
from ccs.files import one_line, read_text, write_text
from ccs.results import schema, searches
from ccs.results.hub_repository import Repository

ROOT = Path(__file__).resolve().parents[2]
_CARD = Path(__file__).with_name("card.md")
_SPACE = ("README.md", "LICENSE", "NOTICE", "app.py", "requirements.txt", "pyproject.toml")
_SPACE_FOLDERS = ("ccs", "docs")  # of `ccs` one copy of the tables, to which the clone has a link
NOTEBOOKS, NOTEBOOK = "docs/notebooks", "docs/notebooks/bias.ipynb"  # and that which the badge opens
COLAB = "https://colab.research.google.com"

Manifest = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Publish results as a dataset on the Hub, and the app as a Space that shows them.

    Each run gets a tag. Results of other models in the dataset are left unchanged.
    """

    repo: Annotated[str | None, OUTPUT] = None
    """Dataset on the Hub, USER/NAME"""
    space: Annotated[str | None, OUTPUT] = None
    """Space on the Hub for the app, USER/NAME"""
    results: ResultsFolder = None
    model: Annotated[tuple[str, ...], DATA] = ()
    """Model whose results are published; repeatable (default: all)"""
    public: Public = False
    tag: Annotated[str | None, OUTPUT, describe("Tag of this run", "a date and a hash")] = None
    dry_run: Annotated[bool, OUTPUT] = False
    """Print what would change, and change nothing"""


def results_to_publish(folder: Path, models: Sequence[str]) -> dict[str, results.Results]:
    """Return the models' results by folder name, read and validated. Raises InputError if there are none."""
    collection = results.read_all(folder, str(folder))
    for notice in collection.notices:
        raise InputError(f"Nothing was published, because the results must be complete: {notice}")
    there = collection.models
    if missing := sorted(set(models) - set(there)):
        raise InputError(
            f"{folder} has no results of {', '.join(missing)}; it has {', '.join(there) or 'none'}."
        )
    if not there:
        raise InputError(f"{folder} holds no results; compute some with clip-ccs compute.")
    return {results.folder_name(name): there[name] for name in models or there}


def copy_results(ours: Mapping[str, results.Results], folder: Path) -> None:
    """Copy the files of these results, and of searches beside them, to a folder."""
    for name, result in ours.items():
        (folder / name).mkdir()
        for file in (*(f"{table}.parquet" for table in result.tables), results.MANIFEST_FILE):
            shutil.copy(result.folder / file, folder / name)
        path = searches.place(result.folder.parent, result.model)
        if path.exists():
            shutil.copy(path, folder)


def others(repository: Repository, ours: Collection[str]) -> dict[str, Manifest]:
    """Return the manifests of other models in the dataset. Raises InputError for another schema."""
    manifests: dict[str, Manifest] = {}
    for path in repository.files:
        folder, _, name = path.partition("/")
        if name == results.MANIFEST_FILE and folder not in ours:
            manifests[folder] = schema.parse_manifest(repository.fetch(path), f"{repository.name}/{path}")
    return manifests


def card(repository: str, manifests: Mapping[str, Manifest]) -> str:
    """Return the data set's card: one configuration for each table that any model has."""
    models = sorted(manifests.values(), key=lambda manifest: str(manifest["model"]["name"]))
    rows = {
        name: sum(int(manifest["tables"].get(name, {}).get("rows", 0)) for manifest in models)
        for name in schema.TABLES
        if any(name in manifest["tables"] for manifest in models)
    }
    configs = [
        {"config_name": name, "data_files": f"*/{name}.parquet", "default": name == "scores"} for name in rows
    ]
    data = DatasetCardData(license="mit", tags=["clip", "interpretability", "fairness"], configs=configs)
    judges = [judge for manifest in models for judge in (manifest["labeler"], *manifest["judges"])]
    made = DatasetCard.from_template(
        data,
        template_path=str(_CARD),
        repository=repository,
        tables=[{"name": n, "meaning": schema.TABLES[n].meaning, "rows": rows[n]} for n in rows],
        models=_lines(models),
        stand_in=any(judge.get("stand_in") for judge in judges),
    )
    return str(made)


def _lines(value: Any) -> Any:
    """Return a manifest with each text on one line."""
    if isinstance(value, dict):
        return {one_line(str(name)): _lines(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_lines(item) for item in value]
    return one_line(value) if isinstance(value, str) else value


def run_tag(ours: Mapping[str, results.Results], folder: Path) -> str:
    """Return a tag for this run: its last day and a hash of the folder's files."""
    content = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content.update(path.read_bytes())
    day = max(str(result.manifest["created"])[:10] for result in ours.values())
    return f"run-{day}-{content.hexdigest()[:8]}"


def copy_space(root: Path, folder: Path, name: str, models: Iterable[str] = ()) -> None:
    """Copy the files of the Space `name` to a folder, without caches and hidden files. Its README.md asks for
    the weights of `models` when it is built, and has a badge for the notebook in Colab. InputError without an
    app.py.
    """
    if not (root / "app.py").is_file():
        raise InputError(f"{root} holds no app.py, so no Space can be published; run this in a clone.")
    for file in _SPACE:
        if (root / file).is_file():
            shutil.copy(root / file, folder)
    hidden = shutil.ignore_patterns("__pycache__", ".*", "*.tmp")
    for part in _SPACE_FOLDERS:
        if (root / part).is_dir():
            shutil.copytree(root / part, folder / part, ignore=hidden)
    readme, address = folder / "README.md", f"https://huggingface.co/spaces/{name}"
    if (folder / NOTEBOOK).is_file():  # only here is it known where Colab finds notebooks and package
        for path in (folder / NOTEBOOKS).glob("*.ipynb"):
            package = "clip-ccs[data,plot]"
            write_text(path, read_text(path).replace(package, f"{package} @ git+{address}"))
        link = f"({COLAB}/assets/colab-badge.svg)]({COLAB}/#fileId={address}/blob/main/{NOTEBOOK})"
        write_text(readme, read_text(readme).replace("[![Paper]", f"[![Open in Colab]{link}\n[![Paper]", 1))
    if preloaded := sorted(filter(None, map(_weights, models))):
        page = SpaceCard(readme.read_text("utf-8"))
        page.data["preload_from_hub"] = sorted({*page.data.get("preload_from_hub", ()), *preloaded})
        readme.write_text(str(page), "utf-8")


def _weights(model: str) -> str | None:
    """Return where the Hub has a model's weights, as a Space names them: repository and file; else None."""
    name, _, tag = model.partition("/")
    config = open_clip.get_pretrained_cfg(name, tag) if tag else None
    repository, _, file = str((config or {}).get("hf_hub") or "").rpartition("/")
    return f"{repository} {file or 'open_clip_model.safetensors'}" if repository else None


def publish_results(repository: Repository, ours: Mapping[str, results.Results], args: PublishOptions) -> str:
    """The address of exactly these results on the Hub."""
    names = ", ".join(sorted(result.model for result in ours.values()))
    manifests = {folder: result.manifest for folder, result in ours.items()}
    manifests |= others(repository, manifests)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_results(ours, folder)
        tag = args.tag or run_tag(ours, folder)
        (folder / "README.md").write_text(card(repository.name, manifests), "utf-8")
        owned = [f"{name}/*" for name in ours]
        commit = repository.push(folder, f"Results of {names}", public=args.public, owned=owned)
    if commit and (args.tag or tag not in repository.tags):
        repository.tag(tag, commit)
    address = f"hf://datasets/{repository.name}@{tag}"
    print(f"{repository.name}: tag {tag}; load it as {address}")
    return address


def publish_space(space: Repository, models: Iterable[str], public: bool, address: str | None) -> None:
    """Create or update the Space. It is to show the results at the address, and fetches these models' weights
    when it is built.
    """
    with TemporaryDirectory() as scratch:
        copy_space(ROOT, Path(scratch), space.name, models)
        owned = [f"{name}/*" for name in _SPACE_FOLDERS]
        commit = space.push(Path(scratch), "The app", public=public, owned=owned)
    if commit and address:
        space.set_variable("CCS_RESULTS", address)
    print(f"Space {space.name}: it shows {address or 'the results in precomputed/'}")


def publish(args: PublishOptions) -> None:
    if not args.repo and not args.space:
        raise InputError("Say where to publish: --repo USER/NAME, --space USER/NAME, or both.")
    ours = {}
    if args.repo:
        folder = args.results or results.default_folder()
        print(f"Results: {folder}", file=sys.stderr)
        ours = results_to_publish(folder, args.model)
    data_set = Repository(args.repo, "dataset", dry=args.dry_run) if args.repo else None
    space = Repository(args.space, "space", dry=args.dry_run) if args.space else None
    if data_set and space and data_set.private and not args.public:
        raise InputError(
            f"The Space could not read {args.repo}, which is private; give --public, or leave out --repo."
        )
    address = publish_results(data_set, ours, args) if data_set else None
    if space:
        publish_space(space, [result.model for result in ours.values()], args.public, address)
    if args.dry_run:
        print("This was a dry run: nothing was sent.")


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
