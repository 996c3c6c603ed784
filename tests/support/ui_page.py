"""The app on made-up tables, without a browser: what the tests of its views share."""

import contextlib
import io
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

import ccs
from ccs import results
from ccs.data import synthetic
from ccs.ui import links
from ccs.ui.service import galleries
from ccs.ui.session import App
from ccs.ui.views import fairer
from tests.support import ui_sample

SMALL = "small/faces"


_GALLERY, _SET = galleries.open_gallery, galleries.open_dataset
_FEW = {
    galleries.DRAWN.people: lambda name: first_of(_GALLERY(name), 80),
    galleries.DRAWN.things: lambda name: every_fourth(_SET(name)),
}


@pytest.fixture(scope="session")
def model():
    """The organism, on a page whose drawn faces, things and pictures are a few of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(galleries, "open_gallery", lambda name: _FEW.get(name, _GALLERY)(name))
        patch.setattr(galleries, "open_dataset", lambda name: _FEW.get(name, _SET)(name))
        patch.setattr(galleries, "PICTURES", 60)
        patch.setattr(fairer, "THINGS", 60)
        yield _organism()


_organism = cache(lambda: ccs.load("organism"))


def small_gallery(n=40):
    return replace(first_of(synthetic.bias_set("faces"), n), name=SMALL)


def first_of(whole, n):
    groups = {name: labels[:n] for name, labels in whole.groups.items()}
    return replace(whole, images=whole.images[:n], groups=groups, k=dict.fromkeys(groups, n // 4))


def every_fourth(whole):
    return replace(whole, images=whole.images[::4], labels=whole.labels[::4])


@pytest.fixture(scope="session")
def app(model, once, tmp_path_factory):
    """One for all tests: what it has computed is kept, what a visitor does there is not."""
    return _shared(once("tables", _write), tmp_path_factory.getbasetemp() / "uploads")


@cache
def _shared(folder, uploads):
    uploads.mkdir()
    made = App(results.load(folder), uploads, [small_gallery()])
    made.model_cache.keep("organism", _organism())
    return made


def _write(folder):
    ui_sample.write(folder, "organism", _organism().weights_hash)
    ui_sample.write(folder, "organism-control", "f" * 64, seed=1)


def beside(app, collection):
    """An app of other tables, or with models of its own, that has seen the galleries that `app` has."""
    made = App(collection, app.uploads)
    made.galleries = app.galleries
    made.model_cache.keep("organism", _organism())
    return made


def bare_app(model, folder):
    """An app without tables that opens on the model of a folder."""
    (folder / "none").mkdir()
    return App(results.load(folder / "none"), folder, given=[str(model)], first=str(model))


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
