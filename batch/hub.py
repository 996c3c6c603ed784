"""One repository on the Hub: looked at, and changed in one commit on top of what was looked at.

So nothing is ever half published, and what is there already is not sent again. What the Hub refuses becomes a
sentence that quotes nothing of the request, for that holds the token.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalTokenNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._validators import validate_repo_id

from ccs.errors import InputError

T = TypeVar("T")

_PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries; after the last one it is given up."""
_LONGEST_PAUSE = 60.0
# Connections fail with the exceptions of whichever HTTP library huggingface_hub was built on, and so with
# the bases of its own; an upload in a thread wraps them in a RuntimeError.
_TROUBLE: tuple[type[Exception], ...] = (OSError, RuntimeError, *HfHubHTTPError.__bases__)
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
        return "\n".join([*lines, *(f"  remove {path}" for path in self.remove)]) or "  nothing to change"


@dataclass(frozen=True)
class Remote:
    """A repository as it is: its commit and each file's hash; no commit where it does not exist."""

    commit: str | None = None
    private: bool = True
    files: Mapping[str, str] = field(default_factory=dict)

    def difference(self, wanted: Mapping[str, bytes], owned: Iterable[str] = ()) -> Change:
        """What to write and remove. `owned`: prefixes of paths that are ours alone; anything else stays."""
        write = {
            path: data
            for path, data in wanted.items()
            if path not in self.files or _hash(data, self.files[path]) != self.files[path]
        }
        prefixes = tuple(owned)
        stale = [path for path in self.files if path.startswith(prefixes) and path not in wanted]
        return Change(write, tuple(sorted(stale)))


Plan = Callable[[Remote], Change]


def _hash(data: bytes, known: str) -> str:
    """The hash of `data` of the kind that the Hub told: SHA-256 of the bytes, or git's hash of a blob."""
    if len(known) == 64:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def wait(error: Exception, attempt: int) -> float | None:
    """Seconds until it is worth trying again, None if it is not. What the Hub asks for is done, up to a
    minute.
    """
    if attempt >= len(_PAUSES) or isinstance(error, LocalTokenNotFoundError):
        return None
    status = _status(error)
    if status and status not in (409, 412, 429) and status < 500:
        return None
    asked = str(error.response.headers.get("Retry-After", "")) if status else ""  # type: ignore[attr-defined]
    return min(float(asked), _LONGEST_PAUSE) if asked.isdigit() else _PAUSES[attempt]


def _status(error: Exception) -> int:
    """The status that the Hub answered with, 0 if it did not answer."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


class Repository:
    """A repository to write to. `kind`: dataset, model or space. `sleep` is called between tries."""

    def __init__(self, name: str, kind: str = "dataset", sleep: Callable[[float], None] = time.sleep) -> None:
        try:
            validate_repo_id(name)
        except ValueError:
            name = ""
        if name.count("/") != 1:
            raise InputError(
                "A repository is named USER/NAME: letters, digits, '-', '_' and '.' on both sides."
            )
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        self.name, self.kind, self.sleep = name, kind, sleep

    def state(self, revision: str | None = None) -> Remote:
        """What is on the Hub now, or at a revision."""
        return self._try(lambda: self._look(revision))

    def fetch(self, path: str, revision: str) -> bytes:
        """One small file's bytes."""
        local = self._try(
            lambda: self.api.hf_hub_download(self.name, path, repo_type=self.kind, revision=revision)
        )
        return Path(local).read_bytes()

    def push(self, plan: Plan, message: str, *, public: bool) -> tuple[str, Change]:
        """Bring the repository to what `plan` makes of its state, in one commit; return commit and change.

        A commit whose answer was lost, or that another one overtook, is planned anew from what is then there.
        A new repository is private unless `public`.
        """
        attempt = 0
        while True:
            remote = self.state()
            if remote.commit is None:
                self._try(lambda: self._create(public))
                remote = self.state()
            change = plan(remote)
            if public and remote.private:
                self._try(
                    lambda: self.api.update_repo_settings(self.name, repo_type=self.kind, private=False)
                )
            if not change:
                return str(remote.commit), change
            try:
                return self._commit(remote, change, message), change
            except _TROUBLE as error:
                self._pause(error, attempt)
            attempt += 1

    def tag(self, name: str, commit: str) -> None:
        """Name a commit; a tag that is there already stays where it is."""
        self._try(
            lambda: self.api.create_tag(
                self.name, tag=name, revision=commit, repo_type=self.kind, exist_ok=True
            )
        )

    def set_variable(self, key: str, value: str) -> None:
        """Set a Space's variable, which starts it anew, unless it has that value."""
        known = self._try(lambda: self.api.get_space_variables(self.name))
        if key not in known or known[key].value != value:
            self._try(lambda: self.api.add_space_variable(self.name, key, value))

    def _look(self, revision: str | None) -> Remote:
        try:
            info = self.api.repo_info(self.name, repo_type=self.kind, revision=revision)
        except RevisionNotFoundError:
            return Remote()
        except RepositoryNotFoundError as error:
            # Without a token the Hub says 401 of what is private and of what does not exist.
            if _status(error) == 401 and not get_token():
                raise
            return Remote()
        tree = self.api.list_repo_tree(self.name, repo_type=self.kind, revision=info.sha, recursive=True)
        found = [item for item in tree if isinstance(item, RepoFile)]
        files = {item.path: item.lfs.sha256 if item.lfs else item.blob_id for item in found}
        return Remote(info.sha, bool(info.private), files)

    def _create(self, public: bool) -> None:
        sdk = "gradio" if self.kind == "space" else None
        self.api.create_repo(self.name, repo_type=self.kind, private=not public, exist_ok=True, space_sdk=sdk)

    def _commit(self, remote: Remote, change: Change, message: str) -> str:
        operations: list[Any] = [
            CommitOperationAdd(path, data) for path, data in sorted(change.write.items())
        ]
        operations += [CommitOperationDelete(path) for path in change.remove]
        with warnings.catch_warnings():
            # Tables in a Space are meant: it shows them where no data set is named.
            warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")
            info = self.api.create_commit(
                self.name,
                operations,
                commit_message=message,
                repo_type=self.kind,
                parent_commit=remote.commit,
            )
        return str(info.oid)

    def _try(self, work: Callable[[], T]) -> T:
        """Do `work`, again after a pause where that may help."""
        attempt = 0
        while True:
            try:
                return work()
            except _TROUBLE as error:
                self._pause(error, attempt)
            attempt += 1

    def _pause(self, error: Exception, attempt: int) -> None:
        """Wait for the next try, or raise the InputError that ends them."""
        if type(error) is RuntimeError:
            if not isinstance(error.__cause__, _TROUBLE):
                raise error
            error = error.__cause__
        pause = wait(error, attempt)
        if pause is None:
            raise InputError(self._sentence(error)) from None
        self.sleep(pause)

    def _sentence(self, error: Exception) -> str:
        if isinstance(error, LocalTokenNotFoundError):
            return f"{self.name}: {_MEANING[401]}."
        if not (status := _status(error)):
            return f"The Hub could not be reached for {self.name}: {type(error).__name__}."
        meaning = _MEANING.get(status, "the Hub failed; give the command again later")
        return f"The Hub answered {status} for {self.name}: {meaning}."
