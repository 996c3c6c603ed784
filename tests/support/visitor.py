"""A visitor without a browser: one page's talk with the app, in Gradio's protocol."""

import csv
import html
import json
import re
import uuid
from contextlib import AbstractContextManager
from urllib.parse import urlencode

import httpx

REGIONS = ("top", "strip", "left", "main", "status")


class Visitor(AbstractContextManager["Visitor"]):
    """One page. source: the address that the visitor comes from."""

    def __init__(self, address, source="127.0.0.1"):
        transport = httpx.HTTPTransport(local_address=source)
        self.client = httpx.Client(base_url=address, transport=transport, timeout=120, trust_env=False)
        self.page = uuid.uuid4().hex[:12]

    def __exit__(self, *error):
        self.client.close()

    def listeners(self):
        """The number and the element of each listener, by its event (the first of those of one)."""
        found = {}
        for one in self.client.get("/config").json()["dependencies"]:
            for target, name in one["targets"]:
                found.setdefault(name, (one["id"], target))
        return found

    def events(self):
        """The number of the listener for a page that opens, and that for an action with its element."""
        found = self.listeners()
        return found["load"][0], found["act"]

    def join(self, event, trigger, data=None, link=""):
        """Ask; `answer` or `wait` reads what comes of it."""
        body = {"fn_index": event, "trigger_id": trigger, "session_hash": self.page, "data": []}
        return self.client.post(f"/gradio_api/queue/join?{link}", json={**body, "event_data": data})

    def wait(self):
        """Read until the server says that all is answered: its messages."""
        found = []
        with self.client.stream("GET", f"/gradio_api/queue/data?session_hash={self.page}") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: ")))
                if "close_stream" in line:
                    break
        return found

    def answer(self):
        """The regions of the screen at the end of the answer; "error" where Gradio does not ask the app."""
        found = {}
        for message in self.wait():
            if message.get("success") is False:
                found["error"] = str(message["output"].get("error"))
            for name, value in zip(REGIONS, message.get("output", {}).get("data", []), strict=False):
                # The first values come whole, later ones as what differs: [what is done, where, with what].
                for do, _, new in [("replace", [], value)] if isinstance(value, str | dict) else value:
                    if isinstance(new, str):
                        found[name] = found[name] + new if do == "append" else new
        return found

    def open(self, **query):
        """The screen that a link opens, by region."""
        assert self.join(self.events()[0], -1, link=urlencode(query)).status_code == 200
        return self.answer()


def rows(figure, region):
    """The rows of a figure in a region's HTML, as its button saves them."""
    found = re.search(rf'data-name="{figure}"[^>]* data-csv="([^"]*)"', region)
    assert found, f"no figure {figure}"
    return list(csv.DictReader(html.unescape(found[1]).splitlines()))
