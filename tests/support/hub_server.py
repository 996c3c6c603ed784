"""A local server that speaks enough of the Hub's protocol to publish, update, tag, pin and load.

Repositories live in memory. `faults` makes it misbehave: refuse with a status, cut a connection in the middle
of a request, or be slow.
"""

from __future__ import annotations

import base64
import json
import mmap
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.hub_state import Fault as Fault
from tests.support.hub_state import Hub as Hub
from tests.support.hub_state import Repository as Repository
from tests.support.hub_state import entry_of

TOKEN = "hf_localtesttoken00000000000000000"
_NAME = r"(?P<name>[^/]+/[^/]+)"
_KIND = r"(?P<kind>datasets|models|spaces)"


@dataclass(eq=False)
class _Refused(Exception):
    """An answer other than 200."""

    status: int
    message: str
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    """Answers each request with what the method of its route returns."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms between its headers and its body
    hub: Hub

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status: int, value: Any = None, headers: dict[str, str] | None = None) -> None:
        plain = isinstance(value, bytes | mmap.mmap)
        data = value if plain else json.dumps({} if value is None else value).encode()
        self.send_response(status)
        about = {"Content-Length": str(len(data)), "Content-Type": "application/json", **(headers or {})}
        for header in about.items():
            self.send_header(*header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.connection.close()
        self.close_connection = True

    def _any(self) -> None:
        path = urlsplit(self.path).path
        request = f"{self.command} {path}"
        self.hub.requests.append(request)
        fault = next((f for f in self.hub.faults if f.times and re.search(f.pattern, request)), Fault(""))
        fault.times -= 1
        if fault.cut:
            self.rfile.read(min(64, int(self.headers.get("Content-Length") or 64)))
            self._hang_up()
            return
        time.sleep(fault.seconds)
        self.body = self._read()
        try:
            if fault.status:
                raise _Refused(fault.status, "the server was told to refuse", headers=fault.headers)
            found = self._answer(path)
            answer = found if isinstance(found, tuple) else (200, found)
        except _Refused as no:
            about = {"X-Error-Code": no.code, "X-Error-Message": no.message, **no.headers}
            answer = no.status, {"error": no.message, "url": no.url}, about
        self._send(*answer)

    def _answer(self, path: str) -> Any:
        """What the route's method returns: a value, or a status with data and headers."""
        if self.known and self.headers["Authorization"] != f"Bearer {TOKEN}" and not path.startswith("/lfs/"):
            raise _Refused(401, "Invalid credentials in Authorization header")
        for methods, pattern, action in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods.split():
                old = match.groupdict().get("name", "")
                if old in self.hub.renamed:
                    target = self.path.replace(old, self.hub.renamed[old], 1)
                    raise _Refused(307, "moved", headers={"Location": target})
                return action(self, **match.groupdict())
        raise _Refused(404, f"no such call: {self.command} {path}", "EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _any

    @property
    def known(self) -> bool:
        return self.headers.get("Authorization") is not None

    def _log_in(self) -> None:
        if not self.known:
            raise _Refused(401, "Invalid username or password.")

    def _find(self, kind: str, name: str, write: bool = False) -> Repository:
        if write:
            self._log_in()
        repository = self.hub.repositories.get((kind, name))
        if repository is None or (repository.private and not self.known):
            raise _Refused(404 if self.known else 401, "Repository not found", "RepoNotFound")
        return repository

    def _at(self, kind: str, name: str, revision: str) -> tuple[Repository, str, dict[str, bytes]]:
        repository = self._find(kind, name)
        if (commit := repository.at(revision)) is None:
            raise _Refused(404, "Invalid rev id", "RevisionNotFound")
        return repository, *commit

    def auth_check(self, kind: str, name: str) -> Any:
        if self._find(kind, name).gated:
            refused = f"Access to {name} is restricted."
            raise _Refused(403 if self.known else 401, refused, "GatedRepo")
        return {}

    def whoami(self) -> Any:
        self._log_in()
        return {"type": "user", "name": "user", "auth": {}}

    def create(self) -> Any:
        self._log_in()
        wanted = json.loads(self.body)
        kind = f"{wanted.get('type', 'model')}s"
        name = f"{wanted.get('organization') or 'user'}/{wanted['name']}"
        url = f"{self.hub.url}/{kind}/{name}"
        if not name.startswith("user/"):
            raise _Refused(403, "You don't have the rights to create a repository under this namespace")
        if (kind, name) in self.hub.repositories:
            raise _Refused(409, "You already created this repo", url=url)
        private = wanted.get("private") or wanted.get("visibility") == "private"
        repository = self.hub.repositories[kind, name] = Repository(bool(private))
        attributes = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"
        repository.commit({".gitattributes": attributes}, "initial commit")
        return {"url": url, "name": name, "id": name}

    def info(self, kind: str, name: str, revision: str | None) -> Any:
        repository, sha, files = self._at(kind, name, revision or "main")
        about = {"id": name, "sha": sha, "private": repository.private, "tags": []}
        about["siblings"] = [{"rfilename": path, "size": len(files[path])} for path in sorted(files)]
        return about | {"gated": "manual" if repository.gated else False}

    def tree(self, kind: str, name: str, revision: str, folder: str | None = None) -> Any:
        start = f"{(folder or '').strip('/')}/".lstrip("/")
        inside = {p: data for p, data in self._at(kind, name, revision)[2].items() if p.startswith(start)}
        if start and not inside:
            raise _Refused(404, "no such folder", "EntryNotFound")
        parents = {p[:i] for p in inside for i, letter in enumerate(p) if letter == "/" and i >= len(start)}
        listed = [{"type": "directory", "path": p, "oid": "0" * 40, "size": 0} for p in sorted(parents)]
        listed += [entry_of(path, data) for path, data in sorted(inside.items())]
        if parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() != "true":
            listed = [entry for entry in listed if "/" not in str(entry["path"])[len(start) :]]
        return listed

    def paths(self, kind: str, name: str, revision: str) -> Any:
        files, body = self._at(kind, name, revision)[2], self.body
        wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
        return [entry_of(path, files[path]) for path in wanted if path in files]

    def preupload(self, kind: str, name: str, revision: str) -> Any:
        files = self._find(kind, name, write=True).commits[-1][1]
        if not name.startswith("user/"):
            raise _Refused(403, "You don't have write access")
        answer = []
        for path in (file["path"] for file in json.loads(self.body)["files"]):
            mode = "lfs" if path.endswith(".parquet") else "regular"
            answer.append({"path": path, "uploadMode": mode, "shouldIgnore": False})
            if path in files:
                entry = entry_of(path, files[path])
                answer[-1]["oid"] = entry.get("lfs", entry)["oid"]
        return {"files": answer}

    def batch(self, kind: str, name: str) -> Any:
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            href = f"{self.hub.url}/lfs/{wanted['oid']}"
            actions = {} if wanted["oid"] in self.hub.stored else {"actions": {"upload": {"href": href}}}
            objects.append({"oid": wanted["oid"], "size": wanted["size"], **actions})
        return {"transfer": "basic", "objects": objects}

    def store(self, oid: str) -> Any:
        self.hub.stored[oid] = self.body

    def commit(self, kind: str, name: str, revision: str) -> Any:
        repository = self._find(kind, name, write=True)
        head, files = repository.commits[-1]
        files, message = dict(files), ""
        for line in self.body.splitlines():
            key, value = (item := json.loads(line))["key"], item["value"]
            if key == "header":
                message = value["summary"]
                if value.get("parentCommit", head) != head:
                    raise _Refused(412, "A commit has happened since. Please refresh and try again.")
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.stored[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        sha = repository.commit(files, message)
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{kind}/{name}/commit/{sha}"}

    def tag(self, kind: str, name: str, revision: str) -> Any:
        repository = self._find(kind, name, write=True)
        wanted = json.loads(self.body)["tag"]
        if wanted in repository.tags:
            raise _Refused(409, "Tag already exists")
        repository.tags[wanted] = self._at(kind, name, revision)[1]

    def refs(self, kind: str, name: str) -> Any:
        tags = self._find(kind, name).tags.items()
        named = [{"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": sha} for tag, sha in tags]
        return {"branches": [], "converts": [], "tags": named}

    def settings(self, kind: str, name: str) -> Any:
        repository, wanted = self._find(kind, name, write=True), json.loads(self.body)
        repository.private = wanted.get("private", wanted.get("visibility") == "private")
        return {"private": repository.private}

    def variables(self, kind: str, name: str) -> Any:
        repository = self._find(kind, name, write=True)
        if self.command == "POST":
            wanted = json.loads(self.body)
            repository.variables[wanted["key"]] = wanted["value"]
        return {key: {"value": value} for key, value in repository.variables.items()}

    def resolve(self, kind: str | None, name: str, revision: str, file: str) -> Any:
        repository, sha, files = self._at(kind or "models", name, revision)
        if repository.gated:
            refused = f"Access to dataset {name} is restricted."
            raise _Refused(403 if self.known else 401, refused, "GatedRepo")
        path = unquote(file)
        if path not in files:
            raise _Refused(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": sha})
        data, entry = files[path], entry_of(path, files[path])
        etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
        kinds = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Content-Type": "application/octet-stream"}
        status, part = 200, data
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted and self.command == "GET":
            first = int(wanted[1])
            status, part = 206, data[first : int(wanted[2] or len(data) - 1) + 1]
            kinds["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        self.hub.sent += len(part) if self.command == "GET" else 0
        return status, part, kinds


_OF, _AT = f"/api/{_KIND}/{_NAME}", "(?P<revision>[^/]+)"
_ROUTES: list[tuple[str, str, Any]] = [
    ("POST", "/api/repos/create", _Handler.create),
    ("GET", "/api/whoami-v2", _Handler.whoami),
    ("POST", "/api/validate-yaml", lambda _: {"errors": [], "warnings": []}),
    ("GET", f"{_OF}/auth-check", _Handler.auth_check),
    ("GET", f"{_OF}(?:/revision/{_AT})?", _Handler.info),
    ("GET", f"{_OF}/tree/{_AT}(?P<folder>/.*)?", _Handler.tree),
    ("POST", f"{_OF}/paths-info/{_AT}", _Handler.paths),
    ("POST", f"{_OF}/preupload/{_AT}", _Handler.preupload),
    ("POST", f"/(?:{_KIND}/)?{_NAME}\\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]+)", _Handler.store),
    ("POST", f"{_OF}/commit/{_AT}", _Handler.commit),
    ("POST", f"{_OF}/tag/{_AT}", _Handler.tag),
    ("GET", f"{_OF}/refs", _Handler.refs),
    ("PUT", f"{_OF}/settings", _Handler.settings),
    ("GET POST", f"{_OF}/variables", _Handler.variables),
    ("GET HEAD", f"/(?:{_KIND}/)?{_NAME}/resolve/{_AT}/(?P<file>.+)", _Handler.resolve),
]


@contextmanager
def serve() -> Iterator[Hub]:
    """A Hub on a free local port."""
    hub = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub})) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
