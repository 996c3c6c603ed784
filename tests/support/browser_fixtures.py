"""The app on made-up tables, in Chromium: what the browser tests share."""

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
    """An app and its address. The server may connect to nothing but this machine."""
    connect, elsewhere = socket.socket.connect, []

    def watched(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            elsewhere.append(address)
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        patch.setattr(socket.socket, "connect", watched)
        server = make_server(app)
        url = launch(server, "127.0.0.1", None)
        # httpx reuses a connection for 5 s: if the server closed it then, a request could meet its end.
        assert server.get_blocks().server.config.timeout_keep_alive > 5
        yield app, url
        server.get_blocks().close(verbose=False)
    gc.collect()  # what the server and its clients leave open is told here, and not when the run ends
    assert elsewhere == []


@pytest.fixture(scope="module")
def browser_tab(served_app):
    """A page, and what went wrong: errors, what the policy stops, requests to other hosts."""
    from playwright.sync_api import sync_playwright

    wrong = []

    def check_message(message):
        if message.type == "error":
            wrong.append(message.text)

    def check_request(request):
        if not request.url.startswith((served_app[1], "data:", "blob:")):
            wrong.append(request.url)

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = chromium.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        page.set_default_timeout(60_000)
        page.on("request", check_request)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", check_message)
        yield page, wrong
        chromium.close()


@pytest.fixture
def visit(browser_tab, served_app):
    """`visit(query)`: the page at a link, by the visitor that there is, as Back opens it, or by a new one."""
    page, wrong = browser_tab

    def open_page(query="", *, width=1300, height=900, new=False):
        page.set_viewport_size({"width": width, "height": height})
        if new or page.url == "about:blank":
            page.goto(f"{served_app[1]}?{query}")
            page.wait_for_selector("body[data-ready]:not([data-busy])")
        else:
            act_and_wait(page, lambda: page.evaluate(GO_BACK, query))
        return page

    yield open_page
    assert wrong == []


def act_and_wait(page, act):
    """Do something, and wait for the server's answer to it.

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
