"""Starting the app: its command line, results, models and the page."""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.files import disk_errors, escape_output

if TYPE_CHECKING:
    from ccs.results import Collection
    from ccs.ui.server import Openings
    from ccs.ui.session import App

PHOTOGRAPHIC, EMBEDDED = "ViT-B-32/openai", "organism"
WEIGHTS = ("timm/vit_base_patch32_clip_224.openai", "open_clip_model.safetensors")
"""Repository and file of PHOTOGRAPHIC's weights; README.md has them fetched before a Space starts."""
SECONDS = 2.0
_UPLOADS = "clip-ccs-"  # then the process, and what nobody guesses
_MODELS = Path(__file__).parents[1] / "bundled"

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# Gradio makes a table of its last 10,000 events after each one, for a page of statistics that is not served.
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "1")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(10**12))


def main(argv: Sequence[str] | None = None) -> int:
    """Load the results and serve the page until interrupted; the process then ends here. Returns only before
    the page is served: 2 for a user's mistake, 130 if interrupted.
    """
    parser = argparse.ArgumentParser(
        description="Look at a head of a CLIP model, switch it off, and see what happens."
    )
    parser.add_argument(
        "--results",
        metavar="PLACE",
        help="a folder of tables or hf://datasets/USER/NAME (default: CCS_RESULTS, else results/ "
        "if it holds any, else those that ship)",
    )
    parser.add_argument(
        "--model",
        metavar="PLACE",
        action="append",
        help="open on this model: a name, a folder or hf-hub:USER/NAME; repeatable: the first is opened, all "
        "are offered (default: CCS_MODEL, separated by commas, else ViT-B-32/openai if the Hub answers, else "
        "the organism)",
    )
    parser.add_argument(
        "--device",
        metavar="D",
        help="what computes: cpu, cuda or cuda:N (default: CCS_DEVICE, else cuda where there is a GPU)",
    )
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", type=int, help="default: the first free port from 7860")
    args = parser.parse_args(argv)
    escape_output()
    bound_holes()
    try:
        if args.port is not None and not 1 <= args.port <= 65535:
            raise InputError(f"--port is {args.port}, but must be 1 to 65535.")
        require_device(args.device)
        listed = os.environ.get("CCS_MODEL", "").split(",")
        chosen = args.model or [*filter(None, map(str.strip, listed))]
        for name in chosen:  # other names are looked up later, as that needs PyTorch
            if "/" not in name and not any((folder / name).is_dir() for folder in (Path(), _MODELS)):
                from ccs.model.loading.sources import find

                find(name)
        results = args.results or os.environ.get("CCS_RESULTS") or None
        with upload_folder(), suppress(SystemExit):
            serve(results, args.host, args.port, chosen)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the page is served
        return 130
    # A visitor's thread may be at work in PyTorch, and Python's own shutdown would then end in abort(). The
    # processes that read uploads end with this one.
    sys.stdout.flush()
    os._exit(0)


def require_device(name: str | None) -> None:
    """Compute on this device from now on, in the runs of this app too; InputError where it is not there."""
    if name:
        os.environ["CCS_DEVICE"] = name
    if os.environ.get("CCS_DEVICE", "auto") not in ("auto", "cpu"):  # these need no look, and no PyTorch yet
        from ccs.model.loading.sources import usable_device

        usable_device("auto")


