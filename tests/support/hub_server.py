"""A local server that speaks enough of the Hub's protocol to publish, update, pin, and load.

Repositories live in memory; no file is so large that it goes by another way (Git LFS, Xet). `faults` makes it
misbehave: refuse with a status, cut a connection in the middle of a request, or be slow.
"""

import base64
import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from werkzeug import Request, Response
from werkzeug.exceptions import abort

from tests.support.local_server import LocalServer, as_json, hung_up

TOKEN = "hf_localtesttoken00000000000000000"
_NAME = r"(?P<name>[^/]+/[^/]+)"
_KIND = r"(?P<kind>datasets|models|spaces)"


@dataclass
class Repository:
    """Commits in order; each is all files by path."""

    private: bool
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    gated: bool = False  # what it is can be asked, its files cannot: nobody has accepted the terms

    def commit(self, files, message):
        """Add a commit.

        Args:
            files: All files by path.
            message: Summary.

        Returns:
            Its hash.
        """
        sha = hashlib.sha1(f"{len(self.commits)}{message}{sorted(files)}".encode()).hexdigest()
        self.commits.append((sha, files))
        self.messages.append(message)
        return sha

    def at(self, revision):
        revision = unquote(revision).removeprefix("refs/heads/")
        if revision == "main":
            return self.commits[-1]
        revision = self.tags.get(revision, revision)
        return next((commit for commit in self.commits if commit[0] == revision), None)


@dataclass
class Fault:
    """What happens to requests `METHOD path` that match, `times` times."""

    pattern: str
    status: int = 0
    cut: bool = False
    seconds: float = 0.0
    times: int = 1


class Hub(LocalServer):
    def __init__(self):
        super().__init__()
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.renamed: dict[str, str] = {}  # old name -> new one
        self.sent = 0  # bytes of files

    def put(self, kind, name, files):
        """Make a public repository with one commit, in place of an earlier one.

        Args:
            kind: datasets, models, or spaces.
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
            kind: datasets, models, or spaces.

        Returns:
            Content by path.
        """
        return self.repositories[kind, name].commits[-1][1]

    def dispatch(self, request):
        path = urlsplit(request.environ["RAW_URI"]).path
        request_line = f"{request.method} {path}"
        self.requests.append(request_line)
        fault = next((f for f in self.faults if f.times and re.search(f.pattern, request_line)), Fault(""))
        fault.times -= 1
        if fault.cut:
            return hung_up(request)
        time.sleep(fault.seconds)
        if fault.status:
            _refuse(fault.status, "the server was told to refuse")
        answer = _Call(self, request).answer(path)
        if isinstance(answer, Response):
            return answer
        return as_json({} if answer is None else answer)


def _refuse(status, message, code="", headers=None, url=""):
    headers_sent = {"X-Error-Code": code, "X-Error-Message": message, **(headers or {})}
    abort(as_json({"error": message, "url": url}, status, headers_sent))


