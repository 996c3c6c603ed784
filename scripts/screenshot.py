"""Take the README screenshot: python scripts/screenshot.py [--results FOLDER] [--out FILE]."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

WIDTH, HEIGHT = 1360, 900
SETTLED = (
    "document.body.dataset.ready && !document.body.dataset.busy && !document.querySelector('.status .busy')"
)


@contextmanager
def served(results_at: str | None = None) -> Iterator[str]:
    """The address of the app on the tables of a folder, its first model loaded. Raises InputError."""
    from ccs import results
    from ccs.ui.app import App
    from ccs.ui.page import opening
    from ccs.ui.server import blocks, launch_settings

    with tempfile.TemporaryDirectory() as cache:
        os.environ["GRADIO_TEMP_DIR"] = cache
        app = App(results.load(results_at), Path(cache))
        demo = blocks(lambda: app)
        _, url, _ = demo.launch(prevent_thread_lock=True, **launch_settings(lambda: app))
        opening.warm(app)  # so that the example is one that the whole model gets right
        yield url
        demo.close(verbose=False)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. Raises InputError where there is none."""
    from playwright.sync_api import sync_playwright

    from ccs.errors import InputError

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise InputError("There is no Chromium here to take the screenshot with.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Start the app, open a screen, save what is seen; 2 if there is no browser or no results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", help="a folder of tables; default: precomputed/")
    parser.add_argument("--query", default="model=organism", help="the screen, as in the page’s address")
    parser.add_argument("--out", type=Path, default=Path("docs/app.png"))
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--height", type=int, default=HEIGHT)
    args = parser.parse_args(argv)
    from ccs.errors import InputError

    try:
        with chromium() as browser, served(args.results) as url:
            page = browser.new_page(
                viewport={"width": args.width, "height": args.height}, device_scale_factor=1.5
            )
            page.set_default_timeout(300_000)
            page.goto(f"{url}?{args.query}&__theme=light")
            page.wait_for_function(SETTLED)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(args.out), animations="disabled")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{args.out} is written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
