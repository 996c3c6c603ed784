"""The app on sample tables in Chromium, for browser tests."""

import gc
import shutil
import socket
from urllib.parse import parse_qs, urlsplit

import pytest

from ccs.app.server import launch, make_server

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
GO_BACK = "query => { history.pushState(0, '', `?${query}`); dispatchEvent(new PopStateEvent('popstate')); }"


@pytest.fixture(scope="module")
def served_app(app):
    yield from serve_app(app)


def serve_app(app):
    """Serve an app; yield it and its address. Connections to other machines fail the test."""
    connect, remote_addresses = socket.socket.connect, []

    def connect_and_record(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            remote_addresses.append(address)
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        patch.setattr(socket.socket, "connect", connect_and_record)
        server = make_server(app)
        url = launch(server, "127.0.0.1", None)
        # httpx reuses a connection for 5 s; the server must not close it earlier.
        assert server.get_blocks().server.config.timeout_keep_alive > 5
        yield app, url
        server.get_blocks().close(verbose=False)
    gc.collect()  # report unclosed resources of the server and its clients here
    assert remote_addresses == []


@pytest.fixture(scope="module")
def browser_tab(served_app):
    """Open a browser page; yield it and a list of errors, policy violations, and requests to other hosts."""
    from playwright.sync_api import sync_playwright

    problems = []

    def check_message(message):
        if message.type == "error":
            problems.append(message.text)

    def check_request(request):
        if not request.url.startswith((served_app[1], "data:", "blob:")):
            problems.append(request.url)

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = chromium.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        page.set_default_timeout(60_000)
        page.on("request", check_request)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", check_message)
        yield page, problems
        chromium.close()


@pytest.fixture
def visit(browser_tab, served_app):
    """`visit(query)`: open a link in the current session or, with `new=True`, in a new one."""
    page, problems = browser_tab

    def open_page(query="", *, width=1300, height=900, new=False):
        page.set_viewport_size({"width": width, "height": height})
        if new or page.url == "about:blank":
            page.goto(f"{served_app[1]}?{query}")
            page.wait_for_selector("body[data-ready]:not([data-busy])")
        else:
            act_and_wait(page, lambda: page.evaluate(GO_BACK, query))
        return page

    yield open_page
    assert problems == []


def act_and_wait(page, act):
    """Do an action and wait for the server's response.

    Args:
        page: The browser's page.
        act: The action.
    """
    turn = page.evaluate("document.body.dataset.ready")
    act()
    page.wait_for_selector(f'body[data-ready]:not([data-busy]):not([data-ready="{turn}"])')


def open_view(page, view):
    """Switch to another view.

    Args:
        page: The browser's page.
        view: Name of the view.
    """
    act_and_wait(page, lambda: page.click(f'nav button[value="{view}"]'))


def ablated_heads(page):
    return parse_qs(urlsplit(page.url).query).get("ablate", [""])[0]
