"""A local server that speaks enough of the Hub's protocol to publish, update, tag, pin and load.

Repositories live in memory. `faults` makes it misbehave: refuse with a status, cut a connection in the middle
of a request, or be slow.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

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
    variables: dict[str, str] = field(default_factory=dict)
    gated: bool = False  # what it is can be asked, its files cannot: nobody has accepted the terms

    def commit(self, files: dict[str, bytes], message: str) -> str:
        sha = hashlib.sha1(f"{len(self.commits)}{message}{sorted(files)}".encode()).hexdigest()
        self.commits.append((sha, files))
        self.messages.append(message)
        return sha

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
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
    stored: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # old name -> new one

    def files(self, name: str, kind: str = "datasets") -> dict[str, bytes]:
        return self.repositories[kind, name].commits[-1][1]


def _entry(path: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": oid}
    if path.endswith(".parquet"):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status: int, value: Any = None, headers: dict[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value if value is not None else {}).encode()
        self.send_response(status)
        for name, text in {
            "Content-Length": str(len(data)),
            "Content-Type": "application/json",
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _error(self, status: int, code: str, message: str) -> None:
        self._send(status, {"error": message}, {"X-Error-Code": code, "X-Error-Message": message})

    def _any(self) -> None:
        path = urlsplit(self.path).path
        request = f"{self.command} {path}"
        self.hub.requests.append(request)
        fault = next((f for f in self.hub.faults if f.times and re.search(f.pattern, request)), None)
        if fault:
            fault.times -= 1
            if fault.cut:
                self.rfile.read(min(64, int(self.headers.get("Content-Length") or 64)))
                self.connection.close()
                self.close_connection = True
                return
            time.sleep(fault.seconds)
        body = self._body()
        if fault and fault.status:
            self._send(fault.status, {"error": "the server was told to refuse"}, fault.headers)
            return
        if not path.startswith("/lfs/") and self.headers.get("Authorization") not in (
            None,
            f"Bearer {TOKEN}",
        ):
            self._error(401, "", "Invalid credentials in Authorization header")
            return
        for method, pattern, action in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                old = match.groupdict().get("name", "")
                if old in self.hub.renamed:
                    target = self.path.replace(old, self.hub.renamed[old], 1)
                    self._send(307, {"error": "moved"}, {"Location": target})
                    return
                action(self, body, **match.groupdict())
                return
        self._error(404, "EntryNotFound", f"no such call: {request}")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _any

    def _find(self, kind: str, name: str, write: bool = False) -> Repository | None:
        """The repository, or an answer that says why not."""
        known = self.headers.get("Authorization") is not None
        repository = self.hub.repositories.get((kind, name))
        if write and not known:
            self._error(401, "", "Invalid username or password.")
            return None
        if repository is None or (repository.private and not known):
            self._error(404 if known else 401, "RepoNotFound", "Repository not found")
            return None
        return repository

    def _at(self, kind: str, name: str, revision: str) -> tuple[Repository, str, dict[str, bytes]] | None:
        if (repository := self._find(kind, name)) is None:
            return None
        if (commit := repository.at(revision)) is None:
            self._error(404, "RevisionNotFound", "Invalid rev id")
            return None
        return repository, *commit

    def whoami(self, body: bytes) -> None:
        if self.headers.get("Authorization") is None:
            self._error(401, "", "Invalid username or password.")
        else:
            self._send(
                200, {"name": "user", "type": "user", "orgs": [], "auth": {"accessToken": {"role": "write"}}}
            )

    def create(self, body: bytes) -> None:
        wanted = json.loads(body)
        kind, name = (
            f"{wanted.get('type', 'model')}s",
            f"{wanted.get('organization') or 'user'}/{wanted['name']}",
        )
        if self.headers.get("Authorization") is None:
            self._error(401, "", "Invalid username or password.")
        elif not name.startswith("user/"):
            self._error(403, "", "You don't have the rights to create a repository under this namespace")
        elif (kind, name) in self.hub.repositories:
            self._send(
                409, {"error": "You already created this repo", "url": f"{self.hub.url}/{kind}/{name}"}
            )
        else:
            private = wanted.get("private") or wanted.get("visibility") == "private"
            repository = self.hub.repositories[kind, name] = Repository(bool(private))
            repository.commit(
                {".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"}, "initial commit"
            )
            self._send(200, {"url": f"{self.hub.url}/{kind}/{name}", "name": name, "id": name})

    def yaml(self, body: bytes) -> None:
        self._send(200, {"errors": [], "warnings": []})

    def info(self, body: bytes, kind: str, name: str, revision: str = "main") -> None:
        if found := self._at(kind, name, revision):
            repository, sha, files = found
            siblings = [{"rfilename": path} for path in sorted(files)]
            about = {"id": name, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []}
            self._send(200, about | {"gated": "manual" if repository.gated else False})

    def refs(self, body: bytes, kind: str, name: str) -> None:
        if repository := self._find(kind, name):
            tags = [
                {"name": t, "ref": f"refs/tags/{t}", "targetCommit": sha}
                for t, sha in repository.tags.items()
            ]
            main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commits[-1][0]}
            self._send(200, {"branches": [main], "tags": tags, "converts": []})

    def tree(self, body: bytes, kind: str, name: str, revision: str, folder: str | None = None) -> None:
        if found := self._at(kind, name, revision):
            inside = {
                p: data for p, data in found[2].items() if not folder or p.startswith(folder.strip("/") + "/")
            }
            if folder and not inside:
                self._error(404, "EntryNotFound", "no such folder")
                return
            start = f"{folder.strip('/')}/" if folder else ""
            parents = {
                p[:i] for p in inside for i, letter in enumerate(p) if letter == "/" and i >= len(start)
            }
            listed = [{"type": "directory", "path": p, "oid": "0" * 40, "size": 0} for p in sorted(parents)]
            listed += [_entry(path, data) for path, data in sorted(inside.items())]
            if parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() != "true":
                listed = [entry for entry in listed if "/" not in str(entry["path"])[len(start) :]]
            self._send(200, listed)

    def paths(self, body: bytes, kind: str, name: str, revision: str) -> None:
        if found := self._at(kind, name, revision):
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
            self._send(200, [_entry(path, found[2][path]) for path in wanted if path in found[2]])

    def preupload(self, body: bytes, kind: str, name: str, revision: str) -> None:
        if (repository := self._find(kind, name, write=True)) is None:
            return
        if not name.startswith("user/"):
            self._error(403, "", "You don't have write access")
            return
        files, answer = repository.commits[-1][1], []
        for file in json.loads(body)["files"]:
            path = file["path"]
            entry = {
                "path": path,
                "uploadMode": "lfs" if path.endswith(".parquet") else "regular",
                "shouldIgnore": False,
            }
            if path in files:
                entry["oid"] = _entry(path, files[path])["oid"]
            answer.append(entry)
        self._send(200, {"files": answer})

    def batch(self, body: bytes, kind: str, name: str) -> None:
        objects = []
        for wanted in json.loads(body)["objects"]:
            href = f"{self.hub.url}/lfs/{wanted['oid']}"
            actions = {} if wanted["oid"] in self.hub.stored else {"actions": {"upload": {"href": href}}}
            objects.append({"oid": wanted["oid"], "size": wanted["size"], **actions})
        self._send(200, {"transfer": "basic", "objects": objects})

    def store(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self._error(400, "", "checksum")
            return
        self.hub.stored[oid] = body
        self._send(200)

    def commit(self, body: bytes, kind: str, name: str, revision: str) -> None:
        if (repository := self._find(kind, name, write=True)) is None:
            return
        head, files = repository.commits[-1]
        files, message = dict(files), ""
        for line in body.splitlines():
            key, value = (item := json.loads(line))["key"], item["value"]
            if key == "header":
                message = value["summary"]
                if value.get("parentCommit", head) != head:
                    self._error(412, "", "A commit has happened since. Please refresh and try again.")
                    return
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.stored[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        sha = repository.commit(files, message)
        self._send(
            200,
            {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{kind}/{name}/commit/{sha}"},
        )

    def tag(self, body: bytes, kind: str, name: str, revision: str) -> None:
        if repository := self._find(kind, name, write=True):
            wanted, commit = json.loads(body)["tag"], repository.at(revision)
            if wanted in repository.tags:
                self._error(409, "", "Tag already exists")
            elif commit is None:
                self._error(404, "RevisionNotFound", "Invalid rev id")
            else:
                repository.tags[wanted] = commit[0]
                self._send(200)

    def settings(self, body: bytes, kind: str, name: str) -> None:
        if repository := self._find(kind, name, write=True):
            wanted = json.loads(body)
            repository.private = wanted.get("private", wanted.get("visibility") == "private")
            self._send(200, {"private": repository.private})

    def variables(self, body: bytes, kind: str, name: str) -> None:
        if repository := self._find(kind, name, write=True):
            self._send(200, {key: {"value": value} for key, value in repository.variables.items()})

    def variable(self, body: bytes, kind: str, name: str) -> None:
        if repository := self._find(kind, name, write=True):
            wanted = json.loads(body)
            repository.variables[wanted["key"]] = wanted["value"]
            self._send(200, {key: {"value": value} for key, value in repository.variables.items()})

    def resolve(self, body: bytes, kind: str | None, name: str, revision: str, file: str) -> None:
        if found := self._at(kind or "models", name, revision):
            repository, sha, files = found
            if repository.gated:
                known = self.headers.get("Authorization") is not None
                self._error(403 if known else 401, "GatedRepo", f"Access to dataset {name} is restricted.")
                return
            path = unquote(file)
            if path not in files:
                self._error(404, "EntryNotFound", "Entry not found")
                return
            data, entry = files[path], _entry(path, files[path])
            etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
            kinds = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Content-Type": "application/octet-stream"}
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            if wanted and self.command == "GET":
                first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
                part = data[first : last + 1]
                kinds["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
                self._send(206, part, kinds)
            else:
                self._send(200, data, kinds)


_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/api/whoami-v2", _Handler.whoami),
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.yaml),
    ("GET", f"/api/{_KIND}/{_NAME}", _Handler.info),
    ("GET", f"/api/{_KIND}/{_NAME}/revision/(?P<revision>[^/]+)", _Handler.info),
    ("GET", f"/api/{_KIND}/{_NAME}/refs", _Handler.refs),
    ("GET", f"/api/{_KIND}/{_NAME}/tree/(?P<revision>[^/]+)(?P<folder>/.*)?", _Handler.tree),
    ("POST", f"/api/{_KIND}/{_NAME}/paths-info/(?P<revision>[^/]+)", _Handler.paths),
    ("POST", f"/api/{_KIND}/{_NAME}/preupload/(?P<revision>[^/]+)", _Handler.preupload),
    ("POST", f"/(?:{_KIND}/)?{_NAME}\\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]+)", _Handler.store),
    ("POST", f"/api/{_KIND}/{_NAME}/commit/(?P<revision>[^/]+)", _Handler.commit),
    ("POST", f"/api/{_KIND}/{_NAME}/tag/(?P<revision>[^/]+)", _Handler.tag),
    ("PUT", f"/api/{_KIND}/{_NAME}/settings", _Handler.settings),
    ("POST", f"/api/{_KIND}/{_NAME}/variables", _Handler.variable),
    ("GET", f"/api/{_KIND}/{_NAME}/variables", _Handler.variables),
    ("HEAD", f"/(?:{_KIND}/)?{_NAME}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", _Handler.resolve),
    ("GET", f"/(?:{_KIND}/)?{_NAME}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", _Handler.resolve),
]


@contextmanager
def serve() -> Iterator[Hub]:
    """A Hub on a free local port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
