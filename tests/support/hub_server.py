"""A local server with the parts of the Hub's protocol to publish, update, pin, and load repositories.

Repositories are in memory, without Git LFS and Xet. `faults` injects errors: a function for each pattern of
`METHOD path`, which may refuse the request, respond to it, or delay it.
"""

import base64
import hashlib
import json
import re
from collections import namedtuple
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from werkzeug import Request, Response
from werkzeug.exceptions import abort

from tests.support.local_server import LocalServer, json_response

TOKEN = "hf_localtesttoken00000000000000000"
_NAME = r"(?P<name>[^/]+/[^/]+)"
_REPO_TYPE = r"(?P<kind>datasets|models|spaces)"


Commit = namedtuple("Commit", "sha files message")
"""All files by path."""


@dataclass
class Repository:
    """Commits in order."""

    private: bool
    commits: list[Commit] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    gated: bool = False  # its metadata are public, its files aren't

    def commit(self, files, message):
        """Add a commit.

        Args:
            files: All files by path.
            message: Summary.

        Returns:
            Its hash.
        """
        sha = hashlib.sha1(f"{len(self.commits)}{message}{sorted(files)}".encode()).hexdigest()
        self.commits.append(Commit(sha, files, message))
        return sha

    def at(self, revision):
        by_name = {commit.sha: commit for commit in self.commits} | {"main": self.commits[-1]}
        return by_name.get(self.tags.get(revision, revision))


class Hub(LocalServer):
    def __init__(self):
        super().__init__()
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.faults = {}
        self.requests: list[str] = []

    def put(self, kind, name, files):
        """Make a public repository with one commit, in place of an earlier one.

        Args:
            kind: "datasets", "models", or "spaces".
            name: OWNER/NAME.
            files: Content by path, or a folder.
        """
        if isinstance(files, Path):
            files = {path.name: path.read_bytes() for path in files.iterdir()}
        self.repositories[kind, name] = Repository(False)
        self.repositories[kind, name].commit(files, "made")

    def files(self, name, kind="datasets"):
        """Return the files of a repository's last commit.

        Args:
            name: OWNER/NAME.
            kind: "datasets", "models", or "spaces".

        Returns:
            Content by path.
        """
        return self.repositories[kind, name].commits[-1].files

    def dispatch(self, request):
        path = urlsplit(request.environ["RAW_URI"]).path
        request_line = f"{request.method} {path}"
        self.requests.append(request_line)
        for pattern, fault in self.faults.items():
            if re.search(pattern, request_line) and (answer := fault(request)):
                return answer
        answer = _HubRequest(self, request).answer(path)
        return answer if isinstance(answer, Response) else json_response({} if answer is None else answer)


def refuse_request(status, message, code="", **headers):
    """End the request with an error.

    Args:
        status: HTTP status.
        message: Its message.
        code: The Hub's code of the error.
        **headers: Further headers.
    """
    headers |= {"X-Error-Code": code, "X-Error-Message": message}
    abort(json_response({"error": message}, status, headers))


