"""Publish results as a data set on the Hub: `python -m batch.publish --repo USER/NAME`."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import open_clip
import pandas as pd
import pyarrow.parquet as pq
from huggingface_hub import DatasetCard, DatasetCardData, SpaceCard

from batch.hub import Change, Remote, Repository
from batch.options import command, option
from ccs import results
from ccs.errors import InputError
from ccs.results import localization, schema, searches

ROOT = Path(__file__).resolve().parents[1]
_CARD = Path(__file__).with_name("card.md")
_SPACE = ("README.md", "LICENSE", "NOTICE", "app.py", "requirements.txt", "pyproject.toml")
_SPACE_FOLDERS = ("ccs", "batch", "precomputed", "docs")

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """Publish results as a data set on the Hub. Other models' results in it are left alone, what is there is
    not sent again, and each run gets a tag. --space publishes the app as a Space that shows these results.
    """

    repo: str | None = option(None, "the data set, USER/NAME")
    space: str | None = option(None, "also create or update the Space USER/NAME with this app")
    results: Path = option(results.PRECOMPUTED, "folder of results")
    model: tuple[str, ...] = option((), "only this model; repeatable")
    public: bool = option(False, "visible to everyone; otherwise a new repository is private")
    tag: str | None = option(None, "name of this run (default: a date and a hash)")
    dry_run: bool = option(False, "print what would change, and change nothing")


def results_to_publish(folder: Path, models: Sequence[str]) -> dict[str, results.Results]:
    """Return the models' results by folder name, read and validated. Raises InputError if there are none."""
    found = results.read_all(folder, str(folder))
    for notice in found.notices:
        raise InputError(f"Nothing was published, because the results must be complete: {notice}")
    if missing := sorted(set(models) - set(found.models)):
        raise InputError(
            f"{folder} has no results of {', '.join(missing)}; it has {', '.join(found.models) or 'none'}."
        )
    chosen = {name: found.models[name] for name in models or found.models}
    if not chosen:
        raise InputError(f"{folder} holds no results; compute some with python -m batch.compute.")
    return {results.folder_name(name): result for name, result in chosen.items()}


def result_files(found: Mapping[str, results.Results]) -> dict[str, bytes]:
    """Return the files of these results, and of searches beside them, by their path in the data set."""
    paths = [
        result.folder / name
        for result in found.values()
        for name in (*(f"{table}.parquet" for table in result.tables), results.MANIFEST_FILE)
    ]
    paths += [path for result in found.values() if (path := _searches(result))]
    root = next(iter(found.values())).folder.parent
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def _searches(result: results.Results) -> Path | None:
    """Return the file of a model's searches; InputError if it cannot be used with these results."""
    folder = result.folder.parent
    path = searches.place(folder, result.model)
    if not path.exists():
        return None
    _, notice = searches.beside(folder, result.model, str(result.manifest["model"]["weights_hash"]))
    if notice:
        raise InputError(f"Nothing was published, because searches must fit the results: {notice}")
    return path


def located_files(repository: Repository, remote: Remote, rows: pd.DataFrame) -> dict[str, bytes]:
    """Return the data set's table `localization` with these rows in it, by its path; empty without any.

    Other models' rows stay. Raises InputError if the data set's own table is not one.
    """
    if not len(rows) and localization.FILE not in remote.files:
        return {}
    with TemporaryDirectory() as aside:
        file = Path(aside, localization.FILE)
        if localization.FILE in remote.files:
            file.write_bytes(repository.fetch(localization.FILE, str(remote.commit)))
        try:
            if len(rows):
                localization.keep(file.parent, rows)
            localization.read(file.parent)
        except InputError as error:
            raise InputError(f"{repository.name} holds a table that cannot be added to: {error}") from None
        return {localization.FILE: file.read_bytes()}


def plan_results(
    repository: Repository, found: Mapping[str, results.Results], located: pd.DataFrame
) -> Callable[[Remote], Change]:
    """Return how a data set changes when these results are put into it, and rows of the table `localization`;
    its card covers all models in it.
    """
    files = result_files(found)

    def plan(remote: Remote) -> Change:
        manifests = {folder: result.manifest for folder, result in found.items()}
        manifests = _others(repository, remote, manifests) | manifests
        beside = located_files(repository, remote, located)
        page = card(repository.name, manifests, beside).encode()
        return remote.difference({**files, **beside, "README.md": page}, [f"{folder}/" for folder in found])

    return plan


