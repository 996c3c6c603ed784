"""Put results on the Hub as a data set: `python -m batch.publish --repo USER/NAME`.

All files go in one commit on top of the state that was looked at, so nothing is ever half published; what is
already there is not sent again, other models' results are left alone, and each run gets a tag to pin.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import LocalTokenNotFoundError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._validators import validate_repo_id

from batch.card import card
from ccs import results
from ccs.errors import InputError

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
SPACE_FILES = (
    "README.md",
    "LICENSE",
    "NOTICE",
    "app.py",
    "requirements.txt",
    "pyproject.toml",
    "ccs",
    "precomputed",
    "docs",
)
_SKIPPED = ("__pycache__", ".stages", ".pytest_cache")
_TRIES = 5
_PAUSES = (1.0, 2.0, 4.0, 8.0)
_MEANING = {
    401: "it does not accept the token, or there is none; log in with `hf auth login` or set HF_TOKEN",
    403: "the token may not write there; use a token with write access to that name",
    404: "it does not exist, or the token may not see it",
    409: "somebody else changed it at the same time; give the command again",
    412: "somebody else changed it at the same time; give the command again",
    429: "too many requests; wait some minutes and give the command again",
}


@dataclass(frozen=True)
class Change:
    """What a commit would do to a repository: paths to write with their bytes, and paths to remove."""

    write: Mapping[str, bytes]
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)

    def __str__(self) -> str:
        lines = [f"  write  {path} ({len(data):,} bytes)" for path, data in sorted(self.write.items())]
        return "\n".join([*lines, *(f"  remove {path}" for path in self.remove)])


@dataclass(frozen=True)
class Remote:
    """A repository as it is: its commit, and size and hash of each file; no commit where it does not exist."""

    commit: str | None = None
    private: bool = True
    files: Mapping[str, str] = field(default_factory=dict)


def wait(error: Exception, attempt: int) -> float | None:
    """Seconds until it is worth trying again, None if it is not. The Hub's Retry-After is honoured up to a
    minute.
    """
    response = getattr(error, "response", None)
    if response is None:
        return None if isinstance(error, (InputError, ValueError)) else _PAUSES[min(attempt, 3)]
    if response.status_code in (409, 412, 429) or response.status_code >= 500:
        asked = str(response.headers.get("Retry-After", ""))
        return min(float(asked), 60.0) if asked.isdigit() else _PAUSES[min(attempt, 3)]
    return None


class Publisher:
    """Writes to one repository. `kind`: dataset or space. `sleep` is called between tries."""

    def __init__(
        self, repository: str, kind: str = "dataset", sleep: Callable[[float], None] = time.sleep
    ) -> None:
        try:
            validate_repo_id(repository)
        except ValueError:
            repository = ""
        if repository.count("/") != 1:
            raise InputError(
                "A repository is named USER/NAME: letters, digits, '-', '_' and '.' on both sides."
            )
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        self.repository, self.kind, self.sleep = repository, kind, sleep

    def _try(self, work: Callable[[], T]) -> T:
        """Do `work`, again after a pause where that may help. A failure becomes a sentence without the
        request.
        """
        for attempt in range(_TRIES):
            try:
                return work()
            except (LocalTokenNotFoundError, InputError) as error:
                raise InputError(f"{self.repository}: {_MEANING[401]}.") from error
            except (
                Exception
            ) as error:  # connections fail with the exceptions of whatever HTTP library is used
                error = _cause(error)
                pause = wait(error, attempt)
                if pause is None or attempt == _TRIES - 1:
                    raise InputError(self._sentence(error)) from None
                self.sleep(pause)
        raise AssertionError("unreachable")

    def _sentence(self, error: Exception) -> str:
        response = getattr(error, "response", None)
        if response is None:
            return f"The Hub could not be reached for {self.repository}: {type(error).__name__}."
        status = response.status_code
        meaning = _MEANING.get(status, "the Hub failed; give the command again later")
        return f"The Hub answered {status} for {self.repository}: {meaning}."

    def state(self) -> Remote:
        """What is on the Hub now."""

        def look() -> Remote:
            try:
                info = self.api.repo_info(self.repository, repo_type=self.kind)
            except RepositoryNotFoundError as error:
                if (
                    getattr(error.response, "status_code", 0) == 401
                    and self.api.token is None
                    and not _token()
                ):
                    raise
                return Remote()
            tree = self.api.list_repo_tree(
                self.repository, repo_type=self.kind, revision=info.sha, recursive=True
            )
            files = {
                item.path: item.lfs.sha256 if item.lfs else item.blob_id
                for item in tree
                if isinstance(item, RepoFile)
            }
            return Remote(info.sha, bool(info.private), files)

        return self._try(look)

    def fetch(self, path: str, revision: str) -> bytes:
        """One small file's bytes."""

        def load() -> bytes:
            local = self.api.hf_hub_download(self.repository, path, repo_type=self.kind, revision=revision)
            return Path(local).read_bytes()

        return self._try(load)

    def push(self, plan: Callable[[Remote], Change], message: str, *, public: bool) -> tuple[str, Change]:
        """Bring the repository to what `plan` makes of its state, in one commit; return commit and change.

        A commit whose answer was lost, or that another one overtook, is planned anew from what is then there.
        """

        def once() -> tuple[str, Change]:
            remote = self.state()
            if remote.commit is None:
                self.api.create_repo(
                    self.repository,
                    repo_type=self.kind,
                    private=not public,
                    exist_ok=True,
                    space_sdk="gradio" if self.kind == "space" else None,
                )
                remote = self.state()
            change = plan(remote)
            if public and remote.private:
                self.api.update_repo_settings(self.repository, repo_type=self.kind, private=False)
            if not change:
                return str(remote.commit), change
            additions = [CommitOperationAdd(path, data) for path, data in sorted(change.write.items())]
            info = self.api.create_commit(
                self.repository,
                [*additions, *(CommitOperationDelete(path) for path in change.remove)],
                commit_message=message,
                repo_type=self.kind,
                parent_commit=remote.commit,
            )
            return str(info.oid), change

        return self._try(once)

    def tag(self, name: str, commit: str) -> None:
        """Name a commit; a tag that is there already stays where it is."""
        self._try(
            lambda: self.api.create_tag(
                self.repository, tag=name, revision=commit, repo_type=self.kind, exist_ok=True
            )
        )


