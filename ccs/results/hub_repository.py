"""A repository on the Hub: its content, and uploads of folders.

A refusal by the Hub becomes a sentence that quotes nothing of the request: the request holds the token.
"""

import fnmatch
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from ccs.errors import InputError
from ccs.files import endpoint

# Connections fail with the exceptions of whichever HTTP library huggingface_hub was built on, and so with
# its own base classes. A token or proxy that can't be used is a ValueError or ImportError.
_TROUBLE: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, *HfHubHTTPError.__bases__)
_CONFLICT = "somebody else changed it at the same time; give the command again"
_MEANING = {
    401: "it does not accept the token, or there is none; log in with `hf auth login` or set HF_TOKEN",
    403: "the token may not write there; use a token with write access to that name",
    404: "it does not exist, or the token may not see it",
    409: _CONFLICT,
    412: _CONFLICT,
    429: "too many requests; wait some minutes and give the command again",
}


class Repository:
    """A repository as it is when this object is made. Its methods raise InputError.

    Args:
        name: USER/NAME.
        kind: Kind of repository: "dataset", "model", or "space".

    Attributes:
        commit: Its newest commit; None if there is none or the token may not see it.
    """

    def __init__(self, name: str, kind: str = "dataset") -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise InputError("A repository is named USER/NAME: letters, digits, '-', '_', '.' on both sides.")
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings repeat our errors
        self.api, self.name, self.kind = HfApi(endpoint=endpoint()), name, kind
        self.commit: str | None = None
        self.private, self.files = True, tuple[str, ...]()
        with self._explained(), suppress(RepositoryNotFoundError):
            info = self.api.repo_info(self.name, repo_type=self.kind)
            self.commit, self.private = info.sha, bool(info.private)
            self.files = tuple(file.rfilename for file in getattr(info, "siblings", None) or ())

    def require_login(self) -> None:
        """Raise InputError if the Hub can't be reached, or knows no user for the token."""
        if get_token() is None:
            raise InputError(f"The Hub refuses {self.name}: {_MEANING[401]}.")
        with self._explained():
            self.api.whoami()

    def fetch(self, path: str) -> bytes:
        """Download a file of the repository and return its bytes."""
        with self._explained():
            local = self.api.hf_hub_download(self.name, path, repo_type=self.kind, revision=self.commit)
            return Path(local).read_bytes()

    def push(
        self, files: Mapping[str, Path | bytes], message: str, *, public: bool, owned: Sequence[str] = ()
    ) -> str:
        """Upload files in one commit.

        Args:
            files: Each file, or its content, by its path in the repository.
            message: The commit message.
            public: Make a new repository public; otherwise it is private.
            owned: Patterns of paths that are removed if they aren't among the files.

        Returns:
            The commit.
        """
        stale = {path for pattern in owned for path in fnmatch.filter(self.files, pattern)} - files.keys()
        operations: list[Any] = [CommitOperationAdd(path, content) for path, content in files.items()]
        operations += map(CommitOperationDelete, sorted(stale))
        with self._explained(), warnings.catch_warnings():
            # The benchmark's models come with their tables on purpose.
            warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")
            place: dict[str, Any] = {"repo_id": self.name, "repo_type": self.kind}
            if self.commit is None:
                sdk = "static" if self.kind == "space" else None
                self.api.create_repo(**place, private=not public, exist_ok=True, space_sdk=sdk)
            elif public and self.private:
                self.api.update_repo_settings(**place, private=False)
            info = self.api.create_commit(
                **place, operations=operations, commit_message=message, parent_commit=self.commit
            )
            return str(info.oid)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as raised:  # an upload's thread wraps its own in a RuntimeError
            error = raised.__cause__ if type(raised) is RuntimeError else raised
            if not isinstance(error, _TROUBLE):
                raise
            status = int(getattr(getattr(error, "response", None), "status_code", 0))
            if not status:
                cause = str(error).rstrip(".") if isinstance(error, ImportError) else type(error).__name__
                raise InputError(f"The Hub could not be reached for {self.name}: {cause}.") from None
            meaning = _MEANING.get(status, "the Hub failed; give the command again later")
            raise InputError(f"The Hub answered {status} for {self.name}: {meaning}.") from None


def folder_files(folder: Path) -> dict[str, Path]:
    """Return all files in a folder by their paths in it, for `Repository.push`."""
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