@dataclass
class _HubRequest:
    """One request."""

    hub: Hub
    request: Request

    def answer(self, path):
        for methods, pattern, action in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.request.method in methods.split():
                return action(self, **match.groupdict())
        refuse_request(404, f"no such call: {self.request.method} {path}", "EntryNotFound")

    @property
    def authorized(self):
        return self.request.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _find(self, kind, name, write=False):
        repository = self.hub.repositories.get((kind, name))
        if repository is None or ((repository.private or write) and not self.authorized):
            refuse_request(404 if self.authorized else 401, "Repository not found", "RepoNotFound")
        return repository

    def _at(self, kind, name, revision):
        repository = self._find(kind, name)
        if (commit := repository.at(revision)) is None:
            refuse_request(404, "Invalid rev id", "RevisionNotFound")
        return repository, commit

    def auth_check(self, kind, name):
        if self._find(kind, name).gated:
            refuse_request(403 if self.authorized else 401, f"Access to {name} is restricted.", "GatedRepo")

    def whoami(self):
        return {"type": "user", "name": "user", "auth": {}}

    def create(self):
        wanted = self.request.json
        kind, name = f"{wanted.get('type', 'model')}s", f"user/{wanted['name']}"
        repository = self.hub.repositories[kind, name] = Repository(_is_private(wanted))
        repository.commit({".gitattributes": b""}, "initial commit")
        return {"url": f"{self.hub.url}/{kind}/{name}", "name": name, "id": name}

    def info(self, kind, name, revision):
        repository, (sha, files, _) = self._at(kind, name, revision or "main")
        info = {"id": name, "sha": sha, "private": repository.private, "tags": []}
        info["siblings"] = [{"rfilename": path, "size": len(files[path])} for path in sorted(files)]
        return info | {"gated": "manual" if repository.gated else False}

    def tree(self, kind, name, revision, folder=None):
        start = f"{(folder or '').strip('/')}/".lstrip("/")
        files = self._at(kind, name, revision)[1].files
        inside = {p: data for p, data in files.items() if p.startswith(start)}
        parents = {p[:i] for p in inside for i, letter in enumerate(p) if letter == "/" and i >= len(start)}
        listed = [{"type": "directory", "path": p, "oid": "0" * 40, "size": 0} for p in sorted(parents)]
        listed += [file_entry(path, data) for path, data in sorted(inside.items())]
        if self.request.args.get("recursive", "").lower() != "true":
            listed = [entry for entry in listed if "/" not in str(entry["path"])[len(start) :]]
        return listed

    def preupload(self, kind, name, revision):
        files = self._find(kind, name, write=True).commits[-1].files
        paths = [file["path"] for file in self.request.json["files"]]
        oids = {path: {"oid": file_entry(path, files[path])["oid"]} for path in paths if path in files}
        plain = {"uploadMode": "regular", "shouldIgnore": False}
        return {"files": [{"path": path, **plain, **oids.get(path, {})} for path in paths]}

    def commit(self, kind, name, revision):
        repository = self._find(kind, name, write=True)
        files, message = dict(repository.commits[-1].files), ""
        for line in self.request.data.splitlines():
            key, value = (item := json.loads(line))["key"], item["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "deletedFile":
                del files[value["path"]]
        sha = repository.commit(files, message)
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{kind}/{name}/commit/{sha}"}

    def settings(self, kind, name):
        self._find(kind, name, write=True).private = _is_private(self.request.json)

    def resolve(self, kind, name, revision, file):
        kind, path = kind or "models", unquote(file)
        sha, files, _ = self._at(kind, name, revision)[1]
        self.auth_check(kind, name)
        if path not in files:
            refuse_request(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": sha})
        data, etag = files[path], file_entry(path, files[path])["oid"]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Content-Length": str(len(data))}
        parts = (data[start : start + 2**20] for start in range(0, len(data), 2**20))
        response = Response(parts, headers=headers, content_type="application/octet-stream")
        return response.make_conditional(self.request, accept_ranges=True, complete_length=len(data))


def _is_private(wanted):
    return bool(wanted.get("private") or wanted.get("visibility") == "private")


@lru_cache(maxsize=8)  # large files are requested in many parts
def file_entry(path, data):
    """Describe a file as the Hub lists it.

    Args:
        path: Path in the repository.
        data: Content.

    Returns:
        The entry.
    """
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return {"type": "file", "path": path, "size": len(data), "oid": oid}


_REPOSITORY, _REVISION = f"/api/{_REPO_TYPE}/{_NAME}", "(?P<revision>[^/]+)"
_ROUTES = [
    ("POST", "/api/repos/create", _HubRequest.create),
    ("GET", "/api/whoami-v2", _HubRequest.whoami),
    ("POST", "/api/validate-yaml", lambda _: {"errors": [], "warnings": []}),
    ("GET", f"{_REPOSITORY}/auth-check", _HubRequest.auth_check),
    ("GET", f"{_REPOSITORY}(?:/revision/{_REVISION})?", _HubRequest.info),
    ("GET", f"{_REPOSITORY}/tree/{_REVISION}(?P<folder>/.*)?", _HubRequest.tree),
    ("POST", f"{_REPOSITORY}/preupload/{_REVISION}", _HubRequest.preupload),
    ("POST", f"{_REPOSITORY}/commit/{_REVISION}", _HubRequest.commit),
    ("PUT", f"{_REPOSITORY}/settings", _HubRequest.settings),
    ("GET HEAD", f"/(?:{_REPO_TYPE}/)?{_NAME}/resolve/{_REVISION}/(?P<file>.+)", _HubRequest.resolve),
]
