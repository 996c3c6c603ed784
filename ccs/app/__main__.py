"""Starting the app: its command line, results, models, and server."""

from __future__ import annotations

import ctypes
import errno
import gc
import http.server
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ccs.cli.command_line import Command
from ccs.cli.options import DATA, MACHINE, MODEL, Device, describe
from ccs.errors import InputError

if TYPE_CHECKING:
    from ccs.app.session import App
    from ccs.results import Collection

PHOTOGRAPHIC, TOY = "ViT-B-32/openai", "organism"
WEIGHTS = ("timm/vit_base_patch32_clip_224.openai", "open_clip_model.safetensors")
"""Repository and file of PHOTOGRAPHIC's weights; README.md has them fetched before a Space starts."""
SECONDS = 2.0
STARTING = b"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>CLIP heads</title>
<meta http-equiv="refresh" content="1"></head><body><p>The app is starting: PyTorch, the tables, and the first
model are loading. This takes a few seconds after each start.</p></body></html>"""
_MODELS = Path(__file__).parents[1] / "bundled"

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Explore attention heads of CLIP models in the browser: ablate them, and see what changes."""

    results: Annotated[
        str | None,
        DATA,
        describe("Folder of results, or hf://datasets/USER/NAME", "$CCS_RESULTS, results/, or the bundled"),
    ] = None
    model: Annotated[
        tuple[str, ...],
        MODEL,
        describe(
            "Model to open: name, folder, or hf-hub:USER/NAME; repeatable (default: $CCS_MODEL, comma-"
            f"separated, else {PHOTOGRAPHIC} if the Hub answers, else {TOY})"
        ),
    ] = ()
    device: Annotated[Device | None, describe("cpu, cuda, or cuda:N", "$CCS_DEVICE or a GPU")] = None
    host: Annotated[str, MACHINE, describe("Address to serve at")] = os.environ.get(
        "GRADIO_SERVER_NAME", "127.0.0.1"
    )
    port: Annotated[
        int | None,
        MACHINE,
        Parameter(validator=Number(gte=1, lte=65535)),
        describe("Port to serve at", "the first free one from 7860"),
    ] = None


def start(settings: Settings) -> None:
    """Serve the app until interrupted; the process then ends here. Raises InputError before that."""
    bound_memory()
    require_device(settings.device)
    models = settings.model or tuple(filter(None, map(str.strip, os.environ.get("CCS_MODEL", "").split(","))))
    for name in models:  # other names are looked up later, since that needs PyTorch
        if "/" not in name and not any((folder / name).is_dir() for folder in (Path(), _MODELS)):
            from ccs.model.loading.sources import find

            find(name)
    serve(settings.results or os.environ.get("CCS_RESULTS") or None, settings.host, settings.port, models)
    # A visitor's thread may be at work in PyTorch, and Python's own shutdown would then end in abort().
    sys.stdout.flush()
    os._exit(0)


main = Command(
    Settings,
    start,
    ("clip-ccs app", "clip-ccs app --model ViT-B-32/openai --results results"),
    "Interrupted.",
)


def require_device(name: str | None) -> None:
    """Compute on this device from now on; InputError if it isn't available."""
    if name:
        os.environ["CCS_DEVICE"] = name
    if os.environ.get("CCS_DEVICE", "auto") not in ("auto", "cpu"):  # these need no look, and no PyTorch yet
        from ccs.model.loading.sources import usable_device

        usable_device("auto")