def _cause(error: Exception) -> Exception:
    """What the Hub answered, where an upload in a thread wrapped it."""
    inner = error.__cause__
    return inner if isinstance(error, RuntimeError) and isinstance(inner, Exception) else error


def _token() -> str | None:
    from huggingface_hub import get_token

    return get_token()


def _hash(path: str, data: bytes, known: str) -> str:
    """The hash of `data` of the kind that the Hub told: SHA-256 of the bytes, or git's hash of a blob."""
    if len(known) == 64:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def difference(remote: Remote, wanted: Mapping[str, bytes], owned: Iterable[str]) -> Change:
    """What to write and remove. `owned`: prefixes of paths that are ours alone; anything else stays."""
    write = {
        path: data
        for path, data in wanted.items()
        if path not in remote.files or _hash(path, data, remote.files[path]) != remote.files[path]
    }
    prefixes = tuple(owned)
    stale = [path for path in remote.files if prefixes and path.startswith(prefixes) and path not in wanted]
    return Change(write, tuple(sorted(stale)))


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


def plan_results(publisher: Publisher, found: Mapping[str, results.Results]) -> Callable[[Remote], Change]:
    """How a data set changes when these results are put into it; the card tells of all models in it."""
    wanted: dict[str, bytes] = {}
    for folder, result in found.items():
        for name in (*(f"{table}.parquet" for table in result.tables), results.MANIFEST_FILE):
            wanted[f"{folder}/{name}"] = (result.folder / name).read_bytes()

    def plan(remote: Remote) -> Change:
        manifests: dict[str, Any] = {folder: result.manifest for folder, result in found.items()}
        for path in remote.files:
            folder, _, name = path.partition("/")
            if name == results.MANIFEST_FILE and folder not in manifests and remote.commit:
                manifests[folder] = json.loads(publisher.fetch(path, remote.commit))
        page = card(publisher.repository, manifests).encode()
        return difference(remote, {**wanted, "README.md": page}, [f"{folder}/" for folder in found])

    return plan


def run_tag(found: Mapping[str, results.Results]) -> str:
    """A tag for this run: its last day and a hash of what is published."""
    content = hashlib.sha256()
    for folder in sorted(found):
        content.update((found[folder].folder / results.MANIFEST_FILE).read_bytes())
    day = max(str(result.manifest["created"])[:10] for result in found.values())
    return f"run-{day}-{content.hexdigest()[:8]}"


def space_files(root: Path) -> dict[str, bytes]:
    """The files that a Space needs, by path. Raises InputError where app.py is missing."""
    if not (root / "app.py").is_file():
        raise InputError(
            f"{root} holds no app.py, so there is no Space to publish; run this in the repository."
        )
    paths = [
        path for name in SPACE_FILES for path in [root / name, *(root / name).rglob("*")] if path.is_file()
    ]
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in paths
        if not any(part in _SKIPPED or part.endswith(".tmp") for part in path.relative_to(root).parts)
    }


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


def _publish_results(args: argparse.Namespace) -> str:
    found = results_to_publish(args.results, args.model)
    publisher = Publisher(args.repo)
    plan, tag = plan_results(publisher, found), args.tag or run_tag(found)
    if args.dry_run:
        remote = publisher.state()
        visible = "public" if args.public or not (remote.private or remote.commit is None) else "private"
        print(f"{args.repo} ({'new' if remote.commit is None else 'exists'}, {visible}), tag {tag}:")
        print(plan(remote) or "  nothing to change")
        return tag
    names = ", ".join(sorted(result.model for result in found.values()))
    commit, change = publisher.push(plan, f"Results of {names}", public=args.public)
    publisher.tag(tag, commit)
    done = (
        f"{len(change.write)} files written, {len(change.remove)} removed"
        if change
        else "nothing had changed"
    )
    print(f"{args.repo}: {done}; load it as hf://datasets/{args.repo}@{tag}")
    return tag


def _publish_space(args: argparse.Namespace, tag: str | None) -> None:
    files, publisher = space_files(ROOT), Publisher(args.space, "space")
    folders = sorted({path.split("/")[0] + "/" for path in files if "/" in path})

    def plan(remote: Remote) -> Change:
        return difference(remote, files, folders)

    if args.dry_run:
        print(f"Space {args.space}:")
        print(plan(publisher.state()) or "  nothing to change")
        return
    _, change = publisher.push(plan, "The app", public=args.public)
    if tag:
        address = f"hf://datasets/{args.repo}@{tag}"
        publisher._try(lambda: publisher.api.add_space_variable(args.space, "CCS_RESULTS", address))
    print(f"Space {args.space}: {len(change.write)} files written, {len(change.remove)} removed.")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, or 2 after a sentence on what was wrong."""
    args = _parser().parse_args(argv)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings repeat what is said here
    try:
        if not args.repo and not args.space:
            raise InputError("Say where to publish: --repo USER/NAME, --space USER/NAME, or both.")
        tag = _publish_results(args) if args.repo else None
        if args.space:
            _publish_space(args, tag)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; a commit is whole or not there at all.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
