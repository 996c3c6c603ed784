"""Put results on the Hub as a data set: `python -m batch.publish --repo USER/NAME`.

Other models' results in it are left alone, what is there already is not sent again, and each run gets a tag
to pin. With `--space USER/NAME` the app goes to a Space that shows these results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batch.hub import Change, Plan, Remote, Repository
from batch.publish.card import card
from batch.publish.space import space_files
from ccs import results
from ccs.errors import InputError
from ccs.results import schema

ROOT = Path(__file__).resolve().parents[2]


def results_to_publish(folder: Path, models: Sequence[str]) -> dict[str, results.Results]:
    """The models' results by folder name, each read and validated. Raises InputError if there is none."""
    found = results.read_all(folder, str(folder))
    for notice in found.notices:
        raise InputError(f"Nothing was published, for the results must be whole: {notice}")
    if missing := sorted(set(models) - set(found.models)):
        raise InputError(
            f"{folder} has no results of {', '.join(missing)}; it has {', '.join(found.models) or 'none'}."
        )
    chosen = {name: found.models[name] for name in models or found.models}
    if not chosen:
        raise InputError(f"{folder} holds no results; compute some with python -m batch.compute.")
    return {results.folder_name(name): result for name, result in chosen.items()}


def result_files(found: Mapping[str, results.Results]) -> dict[str, bytes]:
    """The files of these results, by their path in the data set."""
    return {
        f"{folder}/{name}": (result.folder / name).read_bytes()
        for folder, result in found.items()
        for name in (*(f"{table}.parquet" for table in result.tables), results.MANIFEST_FILE)
    }


def plan_results(repository: Repository, found: Mapping[str, results.Results]) -> Plan:
    """How a data set changes when these results are put into it; the card tells of all models in it."""
    files = result_files(found)

    def plan(remote: Remote) -> Change:
        manifests = {folder: result.manifest for folder, result in found.items()}
        manifests = _others(repository, remote, manifests) | manifests
        page = card(repository.name, manifests).encode()
        return remote.difference({**files, "README.md": page}, [f"{folder}/" for folder in found])

    return plan


def _others(
    repository: Repository, remote: Remote, ours: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Manifests of the models in the data set beside ours. Raises InputError where ours cannot join them."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in remote.files:
        folder, _, name = path.partition("/")
        if name != results.MANIFEST_FILE or folder in ours:
            continue
        try:
            manifest = json.loads(repository.fetch(path, str(remote.commit)))
            version = manifest["schema_version"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{repository.name} holds {path}, which is no manifest of results.") from None
        if version not in schema.READABLE:
            raise InputError(
                f"{repository.name} holds {folder} in version {version} of the tables and these results have "
                f"version {schema.VERSION}: one data set cannot hold both. Publish {folder} anew with them, "
                "or choose another --repo."
            )
        found[folder] = manifest
    return found


def run_tag(found: Mapping[str, results.Results]) -> str:
    """A tag for this run: its last day and a hash of what is published."""
    content = hashlib.sha256()
    for folder in sorted(found):
        content.update((found[folder].folder / results.MANIFEST_FILE).read_bytes())
    day = max(str(result.manifest["created"])[:10] for result in found.values())
    return f"run-{day}-{content.hexdigest()[:8]}"


def publish_results(repository: Repository, args: argparse.Namespace) -> str:
    """Publish, or say what would be; return the address of exactly these results."""
    found = results_to_publish(args.results, args.model)
    plan, tag = plan_results(repository, found), args.tag or run_tag(found)
    tagged = repository.state(tag)
    if tagged.commit and tagged.difference(result_files(found)):
        raise InputError(f"The tag {tag} of {args.repo} names other results already; give another --tag.")
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


def publish_space(space: Repository, args: argparse.Namespace, address: str | None) -> None:
    """Create or update the Space, or say what would change. `address`: the results that it is to show."""
    shown = results_to_publish(args.results, args.model) if address else {}
    files = space_files(ROOT, [result.model for result in shown.values()])
    folders = sorted({path.split("/")[0] + "/" for path in files if "/" in path})

    def plan(remote: Remote) -> Change:
        return remote.difference(files, folders)

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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m batch.publish", description=__doc__)
    parser.add_argument("--repo", help="the data set, USER/NAME")
    parser.add_argument("--space", help="also create or update the Space USER/NAME with this app")
    parser.add_argument("--results", type=Path, default=results.PRECOMPUTED, help="folder of results")
    parser.add_argument("--model", action="append", default=[], help="only this model (repeatable)")
    parser.add_argument(
        "--public", action="store_true", help="visible to all; without it a new repository is private"
    )
    parser.add_argument("--tag", help="name of this run; a date and a hash if not given")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, or 2 after a sentence on what was wrong."""
    args = _parser().parse_args(argv)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings repeat what is said here
    try:
        if not args.repo and not args.space:
            raise InputError("Say where to publish: --repo USER/NAME, --space USER/NAME, or both.")
        space = Repository(args.space, "space") if args.space else None
        address = publish_results(Repository(args.repo), args) if args.repo else None
        if space:
            publish_space(space, args, address)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; a commit is whole or not there at all.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
