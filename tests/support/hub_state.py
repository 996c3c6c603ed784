"""What the local Hub holds: repositories of commits, and the faults that it is told to have."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote


@dataclass
class Repository:
    """Commits in order; each is all files by path."""

    private: bool
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    gated: bool = False  # what it is can be asked, its files cannot: nobody has accepted the terms

    def commit(self, files, message):
        sha = hashlib.sha1(f"{len(self.commits)}{message}{sorted(files)}".encode()).hexdigest()
        self.commits.append((sha, files))
        self.messages.append(message)
        return sha

    def at(self, revision):
        revision = unquote(revision)
        if revision in ("main", "refs/heads/main"):
            return self.commits[-1]
        revision = self.tags.get(revision, revision)
        return next((commit for commit in self.commits if commit[0] == revision), None)


@dataclass
class Fault:
    """What happens to requests `METHOD path` that match, `times` times."""

    pattern: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    seconds: float = 0.0
    times: int = 1


@dataclass
class Hub:
    """The server's state, which tests look into."""

    url: str = ""
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # old name -> new one
    sent: int = 0  # bytes of files

    def put(self, kind, name, files):
        """A public repository with one commit of these files (or a folder's), in place of what was there."""
        if isinstance(files, Path):
            files = {path.name: path.read_bytes() for path in files.iterdir()}
        self.repositories[kind, name] = Repository(False)
        self.repositories[kind, name].commit(files, "made")

    def files(self, name, kind="datasets"):
        return self.repositories[kind, name].commits[-1][1]


def entry_of(path, data):
    blob = hashlib.sha1(b"blob %d\0" % len(data))
    blob.update(data)
    return {"type": "file", "path": path, "size": len(data), "oid": blob.hexdigest()}
