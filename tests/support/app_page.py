"""The app on made-up tables, without a browser: what the tests of its views share."""

import contextlib
import csv
import io
import math
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

import ccs
from ccs import results
from ccs.app import page
from ccs.app.controls import apply_form
from ccs.app.jobs import Job
from ccs.app.links import open_screen
from ccs.app.services import galleries
from ccs.app.session import App, Session
from ccs.data import synthetic
from tests.support import app_sample

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
    return _shared(once("tables", _write), tmp_path_factory.getbasetemp() / "analyses")


@cache
def _shared(folder, analyses):
    app = App(results.load(folder), [small_gallery()], folder=analyses)
    app.model_cache.keep("organism", _organism())
    return app


def _write(folder):
    app_sample.write(folder, "organism", _organism().weights_hash)
    app_sample.write(folder, "organism-control", "f" * 64, seed=1)


def beside(app, collection):
    """An app of other tables, or with models of its own, that has seen the galleries that `app` has."""
    sibling = App(collection)
    sibling.galleries = app.galleries
    sibling.model_cache.keep("organism", _organism())
    return sibling


def bare_app(model, folder):
    """An app without tables that opens on the model of a folder."""
    (folder / "none").mkdir()
    return App(results.load(folder / "none"), places=[str(model)], folder=folder)


@pytest.fixture
def screen(app):
    return opened(app, {"tab": "classify", "model": "organism", "ablate": "L6.H1 L7.H2"})


def opened(app, query=(), session=None):
    """The screen that an address names, of a new visitor."""
    return open_screen(app, session or Session(), dict(query))


def do(screen, path, **fields):
    """What the server does with a form."""
    return apply_form(screen, path, fields)


class Watched(Job):
    """A job that keeps its steps."""

    def __init__(self):
        super().__init__("", dict)
        self.last_poll, self.steps = math.inf, []

    def tell(self, share, doing):
        super().tell(share, doing)
        self.steps.append(doing)


def finished(screen):
    """All that a screen shows after its work, and what was said meanwhile."""
    job = Watched()
    return page.work(screen, job), job.steps


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


def rows(figure, screen):
    """The rows of a screen's figure, as its button saves them."""
    return list(csv.DictReader(page.csv(screen, figure)[figure].splitlines()))
