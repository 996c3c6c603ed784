"""The Space's entry: results, models and the page."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccs.errors import InputError

if TYPE_CHECKING:
    from ccs.results import Collection
    from ccs.ui.app import App

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Load the results and serve the page; returns 2 for a user's mistake."""
    parser = argparse.ArgumentParser(
        description="See a head of a CLIP model, switch it off, see what happens."
    )
    parser.add_argument(
        "--results",
        metavar="PLACE",
        help="a folder of tables or hf://datasets/USER/NAME; default: CCS_RESULTS, else precomputed/",
    )
    parser.add_argument(
        "--model",
        metavar="PLACE",
        action="append",
        help="a folder or hf-hub:USER/NAME to offer as a model too; tables may then name it; repeatable; "
        "default: CCS_MODELS, separated by commas",
    )
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    args = parser.parse_args(argv)
    try:
        given = args.model or [*filter(None, map(str.strip, os.environ.get("CCS_MODELS", "").split(",")))]
        serve(args.results or os.environ.get("CCS_RESULTS") or None, args.host, args.port, given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def serve(results: str | None, host: str, port: int | None, given: Sequence[str] = ()) -> None:
    """Serve the page until interrupted."""
    # What is imported stays: looking for garbage in it, again and again, takes a sixth of the start.
    gc.disable()
    from ccs import results as tables
    from ccs.ui.server import LazyApp, blocks, launch_settings

    found = tables.load(results)
    print(f"Results: {found.source}", *found.notices, sep="\n")
    app = LazyApp(lambda: make(found, given))
    demo = blocks(app)
    try:
        _, url, _ = demo.launch(
            server_name=host, server_port=port, prevent_thread_lock=True, **launch_settings()
        )
    except OSError as error:
        raise InputError(f"The page cannot be served at {host}, port {port or 7860}: {error}") from None
    print(f"Open {url}", flush=True)
    # The first visitor should not wait for PyTorch and the model, if there is a moment before they come.
    threading.Thread(target=warm, args=(app,), daemon=True).start()
    threading.Thread(target=return_memory, daemon=True).start()
    demo.block_thread()


def warm(app: Callable[[], App]) -> None:
    """Make the app and load its first model; garbage is collected again from then on."""
    from ccs.ui.page import opening

    try:
        opening.warm(app())
    finally:
        gc.freeze()
        gc.enable()


def return_memory() -> None:
    """Give what has been freed back to the system, every minute: glibc keeps it, for each of many threads."""
    if sys.platform != "linux":
        return
    import ctypes
    import time

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    while trim is not None:
        time.sleep(60)
        trim(0)


def make(found: Collection, given: Sequence[str] = ()) -> App:
    """The app that all visitors share; a gallery that cannot be opened is left out and named on the page."""
    from gradio.utils import get_upload_folder

    from ccs.datasets.gallery import open_gallery
    from ccs.ui.app import App
    from ccs.ui.service.galleries import Galleries

    others, specs = [], {}
    for spec in filter(None, map(str.strip, os.environ.get("CCS_GALLERIES", "").split(","))):
        try:
            others.append(open_gallery(spec))
            specs[others[-1].name] = spec
        except InputError as error:
            found = replace(found, notices=(*found.notices, f"The gallery {spec} was left out: {error}"))
    return App(found, Path(get_upload_folder()), Galleries(others, specs), given)


if __name__ == "__main__":
    sys.exit(main())