def bound_holes() -> None:
    """Keep memory that is free, but not given back, small, where the C library is glibc.

    It gives up to 16 threads a heap each, and what is free in one is of no use to another: all share two. And
    once something large has been freed, it puts up to 32 MB at a time among what is small and stays: a
    third of the heap is holes after minutes. A megabyte or more is kept apart, and goes back when freed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-8, 2)  # M_ARENA_MAX
        mallopt(-3, 2**20)  # M_MMAP_THRESHOLD


@contextmanager
def upload_folder() -> Iterator[None]:
    """A folder of this process alone for what visitors send: gone with it, or else at the next start."""
    parent = Path(os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir())
    for left in parent.glob(f"{_UPLOADS}*-*"):
        pid = left.name.removeprefix(_UPLOADS).partition("-")[0]
        if pid.isdecimal() and (int(pid) == os.getpid() or not _runs(int(pid))):
            shutil.rmtree(left, ignore_errors=True)
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=f"{_UPLOADS}{os.getpid()}-", dir=parent)
    os.environ["GRADIO_TEMP_DIR"] = folder
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the end of this is reached
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def serve(results: str | None, host: str, port: int | None, given: Sequence[str] = ()) -> None:
    """Serve the page until interrupted. given: models to offer, the first of which it opens on."""
    if os.environ.get("SPACES_ZERO_GPU"):  # at the launch it looks for what asks for a GPU
        from ccs.ui.service import taking_apart as taking_apart
    # What imports make stays. Looking through it for garbage, again and again, takes a tenth of the start.
    gc.disable()
    beside = ThreadPoolExecutor(2)
    deciding = beside.submit(opening_model, *given[:1])
    from ccs import results as tables

    place = results or tables.default_folder()
    reading = beside.submit(tables.load, None if place == tables.PRECOMPUTED else place)
    from ccs.ui.server import LazyApp, Openings, page  # Gradio, the longest part of the start

    found, (first, why) = reading.result(), deciding.result()
    print(f"Results: {found.source}", *found.notices, f"Opens on {first}: {why}.", sep="\n")
    kept = Openings(found, given, first)
    app = LazyApp(lambda: make(found, given, first))
    demo, settings = page(app, kept.find)
    host = f"[{host.strip('[]')}]" if ":" in host else host  # as Gradio writes an address of IPv6
    try:
        family, *_, address = socket.getaddrinfo(host.strip("[]"), port or 0, type=socket.SOCK_STREAM)[0]
        socket.create_server(
            address, family=family
        ).close()  # before Gradio tries a hundred ports of the host
        _, url, _ = demo.launch(server_name=host, server_port=port, prevent_thread_lock=True, **settings)
    except OSError as error:
        why = str(error.strerror or error).partition(" (")[0]
        raise InputError(f"The page cannot be served at {host}, port {port or 7860}: {why}.") from None
    gc.freeze()
    gc.enable()
    print(f"Open {url}", flush=True)
    # The first visitor should not wait for PyTorch and the model, if there is a moment before they come.
    threading.Thread(target=lambda: _warm(app(), kept), daemon=True).start()
    demo.block_thread()


def _warm(app: App, kept: Openings) -> None:
    from ccs import sandbox

    kept.make(app)
    sandbox.warm("ccs.ui.service.uploads", "ccs.data.untrusted")


def opening_model(chosen: str = "") -> tuple[str, str]:
    """The model to open on, and why, in a few words; decided within two seconds."""
    if chosen:
        return chosen, "as chosen"
    from huggingface_hub import try_to_load_from_cache

    from ccs.data.hub import reachable
    from ccs.files import endpoint

    other = "choose another with --model or CCS_MODEL"
    if isinstance(try_to_load_from_cache(*WEIGHTS), str):
        return PHOTOGRAPHIC, f"its weights are on this machine; {other}"
    if reachable(SECONDS):
        return PHOTOGRAPHIC, f"{endpoint()} answers, its weights come from there; {other}"
    return EMBEDDED, f"{endpoint()} did not answer within {SECONDS:.0f} seconds; {other}"


def make(found: Collection, given: Sequence[str] = (), first: str = "") -> App:
    """The app that all visitors share."""
    from gradio.utils import get_upload_folder
    from huggingface_hub import constants

    from ccs.ui.session import App

    kept = Path(os.environ.get("CCS_KEPT") or Path(constants.HF_HOME) / "clip-ccs" / "apart")
    return App(found, Path(get_upload_folder()), given=given, first=first, kept=kept)


if __name__ == "__main__":
    sys.exit(main())