@dataclass
class _Call:
    """One request."""

    hub: Hub
    request: Request

    def answer(self, path):
        if self.known and self.request.headers["Authorization"] != f"Bearer {TOKEN}":
            _refuse(401, "Invalid credentials in Authorization header")
        for methods, pattern, action in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.request.method in methods.split():
                old = match.groupdict().get("name", "")
                if old in self.hub.renamed:
                    target = self.request.environ["RAW_URI"].replace(old, self.hub.renamed[old], 1)
                    _refuse(307, "moved", headers={"Location": target})
                return action(self, **match.groupdict())
        return _refuse(404, f"no such call: {self.request.method} {path}", "EntryNotFound")

    @property
    def known(self):
        return "Authorization" in self.request.headers

    def _log_in(self):
        if not self.known:
            _refuse(401, "Invalid username or password.")

    def _find(self, kind, name, write=False):
        if write:
            self._log_in()
        repository = self.hub.repositories.get((kind, name))
        if repository is None or (repository.private and not self.known):
            _refuse(404 if self.known else 401, "Repository not found", "RepoNotFound")
        return repository

    def _at(self, kind, name, revision):
        repository = self._find(kind, name)
        if (commit := repository.at(revision)) is None:
            _refuse(404, "Invalid rev id", "RevisionNotFound")
        return repository, *commit

    def auth_check(self, kind, name):
        if self._find(kind, name).gated:
            _refuse(403 if self.known else 401, f"Access to {name} is restricted.", "GatedRepo")

    def whoami(self):
        self._log_in()
        return {"type": "user", "name": "user", "auth": {}}

    def create(self):
        self._log_in()
        wanted = self.request.json
        kind = f"{wanted.get('type', 'model')}s"
        name = f"{wanted.get('organization') or 'user'}/{wanted['name']}"
        url = f"{self.hub.url}/{kind}/{name}"
        if not name.startswith("user/"):
            _refuse(403, "You don't have the rights to create a repository under this namespace")
        if (kind, name) in self.hub.repositories:
            _refuse(409, "You already created this repo", url=url)
        repository = self.hub.repositories[kind, name] = Repository(_is_private(wanted))
        repository.commit({".gitattributes": b""}, "initial commit")
        return {"url": url, "name": name, "id": name}

    def info(self, kind, name, revision):
        repository, sha, files = self._at(kind, name, revision or "main")
        info = {"id": name, "sha": sha, "private": repository.private, "tags": []}
        info["siblings"] = [{"rfilename": path, "size": len(files[path])} for path in sorted(files)]
        return info | {"gated": "manual" if repository.gated else False}

    def tree(self, kind, name, revision, folder=None):
        start = f"{(folder or '').strip('/')}/".lstrip("/")
        inside = {p: data for p, data in self._at(kind, name, revision)[2].items() if p.startswith(start)}
        if start and not inside:
            _refuse(404, "no such folder", "EntryNotFound")
        parents = {p[:i] for p in inside for i, letter in enumerate(p) if letter == "/" and i >= len(start)}
        listed = [{"type": "directory", "path": p, "oid": "0" * 40, "size": 0} for p in sorted(parents)]
        listed += [entry_of(path, data) for path, data in sorted(inside.items())]
        if self.request.args.get("recursive", "").lower() != "true":
            listed = [entry for entry in listed if "/" not in str(entry["path"])[len(start) :]]
        return listed

    def paths(self, kind, name, revision):
        files = self._at(kind, name, revision)[2]
        wanted = self.request.form.getlist("paths") or self.request.json["paths"]
        return [entry_of(path, files[path]) for path in wanted if path in files]

    def preupload(self, kind, name, revision):
        files = self._find(kind, name, write=True).commits[-1][1]
        if not name.startswith("user/"):
            _refuse(403, "You don't have write access")
        paths = [file["path"] for file in self.request.json["files"]]
        oids = {path: {"oid": entry_of(path, files[path])["oid"]} for path in paths if path in files}
        plain = {"uploadMode": "regular", "shouldIgnore": False}
        return {"files": [{"path": path, **plain, **oids.get(path, {})} for path in paths]}

    def commit(self, kind, name, revision):
        repository = self._find(kind, name, write=True)
        head, files = repository.commits[-1]
        files, message = dict(files), ""
        for line in self.request.data.splitlines():
            key, value = (item := json.loads(line))["key"], item["value"]
            if key == "header":
                message = value["summary"]
                if value.get("parentCommit", head) != head:
                    _refuse(412, "A commit has happened since. Please refresh and try again.")
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
        _, sha, files = self._at(kind, name, revision)
        self.auth_check(kind, name)
        if path not in files:
            _refuse(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": sha})
        data, etag = files[path], entry_of(path, files[path])["oid"]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Content-Length": str(len(data))}
        parts = (data[start : start + 2**20] for start in range(0, len(data), 2**20))
        response = Response(parts, headers=headers, content_type="application/octet-stream")
        response.make_conditional(self.request, accept_ranges=True, complete_length=len(data))
        self.hub.sent += response.content_length if self.request.method == "GET" else 0
        return response


def _is_private(wanted):
    return bool(wanted.get("private") or wanted.get("visibility") == "private")


@lru_cache(maxsize=8)  # large files are asked for in many small parts
def entry_of(path, data):
    """Describe a file as the Hub lists it.

    Args:
        path: Path in the repository.
        data: Content.

    Returns:
        The entry.
    """
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return {"type": "file", "path": path, "size": len(data), "oid": oid}


_OF, _AT = f"/api/{_KIND}/{_NAME}", "(?P<revision>[^/]+)"
_ROUTES = [
    ("POST", "/api/repos/create", _Call.create),
    ("GET", "/api/whoami-v2", _Call.whoami),
    ("POST", "/api/validate-yaml", lambda _: {"errors": [], "warnings": []}),
    ("GET", f"{_OF}/auth-check", _Call.auth_check),
    ("GET", f"{_OF}(?:/revision/{_AT})?", _Call.info),
    ("GET", f"{_OF}/tree/{_AT}(?P<folder>/.*)?", _Call.tree),
    ("POST", f"{_OF}/paths-info/{_AT}", _Call.paths),
    ("POST", f"{_OF}/preupload/{_AT}", _Call.preupload),
    ("POST", f"{_OF}/commit/{_AT}", _Call.commit),
    ("PUT", f"{_OF}/settings", _Call.settings),
    ("GET HEAD", f"/(?:{_KIND}/)?{_NAME}/resolve/{_AT}/(?P<file>.+)", _Call.resolve),
]
