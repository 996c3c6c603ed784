"""The app on made-up tables, in Chromium: what the browser tests share."""

from __future__ import annotations

import gc
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ccs
from ccs import results
from ccs.model.model import Model
from ccs.ui.server import page
from ccs.ui.session import App
from tests.support import ui_sample
from tests.support.ui_page import SMALL, small_gallery

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
GALLERY = SMALL
FLAGS = ("--no-sandbox", "--disable-gpu")

# Warnings are errors here too, but for those that Gradio and Playwright cause themselves.
MARKS = [
    pytest.mark.filterwarnings(r"ignore::Warning:gradio\..*"),
    pytest.mark.filterwarnings("ignore:.*playwright-artifacts:ResourceWarning"),
]

Page = Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """The app on made-up tables, and its address."""
    model = ccs.load("organism")
    folder = tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", model.weights_hash)
    ui_sample.write(folder, "organism-control", "f" * 64, seed=1)
    yield from served(folder, tmp_path_factory.mktemp("cache"), model)


def served(folder: Path, cache: Path, model: Model) -> Iterator[tuple[App, str]]:
    """The app on the tables of a folder. The server may connect to nothing but this machine."""
    connect, elsewhere = socket.socket.connect, []

    def watched(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            elsewhere.append(address)
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(cache))
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        patch.setattr(socket.socket, "connect", watched)
        app = App(results.load(folder), cache, [small_gallery()])
        app.model_cache.keep("organism", model)
        demo, settings = page(lambda: app)
        _, url, _ = demo.launch(prevent_thread_lock=True, **settings)
        yield app, url
        demo.close(verbose=False)
    gc.collect()  # what the server and its clients leave open is told here, and not when the run ends
    assert elsewhere == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any, made: tuple[App, str]) -> Iterator[Callable[..., Page]]:
    """Opens the page at a query, as a new visitor. Any request to another host or error in the page fails."""
    contexts, wrong = [], []

    def open_page(
        query: str = "", *, width: int = 1300, height: int = 900, url: str = "", touch: bool = False
    ) -> Page:
        screen: Any = {"viewport": {"width": width, "height": height}, "has_touch": touch, "is_mobile": touch}
        context = browser.new_context(**screen, accept_downloads=True)
        context.grant_permissions(["clipboard-read", "clipboard-write", "camera"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        home = url or made[1]

        def requested(request: Any) -> None:
            if not request.url.startswith((home, "data:", "blob:")):
                wrong.append(request.url)

        page.on("request", requested)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{home}?{query}" if query else home)
        settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def settled(page: Page) -> None:
    """Wait until nothing is under way."""
    page.wait_for_function("document.body.dataset.ready && !document.body.dataset.busy")


def done(page: Page, act: Callable[[], object]) -> None:
    """Do something, and wait for the server's answer to it."""
    turn = page.evaluate("document.body.dataset.ready")
    act()
    page.wait_for_function("t => document.body.dataset.ready !== t && !document.body.dataset.busy", arg=turn)


def go(page: Page, tab: str) -> None:
    done(page, lambda: page.click(f'nav button[data-value="{tab}"]'))


def off(page: Page) -> str:
    return str(page.get_attribute(".grid", "data-off"))


def saved(page: Page, click: Callable[[], object]) -> Path:
    """The file that a click saves."""
    with page.expect_download() as download:
        click()
    return Path(download.value.path())
