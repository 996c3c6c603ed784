"""The app on made-up tables, without a browser: what the tests of its views share."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

import ccs
from ccs import results
from ccs.model.model import Model
from ccs.sets import drawn_sets
from ccs.sets.kinds import BiasSet
from ccs.ui import links
from ccs.ui.service.model_cache import ModelCache
from ccs.ui.session import App, Screen
from tests.support import ui_sample

SMALL = "small/faces"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Model:
    return ccs.load("organism")


def small_gallery(n: int = 40) -> BiasSet:
    whole = drawn_sets.bias_set("faces")
    groups = {name: labels[:n] for name, labels in whole.groups.items()}
    drawn = drawn_sets.Drawn(whole.images.scenes[:n])  # type: ignore[attr-defined]
    return replace(whole, name=SMALL, images=drawn, groups=groups, k={"gender": 10, "skin tone": 10})


@pytest.fixture(scope="module")
def app(model: Model, tmp_path_factory: pytest.TempPathFactory) -> App:
    folder = tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", model.weights_hash)
    ui_sample.write(folder, "organism-control", "f" * 64, seed=1)
    found = App(results.load(folder), tmp_path_factory.mktemp("uploads"), [small_gallery()])
    found.model_cache = ModelCache()
    found.model_cache.keep("organism", model)
    return found


@pytest.fixture
def screen(app: App) -> Screen:
    return links.open_link(app, {"tab": "classify", "model": "organism", "off": "L6.H1 L7.H2"})


class Strict(HTMLParser):
    """Raises where an element is closed that was not the last to be opened."""

    VOID = ("br", "img", "input", "path", "line", "rect", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def check(html: str) -> None:
    parser = Strict()
    parser.feed(html)
    assert parser.open == []


def printed(code: str, **known: object) -> list[str]:
    """The lines that a program of "Copy as Python" prints. known: names that it finds there."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "snippet", "exec"), known)
    return out.getvalue().splitlines()
