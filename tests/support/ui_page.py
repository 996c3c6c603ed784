"""The app on made-up tables, without a browser: what the tests of its views share."""

import contextlib
import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import ccs
from ccs import results
from ccs.sets import drawn_sets
from ccs.ui import links
from ccs.ui.service import galleries
from ccs.ui.session import App
from ccs.ui.views import fairer
from tests.support import ui_sample

SMALL = "small/faces"


@pytest.fixture(scope="session")
def model():
    """The organism, on a page whose drawn faces and pictures are a few of them."""
    few, whole = galleries.DRAWN.people, galleries.open_gallery
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            galleries, "open_gallery", lambda name: first_of(whole(name), 80) if name == few else whole(name)
        )
        patch.setattr(galleries, "PICTURES", 60)
        patch.setattr(fairer, "THINGS", 100)
        yield ccs.load("organism")


def small_gallery(n=40):
    return replace(first_of(drawn_sets.bias_set("faces"), n), name=SMALL)


def first_of(whole, n):
    """A gallery's first people."""
    groups = {name: labels[:n] for name, labels in whole.groups.items()}
    return replace(whole, images=whole.images[:n], groups=groups, k=dict.fromkeys(groups, n // 4))


def app_of(folder, uploads, model):
    """The app on the tables of a folder, with the small gallery, and the organism in memory."""
    made = App(results.load(folder), uploads, [small_gallery()])
    made.model_cache.keep("organism", model)
    return made


@pytest.fixture(scope="module")
def app(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", model.weights_hash)
    ui_sample.write(folder, "organism-control", "f" * 64, seed=1)
    return app_of(folder, tmp_path_factory.mktemp("uploads"), model)


@pytest.fixture
def screen(app):
    return links.open_link(app, {"tab": "classify", "model": "organism", "off": "L6.H1 L7.H2"})


class Strict(HTMLParser):
    """Raises where an element is closed that was not the last to be opened."""

    VOID = ("br", "img", "input", "path", "line", "rect", "circle")

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def check(html):
    parser = Strict()
    parser.feed(html)
    assert parser.open == []


def printed(code, **known):
    """The lines that a program of "Copy as Python" prints. known: names that it finds there."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "snippet", "exec"), known)
    return out.getvalue().splitlines()
