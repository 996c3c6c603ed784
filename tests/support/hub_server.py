"""A local server that speaks enough of the Hub's protocol to publish, update, tag, pin and load.

Repositories live in memory; no file is so large that it goes by another way (Git LFS, Xet). `faults` makes it
misbehave: refuse with a status, cut a connection in the middle of a request, or be slow.
"""

from __future__ import annotations

import base64
import json
import mmap
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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

    def log_message(self, *_):
        """Say nothing."""

    def _read(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status, value=None, headers=None):
        plain = isinstance(value, bytes | mmap.mmap)
        data = value if plain else json.dumps({} if value is None else value).encode()
        self.send_response(status)
        about = {"Content-Length": str(len(data)), "Content-Type": "application/json", **(headers or {})}
        for header in about.items():
            self.send_header(*header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _hang_up(self):
        self.wfile.flush()
        self.connection.close()
        self.close_connection = True

    def _any(self):
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

    def _answer(self, path):
        """What the route's method returns: a value, or a status with data and headers."""
        if self.known and self.headers["Authorization"] != f"Bearer {TOKEN}":
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
    def known(self):
        return self.headers.get("Authorization") is not None

    def _log_in(self):
        if not self.known:
            raise _Refused(401, "Invalid username or password.")

    def _find(self, kind, name, write=False):
        if write:
            self._log_in()
        repository = self.hub.repositories.get((kind, name))
        if repository is None or (repository.private and not self.known):
            raise _Refused(404 if self.known else 401, "Repository not found", "RepoNotFound")
        return repository

    def _at(self, kind, name, revision):
        repository = self._find(kind, name)
        if (commit := repository.at(revision)) is None:
            raise _Refused(404, "Invalid rev id", "RevisionNotFound")
        return repository, *commit

    def auth_check(self, kind, name):
        if self._find(kind, name).gated:
            refused = f"Access to {name} is restricted."
            raise _Refused(403 if self.known else 401, refused, "GatedRepo")
        return {}

    def whoami(self):
        self._log_in()
        return {"type": "user", "name": "user", "auth": {}}

    def create(self):
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
        repository.commit({".gitattributes": b""}, "initial commit")
        return {"url": url, "name": name, "id": name}

    def info(self, kind, name, revision):
        repository, sha, files = self._at(kind, name, revision or "main")
        about = {"id": name, "sha": sha, "private": repository.private, "tags": []}
        about["siblings"] = [{"rfilename": path, "size": len(files[path])} for path in sorted(files)]
        return about | {"gated": "manual" if repository.gated else False}

    def tree(self, kind, name, revision, folder=None):
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

    def paths(self, kind, name, revision):
        files, body = self._at(kind, name, revision)[2], self.body
        wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
        return [entry_of(path, files[path]) for path in wanted if path in files]

    def preupload(self, kind, name, revision):
        files = self._find(kind, name, write=True).commits[-1][1]
        if not name.startswith("user/"):
            raise _Refused(403, "You don't have write access")
        answer = []
        for path in (file["path"] for file in json.loads(self.body)["files"]):
            answer.append({"path": path, "uploadMode": "regular", "shouldIgnore": False})
            if path in files:
                answer[-1]["oid"] = entry_of(path, files[path])["oid"]
        return {"files": answer}

    def commit(self, kind, name, revision):
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
            elif key == "deletedFile":
                del files[value["path"]]
        sha = repository.commit(files, message)
        return {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{kind}/{name}/commit/{sha}"}

    def tag(self, kind, name, revision):
        repository = self._find(kind, name, write=True)
        wanted = json.loads(self.body)["tag"]
        if wanted in repository.tags:
            raise _Refused(409, "Tag already exists")
        repository.tags[wanted] = self._at(kind, name, revision)[1]

    def refs(self, kind, name):
        tags = self._find(kind, name).tags.items()
        named = [{"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": sha} for tag, sha in tags]
        return {"branches": [], "converts": [], "tags": named}

    def settings(self, kind, name):
        repository, wanted = self._find(kind, name, write=True), json.loads(self.body)
        repository.private = wanted.get("private", wanted.get("visibility") == "private")
        return {"private": repository.private}

    def variables(self, kind, name):
        repository = self._find(kind, name, write=True)
        if self.command == "POST":
            wanted = json.loads(self.body)
            repository.variables[wanted["key"]] = wanted["value"]
        return {key: {"value": value} for key, value in repository.variables.items()}

    def resolve(self, kind, name, revision, file):
        repository, sha, files = self._at(kind or "models", name, revision)
        if repository.gated:
            refused = f"Access to dataset {name} is restricted."
            raise _Refused(403 if self.known else 401, refused, "GatedRepo")
        path = unquote(file)
        if path not in files:
            raise _Refused(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": sha})
        data, etag = files[path], entry_of(path, files[path])["oid"]
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
_ROUTES = [
    ("POST", "/api/repos/create", _Handler.create),
    ("GET", "/api/whoami-v2", _Handler.whoami),
    ("POST", "/api/validate-yaml", lambda _: {"errors": [], "warnings": []}),
    ("GET", f"{_OF}/auth-check", _Handler.auth_check),
    ("GET", f"{_OF}(?:/revision/{_AT})?", _Handler.info),
    ("GET", f"{_OF}/tree/{_AT}(?P<folder>/.*)?", _Handler.tree),
    ("POST", f"{_OF}/paths-info/{_AT}", _Handler.paths),
    ("POST", f"{_OF}/preupload/{_AT}", _Handler.preupload),
    ("POST", f"{_OF}/commit/{_AT}", _Handler.commit),
    ("POST", f"{_OF}/tag/{_AT}", _Handler.tag),
    ("GET", f"{_OF}/refs", _Handler.refs),
    ("PUT", f"{_OF}/settings", _Handler.settings),
    ("GET POST", f"{_OF}/variables", _Handler.variables),
    ("GET HEAD", f"/(?:{_KIND}/)?{_NAME}/resolve/{_AT}/(?P<file>.+)", _Handler.resolve),
]


@contextmanager
def serve():
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
