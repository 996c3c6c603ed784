"""A repository on the Hub: read first, then changed in one commit on top of what was read.

So nothing is ever half published, and what is there is not sent again. A refusal by the Hub becomes a
sentence that quotes nothing of the request, because the request holds the token.
"""

from __future__ import annotations

import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from ccs.errors import InputError
from ccs.files import endpoint

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 5
_BACKOFF = wait_exponential(multiplier=1.0, max=8.0)
_LONGEST_WAIT = 60.0
# Connections fail with the exceptions of whichever HTTP library huggingface_hub was built on, and so with
# the bases of its own.
_TROUBLE: tuple[type[Exception], ...] = (OSError, *HfHubHTTPError.__bases__)
_CONFLICT = "somebody else changed it at the same time; give the command again"
_MEANING = {
    401: "it does not accept the token, or there is none; log in with `hf auth login` or set HF_TOKEN",
    403: "the token may not write there; use a token with write access to that name",
    404: "it does not exist, or the token may not see it",
    409: _CONFLICT,
    412: _CONFLICT,
    429: "too many requests; wait some minutes and give the command again",
}


@dataclass(frozen=True)
class Change:
    """The changes of a commit to a repository: paths to write with their bytes, and paths to remove."""

    write: Mapping[str, bytes]
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)

    def __str__(self) -> str:
        lines = [f"  write  {path} ({len(data):,} bytes)" for path, data in sorted(self.write.items())]
        return "\n".join([*lines, *(f"  remove {path}" for path in self.remove)]) or "  nothing to change"


@dataclass(frozen=True)
class Remote:
    """A repository as it stands: its commit and each file's hash; no commit where it does not exist."""

    commit: str | None = None
    private: bool = True
    files: Mapping[str, str] = field(default_factory=dict)

    def difference(self, wanted: Mapping[str, bytes], owned: Iterable[str] = ()) -> Change:
        """Return what to write and remove. `owned`: prefixes of paths that are ours alone; all else stays."""
        write = {path: data for path, data in wanted.items() if not _same(data, self.files.get(path))}
        stale = {path for path in self.files if path.startswith(tuple(owned))} - wanted.keys()
        return Change(write, tuple(sorted(stale)))


def _same(data: bytes, known: str | None) -> bool:
    """Return whether data has the hash that the Hub gave: SHA-256 of the bytes, or git's hash of a blob."""
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
    return known in (hashlib.sha256(data).hexdigest(), blob.hexdigest())


def _patient(method: Callable[Concatenate[Repository, P], T]) -> Callable[Concatenate[Repository, P], T]:
    """Repeat a method of Repository while trouble may pass; what stays is an InputError."""

    @functools.wraps(method)
    def patient(self: Repository, /, *args: P.args, **kwargs: P.kwargs) -> T:
        again, stop = retry_if_exception(_may_pass), stop_after_attempt(_ATTEMPTS)
        try:
            return Retrying(retry=again, stop=stop, wait=_wait, reraise=True)(method, self, *args, **kwargs)
        except Exception as raised:
            if (error := _of_hub(raised)) is None:
                raise
            status = _status(error)
            meaning = _MEANING.get(status, "the Hub failed; give the command again later")
            raise InputError(
                f"The Hub answered {status} for {self.name}: {meaning}."
                if status
                else f"The Hub could not be reached for {self.name}: {type(error).__name__}."
            ) from None

    return patient


def _of_hub(raised: BaseException) -> BaseException | None:
    """Return the error of the Hub or the connection behind an exception; None if there is none."""
    error = raised.__cause__ if type(raised) is RuntimeError else raised  # so an upload's thread wraps it
    return error if isinstance(error, _TROUBLE) else None


def _status(error: BaseException | None) -> int:
    """Return the status that the Hub answered with, 0 if it did not answer."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _may_pass(raised: BaseException) -> bool:
    error = _of_hub(raised)
    return error is not None and (_status(error) in (0, 409, 412, 429) or _status(error) >= 500)


def _wait(state: RetryCallState) -> float:
    """Return the seconds until the next attempt: what the Hub asks for, up to a minute, else ever more."""
    raised = state.outcome.exception() if state.outcome else None
    headers = getattr(getattr(raised and _of_hub(raised), "response", None), "headers", {})
    asked = str(headers.get("Retry-After", ""))
    return min(float(asked), _LONGEST_WAIT) if asked.isdigit() else _BACKOFF(state)


class Repository:
    """A repository to write to. `kind`: dataset, model or space. Trouble that may pass is waited out."""

    def __init__(self, name: str, kind: str = "dataset") -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise InputError(
                "A repository is named USER/NAME: letters, digits, '-', '_' and '.' on both sides."
            )
        self.api = HfApi(endpoint=endpoint())
        self.name, self.kind = name, kind

    @_patient
    def state(self, revision: str | None = None) -> Remote:
        """Return what is on the Hub now, or at a revision."""
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

    @_patient
    def fetch(self, path: str, revision: str) -> bytes:
        """Return one small file's bytes."""
        local = self.api.hf_hub_download(self.name, path, repo_type=self.kind, revision=revision)
        return Path(local).read_bytes()

    @_patient
    def push(self, plan: Callable[[Remote], Change], message: str, *, public: bool) -> tuple[str, Change]:
        """Bring the repository to what `plan` makes of its state, in one commit; return commit and change.

        A commit whose answer was lost, or that another one overtook, is planned anew from what is then there.
        A new repository is private unless `public`.
        """
        api, kind, remote = self.api, self.kind, self.state()
        if remote.commit is None:
            sdk = "gradio" if kind == "space" else None
            api.create_repo(self.name, repo_type=kind, private=not public, exist_ok=True, space_sdk=sdk)
            remote = self.state()
        change = plan(remote)
        if public and remote.private:
            api.update_repo_settings(self.name, repo_type=kind, private=False)
        if not change:
            return str(remote.commit), change
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(path, data) for path, data in sorted(change.write.items())
        ]
        operations += [CommitOperationDelete(path) for path in change.remove]
        with warnings.catch_warnings():
            # Tables in a Space are meant: it shows them where no data set is named.
            warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")
            info = api.create_commit(
                self.name, operations, commit_message=message, repo_type=kind, parent_commit=remote.commit
            )
        return str(info.oid), change

    @_patient
    def tag(self, name: str, commit: str) -> None:
        """Name a commit; a tag that is there already stays where it is."""
        self.api.create_tag(self.name, tag=name, revision=commit, repo_type=self.kind, exist_ok=True)

    @_patient
    def set_variable(self, key: str, value: str) -> None:
        """Set a Space's variable, which restarts it, unless it has that value."""
        known = self.api.get_space_variables(self.name)
        if key not in known or known[key].value != value:
            self.api.add_space_variable(self.name, key, value)
