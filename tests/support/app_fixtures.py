"""The app on sample tables, without a browser, for tests of its views and forms."""

import contextlib
import csv
import io
import math
from dataclasses import replace
from functools import cache, partial
from html.parser import HTMLParser

import pytest

import ccs
from ccs import results
from ccs.app import controls, jobs, page
from ccs.app.services import galleries
from ccs.app.session import App, Session
from ccs.data import synthetic
from tests.support import app_sample

SMALL_GALLERY = "small/faces"


@pytest.fixture(scope="session")
def model():
    """Load the organism, and let the app use small synthetic galleries and datasets."""
    small, open_gallery = {galleries.DRAWN.people: partial(small_gallery, 80)}, galleries.open_gallery
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(galleries, "open_gallery", lambda name: small.get(name, open_gallery)(name))
        patch.setattr(galleries, "open_dataset", partial(galleries.open_dataset, max_images=100))
        patch.setattr(galleries, "PICTURES", 60)
        yield _organism()


_organism = cache(lambda: ccs.load("organism"))


def small_gallery(n=40, name=SMALL_GALLERY):
    """Take the first synthetic faces, with a K of a quarter of them.

    Args:
        n: Number of images.
        name: Name of the gallery.

    Returns:
        The gallery.
    """
    faces = synthetic.bias_set("faces")
    groups = {attribute: labels[:n] for attribute, labels in faces.groups.items()}
    changes = {"k": dict.fromkeys(groups, n // 4), "fingerprint": f"{faces.fingerprint} {n}"}
    return replace(faces, name=name, images=faces.images[:n], groups=groups, **changes)


@pytest.fixture(scope="session")
def app(model, shared_folder, tmp_path_factory):
    """The app of all tests: they share its caches, and each has its own session."""
    return _make_app(shared_folder("tables", _write_results), tmp_path_factory.getbasetemp() / "analyses")


@cache
def _make_app(folder, analyses):
    app = App(results.load(folder), [small_gallery()], folder=analyses)
    app.model_cache.keep("organism", _organism())
    return app


def _write_results(folder):
    app_sample.write_app_results(folder, "organism", _organism().weights_hash)
    app_sample.write_app_results(folder, "organism-control", "f" * 64)


def make_sibling_app(app, collection):
    """Make an app with other tables that shares the galleries of an app.

    Args:
        app: The app whose galleries are shared.
        collection: Results of the new app.

    Returns:
        The new app, with its own model cache.
    """
    sibling = App(collection)
    sibling.galleries = app.galleries
    sibling.model_cache.keep("organism", _organism())
    return sibling


def make_empty_app(model, folder):
    """Make an app without tables for the model in a folder.

    Args:
        model: Folder of the model.
        folder: Folder for the app's analyses.

    Returns:
        The app.
    """
    (folder / "none").mkdir()
    return App(results.load(folder / "none"), places=[str(model)], folder=folder)


@pytest.fixture
def screen(app):
    return open_screen(app, {"tab": "classify", "model": "organism", "ablate": "L6.H1 L7.H2"})


def open_screen(app, query=(), session=None):
    """Open the screen that an address names.

    Args:
        app: The app.
        query: Fields of the address.
        session: The visitor's session; a new one by default.

    Returns:
        The screen.
    """
    return controls.open_screen(app, session or Session(), dict(query))


def submit_form(screen, path, **fields):
    """Handle a form as the server does.

    Args:
        screen: The screen that the form is on.
        path: Route of the form.
        **fields: Fields of the form.

    Returns:
        What the handler returns.
    """
    return controls.apply_form(screen, path, fields)


class RecordingJob(jobs.Job):
    """A job that records its progress messages."""

    def __init__(self):
        super().__init__("", dict)
        self.last_poll, self.steps = math.inf, []

    def tell(self, share, doing):
        super().tell(share, doing)
        self.steps.append(doing)


def render_screen(screen):
    """Render a screen.

    Returns:
        Its regions, and the progress messages.
    """
    job = RecordingJob()
    return page.work(screen, job), job.steps


class StrictParser(HTMLParser):
    """A parser that rejects HTML whose elements aren't closed in order."""

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


def check_html(html):
    parser = StrictParser()
    parser.feed(html)
    assert parser.open == []


def run_snippet(code, **names):
    """Run a program of "Copy as Python".

    Args:
        code: The program.
        **names: Global names of the program.

    Returns:
        The lines that it prints.
    """
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "snippet", "exec"), names)
    return out.getvalue().splitlines()


def read_figure(figure, screen):
    """Read a figure of a screen as its button saves it.

    Args:
        figure: Name of the figure.
        screen: The screen.

    Returns:
        The rows of the CSV.
    """
    return list(csv.DictReader(page.csv(screen, figure)[figure].splitlines()))
