"""A visitor without a browser, who sends forms and reads changed regions as the app's script does."""

import csv
import re
from contextlib import AbstractContextManager
from urllib.parse import parse_qsl, urlencode

import httpx

_REGION = r'<div id="region-(\w+)" data-digest="(\w+)">(.*?)(?=<div id="region-|</main>|\Z)'


class Visitor(AbstractContextManager["Visitor"]):
    """One page of the app.

    Args:
        server: An address, or an HTTP client of one.
        source: IP address of the visitor.
    """

    def __init__(self, server, source="127.0.0.1"):
        if isinstance(server, str):
            transport = httpx.HTTPTransport(local_address=source)
            server = httpx.Client(base_url=server, transport=transport, timeout=120, trust_env=False)
        self.client, self.regions, self.key, self.address = server, {}, "", ""

    def __exit__(self, *error):
        self.client.close()

    def __getitem__(self, region):
        return self.regions[region][1]

    def visit(self, query=""):
        """Open an address and read its regions."""
        answer = self.client.get(f"/?{query}")
        assert answer.status_code == 200
        (self.key,) = re.findall(r'data-page="([\w-]+)"', answer.text)
        self.address = query
        return self.read_regions(answer)

    def open(self, **query):
        """Open a screen, wait until it is complete, and return its regions."""
        self.visit(urlencode(query)).wait()
        return {name: html for name, (_, html) in self.regions.items()}

    def figure(self, name):
        """Download the rows of a figure."""
        params = {"figure": name, "page": self.key, **dict(parse_qsl(self.address))}
        answer = self.client.get("/figure.csv", params=params)
        assert answer.status_code == 200, answer.text
        return list(csv.DictReader(answer.text.splitlines()))

    def send(self, path, files=None, **fields):
        """Send a form.

        Args:
            path: Route of the form.
            files: Files to upload.
            **fields: Fields of the form.

        Returns:
            The answer.
        """
        data = {"page": self.key, "at": self.address, **fields}
        self.last_response = self.client.post(f"/{path}", data=data, files=files, headers=self._digests())
        return self.last_response

    def post(self, path, files=None, **fields):
        """Send a form and read the changed regions.

        Args:
            path: Route of the form.
            files: Files to upload.
            **fields: Fields of the form.

        Returns:
            The visitor.
        """
        return self.read_regions(self.send(path, files, **fields))

    def wait(self):
        """Poll until the job has ended."""
        while "data-busy" in self["status"]:
            self.poll()
        return self

    def poll(self):
        """Request the changed regions once."""
        params = {"page": self.key, "at": self.address}
        return self.read_regions(self.client.get("/work", params=params, headers=self._digests()))

    def _digests(self):
        return {"x-have": "&".join(f"{name}={digest}" for name, (digest, _) in self.regions.items())}

    def read_regions(self, answer):
        """Read the changed regions of a response."""
        assert answer.status_code == 200, answer.text
        for name, digest, html in re.findall(_REGION, answer.text, re.DOTALL):
            self.regions[name] = digest, html
        self.key = answer.headers.get("x-page", self.key)
        self.address = answer.headers.get("x-address", self.address).removeprefix("?")
        return self