def bound_memory() -> None:
    """Keep free memory small if the C library is glibc.

    It gives up to 16 threads a heap each, and keeps freed blocks of up to 32 MB: a third of the heap is holes
    after minutes. Two heaps are enough, and a megabyte or more goes back when freed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-8, 2)  # M_ARENA_MAX
        mallopt(-3, 2**20)  # M_MMAP_THRESHOLD


def serve(results: str | None, host: str, port: int | None, models: Sequence[str] = ()) -> None:
    """Serve the app until interrupted.

    Args:
        results: where tables are read.
        host, port: where it is served.
        models: models to offer; the app opens on the first.
    """
    host = host.strip("[]")
    port = port or int(os.environ.get("GRADIO_SERVER_PORT") or 0) or _free_port(host)
    gc.disable()  # what imports make stays: looking through it takes a tenth of the start
    pool = ThreadPoolExecutor(2)
    with _waiting_page(host, port):
        if os.environ.get("SPACES_ZERO_GPU"):
            importlib.import_module("spaces")  # before Gradio and PyTorch
        opening = pool.submit(opening_model, *models[:1])
        reading = pool.submit(_read_results, results)
        from ccs.app.server import launch, make_server  # Gradio and PyTorch, the longest part of the start

        collection, (first, why) = reading.result(), opening.result()
        print(f"Results: {collection.source}", *collection.notices, f"Opens on {first}: {why}.", sep="\n")
        app = make_app(collection, models, first)
        server = make_server(app)
    try:
        url = launch(server, f"[{host}]" if ":" in host else host, port, os.environ.get("GRADIO_ROOT_PATH"))
    except OSError as error:
        raise _not_served(host, port, error) from None
    gc.freeze()
    gc.enable()
    print(f"Open {url}\nAPI: {url}api\nMCP: {url}gradio_api/mcp/", flush=True)
    threading.Thread(target=warm, args=(app,), daemon=True).start()
    end = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: end.set())
    end.wait()
    server.get_blocks().close(verbose=False)


def _free_port(host: str) -> int:
    for port in range(7860, 7960):
        try:
            socket.create_server((host, port), family=_family(host)).close()
            return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _not_served(host, port, error) from None
    raise InputError(f"The ports 7860 to 7959 of {host} are taken: choose one with --port.")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _not_served(host: str, port: int, error: OSError) -> InputError:
    why = str(error.strerror or error).partition(" (")[0]
    return InputError(f"The app can't be served at {host}, port {port}: {why}.")


class _Waiting(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        for name, value in (("Retry-After", "1"), ("Content-Type", "text/html"), ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(STARTING)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _waiting_page(host: str, port: int) -> Iterator[None]:
    """Answer with a page that says so while the app is being imported. A Space shows its own."""

    class Server(http.server.ThreadingHTTPServer):
        address_family = _family(host)

    try:
        early = Server((host, port), _Waiting)
    except (OSError, OverflowError) as error:
        raise _not_served(host, port, OSError(error)) from None
    threading.Thread(target=early.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield
    finally:
        early.shutdown()
        early.server_close()


def _read_results(place: str | None) -> Collection:
    """Read the tables of a place, by default of results/ next to the bundled ones."""
    from ccs import results

    if place or results.default_folder() == results.PRECOMPUTED:
        return results.load(place)
    own, bundled = results.load(results.default_folder()), results.load(None)
    return results.Collection(
        {**bundled.models, **own.models}, f"{own.source}; {bundled.source}", (*own.notices, *bundled.notices)
    )


def opening_model(chosen: str = "") -> tuple[str, str]:
    """Return the model to open on, and why, in a few words; decided within two seconds."""
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
    return TOY, f"{endpoint()} did not answer within {SECONDS:.0f} seconds; {other}"


def make_app(collection: Collection, given: Sequence[str] = (), first: str = "") -> App:
    """Return the app that all visitors share."""
    from huggingface_hub import constants

    from ccs.app.session import App

    kept = Path(os.environ.get("CCS_KEPT") or Path(constants.HF_HOME) / "clip-ccs" / "analyses")
    return App(collection, given=given, first=first, kept=kept)


def warm(app: App) -> None:
    """Compute the opening screens ahead of the first visitor, and start the sandbox."""
    from ccs import sandbox
    from ccs.app.links import open_screen
    from ccs.app.page import work
    from ccs.app.services.cache import Memory
    from ccs.app.session import Session
    from ccs.app.views.start import claim_of

    for tab in ("start", "bias", "heads"):
        screen = open_screen(app, Session(Memory(app.cache)), {"tab": tab})
        for _ in work(screen):
            pass
        if tab == "start":
            with suppress(InputError):  # the button of Start has one answer for everyone
                screen.set_ablation(claim_of(screen).heads)
                for _ in work(screen):
                    pass
    sandbox.warm("ccs.app.services.uploads", "ccs.data.untrusted")


if __name__ == "__main__":
    sys.exit(main())