def _others(repository: Repository, remote: Remote, ours: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Return the manifests of other models in the data set. Raises InputError where ours cannot join them."""
    found: dict[str, Manifest] = {}
    for path in remote.files:
        folder, _, name = path.partition("/")
        if name != results.MANIFEST_FILE or folder in ours:
            continue
        try:
            manifest = json.loads(repository.fetch(path, str(remote.commit)))
            version = manifest["schema_version"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{repository.name} holds {path}, which is not a manifest of results.") from None
        if version != schema.VERSION:
            raise InputError(
                f"{repository.name} holds {folder} in version {version} of the tables and these results have "
                f"version {schema.VERSION}: one data set cannot hold both. Publish {folder} again with them, "
                "or choose another --repo."
            )
        found[folder] = manifest
    return found


def card(repository: str, manifests: Mapping[str, Manifest], beside: Mapping[str, bytes]) -> str:
    """Return the data set's card: one configuration for each table that any model has, or that lies `beside`
    the models' folders.
    """
    models = sorted(manifests.values(), key=lambda manifest: str(manifest["model"]["name"]))
    rows = {
        name: sum(int(manifest["tables"].get(name, {}).get("rows", 0)) for manifest in models)
        for name in schema.TABLES
        if any(name in manifest["tables"] for manifest in models)
    }
    paths = {name: f"*/{name}.parquet" for name in rows}
    for path, content in beside.items():
        name = Path(path).stem
        paths[name], rows[name] = path, pq.ParquetFile(io.BytesIO(content)).metadata.num_rows
    configs = [
        {"config_name": name, "data_files": path, "default": name == "scores"} for name, path in paths.items()
    ]
    data = DatasetCardData(license="mit", tags=["clip", "interpretability", "fairness"], configs=configs)
    judged = [each for manifest in models for each in (manifest["labeler"], *manifest["judges"])]
    made = DatasetCard.from_template(
        data,
        template_path=str(_CARD),
        repository=repository,
        tables=[{"name": n, "meaning": schema.TABLES[n].meaning, "rows": rows[n]} for n in rows],
        models=models,
        stand_in=any(each.get("stand_in") for each in judged),
    )
    return str(made)


def run_tag(found: Mapping[str, results.Results], located: pd.DataFrame) -> str:
    """Return a tag for this run: its last day and a hash of what is published."""
    content = hashlib.sha256()
    for folder in sorted(found):
        content.update((found[folder].folder / results.MANIFEST_FILE).read_bytes())
        if path := _searches(found[folder]):
            content.update(path.read_bytes())
    if len(located):
        content.update(located.to_csv(index=False).encode())
    day = max(str(result.manifest["created"])[:10] for result in found.values())
    return f"run-{day}-{content.hexdigest()[:8]}"


def space_files(root: Path, models: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the Space's files by path, without caches and hidden files. Its README.md asks for the weights
    of `models` (names, each with a tag) to be fetched when it is built. Raises InputError without an app.py.
    """
    if not (root / "app.py").is_file():
        raise InputError(
            f"{root} holds no app.py, so there is no Space to publish; run this in the repository."
        )
    paths = [root / name for name in _SPACE]
    paths += [path for name in _SPACE_FOLDERS for path in (root / name).rglob("*")]
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in paths
        if path.is_file()
        and not any(
            part == "__pycache__" or part.startswith(".") or part.endswith(".tmp")
            for part in path.relative_to(root).parts
        )
    }
    if preloaded := sorted(filter(None, map(_weights, models))):
        page = SpaceCard(files["README.md"].decode("utf-8"))
        page.data["preload_from_hub"] = sorted({*page.data.get("preload_from_hub", ()), *preloaded})
        files["README.md"] = str(page).encode()
    return files


def _weights(model: str) -> str | None:
    """Return where the Hub has a model's weights, as a Space names them: repository and file; else None."""
    name, _, tag = model.partition("/")
    config = open_clip.get_pretrained_cfg(name, tag) if tag else None
    repository, _, file = str((config or {}).get("hf_hub") or "").rpartition("/")
    return f"{repository} {file or 'open_clip_model.safetensors'}" if repository else None


def publish_results(repository: Repository, args: Settings) -> str:
    """Publish, or say what would be; return the address of exactly these results."""
    found = results_to_publish(args.results, args.model)
    located = localization.read(args.results)
    if args.model:
        located = located[located["model"].isin(args.model)]
    plan, tag = plan_results(repository, found, located), args.tag or run_tag(found, located)
    tagged = repository.state(tag)
    wanted = result_files(found) | (located_files(repository, tagged, located) if tagged.commit else {})
    if tagged.commit and tagged.difference(wanted):
        raise InputError(f"The tag {tag} of {args.repo} already names other results; choose another --tag.")
    address = f"hf://datasets/{args.repo}@{tag}"
    if args.dry_run:
        remote = repository.state()
        visible = "public" if args.public or not remote.private else "private"
        print(f"{args.repo} ({'exists' if remote.commit else 'new'}, {visible}), tag {tag}:")
        print(plan(remote))
        return address
    names = ", ".join(sorted(result.model for result in found.values()))
    commit, change = repository.push(plan, f"Results of {names}", public=args.public)
    repository.tag(tag, commit)
    print(f"{args.repo}: {_done(change)}; load it as {address}")
    return address


def publish_space(space: Repository, args: Settings, address: str | None) -> None:
    """Create or update the Space, or say what would change. `address`: the results that it is to show."""
    shown = results_to_publish(args.results, args.model) if address else {}
    files = space_files(ROOT, [result.model for result in shown.values()])

    def plan(remote: Remote) -> Change:
        return remote.difference(files, [f"{folder}/" for folder in _SPACE_FOLDERS])

    if args.dry_run:
        print(f"Space {args.space}:", plan(space.state()), sep="\n")
        return
    _, change = space.push(plan, "The app", public=args.public)
    if address:
        space.set_variable("CCS_RESULTS", address)
    print(f"Space {args.space}: {_done(change)}; it shows {address or 'the results in precomputed/'}")


def _done(change: Change) -> str:
    if not change:
        return "nothing had changed"
    return f"{len(change.write)} files written, {len(change.remove)} removed"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings repeat what is said here
    return command(Settings, argv, _publish, "Interrupted; a commit is made completely or not at all.")


def _publish(args: Settings) -> None:
    if not args.repo and not args.space:
        raise InputError("Say where to publish: --repo USER/NAME, --space USER/NAME, or both.")
    space = Repository(args.space, "space") if args.space else None
    address = publish_results(Repository(args.repo), args) if args.repo else None
    if space:
        publish_space(space, args, address)


if __name__ == "__main__":
    sys.exit(main())
