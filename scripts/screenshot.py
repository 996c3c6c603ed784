"""Take the README screenshot: `python scripts/screenshot.py`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

OUT = Path(__file__).parents[1] / "docs" / "app.png"
SETTLED = "body[data-ready]:not([data-busy])"


@contextmanager
def served() -> Iterator[str]:
    """Serve the app with the bundled results and its first model loaded, and yield its address."""
    from ccs import results
    from ccs.app.__main__ import warm
    from ccs.app.server import launch, make_server
    from ccs.app.session import App

    app = App(results.load())
    server = make_server(app)
    url = launch(server, "127.0.0.1", None)
    warm(app)
    yield url
    server.get_blocks().close(verbose=False)


@contextmanager
def chromium() -> Iterator[Any]:
    """Open a headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        sys.exit("error: Chromium isn't installed; install it to take screenshots.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def main() -> None:
    """Open the app's first screen and save it."""
    with chromium() as browser, served() as url:
        page = browser.new_page(viewport={"width": 1360, "height": 900}, device_scale_factor=1.5)
        page.set_default_timeout(300_000)
        page.goto(f"{url}?model=organism")
        page.wait_for_selector(SETTLED)
        page.screenshot(path=OUT, animations="disabled")
    print(f"{OUT} is written.")


if __name__ == "__main__":
    main()
