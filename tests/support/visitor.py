"""A visitor without a browser: what the page's script does, with forms and the regions of their answers."""

import csv
import re
from contextlib import AbstractContextManager
from urllib.parse import parse_qsl, urlencode

import httpx

_REGION = r'<div id="region-(\w+)" data-digest="(\w+)">(.*?)(?=<div id="region-|</main>|\Z)'


class Visitor(AbstractContextManager["Visitor"]):
    """One page. server: an address, or a client of one. source: the address that the visitor comes from."""

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
        """Open an address, and take what there is."""
        answer = self.client.get(f"/?{query}")
        assert answer.status_code == 200
        (self.key,) = re.findall(r'data-page="([\w-]+)"', answer.text)
        self.address = query
        return self.read_regions(answer)

    def open(self, **query):
        """The screen of an address by region, once all is there."""
        self.visit(urlencode(query)).wait()
        return {name: html for name, (_, html) in self.regions.items()}

    def figure(self, name):
        """The rows of a figure, as its button saves them."""
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
        """Send a form, and take the regions that differ.

        Args:
            path: Route of the form.
            files: Files to upload.
            **fields: Fields of the form.

        Returns:
            The visitor.
        """
        return self.read_regions(self.send(path, files, **fields))

    def wait(self):
        """Ask for what is new until nothing is under way."""
        while "data-busy" in self["status"]:
            self.poll()
        return self

    def poll(self):
        """Ask for what is new."""
        params = {"page": self.key, "at": self.address}
        return self.read_regions(self.client.get("/work", params=params, headers=self._digests()))

    def _digests(self):
        return {"x-have": "&".join(f"{name}={digest}" for name, (digest, _) in self.regions.items())}

    def read_regions(self, answer):
        """Take what differs."""
        assert answer.status_code == 200, answer.text
        for name, digest, html in re.findall(_REGION, answer.text, re.DOTALL):
            self.regions[name] = digest, html
        self.key = answer.headers.get("x-page", self.key)
        self.address = answer.headers.get("x-address", self.address).removeprefix("?")
        return self
