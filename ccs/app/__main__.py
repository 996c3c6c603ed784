"""Starting the app: its command line, results, models, and server."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ccs.cli.command_line import Command
from ccs.cli.options import DATA, MACHINE, MODEL, Device, at_least, unset
from ccs.errors import InputError

if TYPE_CHECKING:
    from ccs.app.jobs import Jobs
    from ccs.app.session import App
    from ccs.results import Collection

SWITCH_SECONDS = 5e-4  # how long a thread holds Python's lock, which PyTorch takes for each of its many steps

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# PyTorch's threads sleep while they wait. By default they spin, which takes the cores from other visitors.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if os.environ.get("SPACE_ID"):  # Uvicorn reads visitors' addresses from a Space's proxies, which are private
    os.environ["FORWARDED_ALLOW_IPS"] = "127.0.0.1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Explore attention heads of CLIP models in the browser: ablate them, and see what changes.

    Examples:
        clip-ccs app
        clip-ccs app --model ViT-B-32/openai --results results
    """

    results: Annotated[str | None, DATA, unset("$CCS_RESULTS, results/, or the bundled")] = None
    """Folder of results, or hf://datasets/USER/NAME"""
    model: Annotated[tuple[str, ...], MODEL, unset("$CCS_MODEL, comma-separated, or the toy model")] = ()
    """Model to open: name, folder, or hf-hub:USER/NAME; repeatable"""
    device: Annotated[Device | None, unset("$CCS_DEVICE or a GPU")] = None
    host: Annotated[str, MACHINE] = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    """Address to serve at"""
    port: Annotated[int | None, MACHINE, at_least(1), unset("the first free one from 7860")] = None
    """Port to serve at"""


def start(settings: Settings) -> None:
    """Serve the app until interrupted.

    Args:
        settings: The options.

    Raises:
        InputError: If a model or a device isn't available, or the address can't be served.
    """
    bound_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()  # imports allocate much and free nothing
    host, port = settings.host.strip("[]"), settings.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port or 0), family=family).close()
    except (OSError, OverflowError) as error:  # a port above 65535
        reason = getattr(error, "strerror", error)
        raise InputError(f"The app can't be served at {host}, port {port or 'any'}: {reason}") from None
    if settings.device:
        os.environ["CCS_DEVICE"] = settings.device
    if os.environ.get("SPACES_ZERO_GPU"):
        importlib.import_module("spaces")  # before Gradio and PyTorch
    from huggingface_hub import constants

    from ccs.app.session import App
    from ccs.model.loading.sources import AUTO, find_model, usable_device

    if os.environ.get("CCS_DEVICE"):
        usable_device(AUTO)
    places = settings.model or tuple(filter(None, map(str.strip, os.environ.get("CCS_MODEL", "").split(","))))
    for name in places:
        if "/" not in name:  # others may be on the Hub, and are looked up when they are loaded
            find_model(name)
    folder = Path(os.environ.get("CCS_KEPT") or Path(constants.HF_HOME) / "clip-ccs" / "analyses")
    loading, end = Future["Collection"](), threading.Event()
    app = App(loading, places=places, folder=folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    from ccs.app.server import launch, make_server  # Gradio, the longest part of the start

    server = make_server(app)
    url = launch(server, f"[{host}]" if ":" in host else host, port)
    try:
        loading.set_result(collection := load_results(settings.results or os.environ.get("CCS_RESULTS")))
    except BaseException as error:
        loading.set_exception(error)  # for the pages that wait
        raise
    print(f"Results: {collection.source}", *collection.notices, sep="\n")
    print(f"Opens on {app.model_cache.first}.")
    threading.Thread(target=warm, args=(app, server.state.jobs), daemon=True).start()  # would delay the page
    gc.freeze()
    gc.enable()
    print(f"Open {url}\nAPI: {url}api\nMCP: {url}gradio_api/mcp/", flush=True)
    end.wait()
    server.get_blocks().close(verbose=False)
    os._exit(0)  # threads may be at work in PyTorch, which ends Python's own shutdown with abort()


def load_results(place: str | None) -> Collection:
    """Load results, by default the bundled and the local ones, which win. Raises InputError without any."""
    from ccs import results

    if place:
        return results.load(place)
    bundled, home = results.load(), results.default_folder()
    if home == results.PRECOMPUTED:
        return bundled
    local = results.load(home)
    models, notices = {**bundled.models, **local.models}, (*local.notices, *bundled.notices)
    return results.Collection(models, f"{local.source}; {bundled.source}", notices)


main = Command(Settings, start, interrupted="Interrupted.")


def bound_memory() -> None:
    """Let glibc keep two heaps, and return freed blocks of a megabyte or more to the system.

    By default each thread has a heap that keeps freed memory. Three minutes of `benchmarks.hostile` then take
    2.0 GB instead of 1.3 GB.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-8, 2)  # M_ARENA_MAX
        mallopt(-3, 2**20)  # M_MMAP_THRESHOLD


def warm(app: App, jobs: Jobs) -> None:
    """Compute the opening screens ahead of the visitors, import open_clip, and start the sandbox.

    Args:
        app: The app.
        jobs: The visitors' work, which has priority.
    """
    from ccs import sandbox
    from ccs.app.controls import open_screen
    from ccs.app.page import work
    from ccs.app.session import Session
    from ccs.app.views.start import claim_of

    for tab, claimed in (("start", False), ("bias", False), ("start", True), ("heads", False)):
        while jobs.unfinished:
            time.sleep(0.1)
        screen = open_screen(app, Session(), {"tab": tab})
        with suppress(InputError):
            if claimed:  # the button of Start has one answer for everyone
                screen.change(ablate=claim_of(screen).heads)
            work(screen)
        if tab == "bias":
            importlib.import_module("open_clip")  # else the first visit to another model waits seconds for it
    sandbox.warm("ccs.app.services.uploads", "ccs.data.open")


if __name__ == "__main__":
    sys.exit(main())
