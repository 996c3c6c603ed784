"""The Gradio side, where a click arrives: regions of HTML, the listeners that `clicks` answers, limits, and
the screens that are there before the app is.

Nothing here needs PyTorch: the page is served first; what computes comes with the app itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware import Middleware

from ccs.errors import InputError
from ccs.files import write_text
from ccs.ui.door import AT_ONCE, Door, Turn
from ccs.ui.html import render
from ccs.ui.service.cache import size_of

if TYPE_CHECKING:
    from ccs.results import Collection
    from ccs.ui.actions import Fields
    from ccs.ui.clicks import Update
    from ccs.ui.session import App, Session

log = logging.getLogger(__name__)

ASSETS = Path(__file__).parent / "page" / "assets"
REGIONS = ("top", "strip", "left", "main", "status")
BESIDE = 12  # runs that wait in line at a time, and some that are told that they cannot
SECONDS = 3600  # that a session is kept without a click
OF_ADDRESS, OF_ALL = 50, 200  # sessions
LIMIT = 512 * 2**20  # bytes of all sessions: their images
STARTING = (
    "PyTorch, the tables and the first model are being loaded. This takes some seconds, once after each "
    "start; the page then opens by itself."
)
BARE = "start"  # the view that the bare address opens
TABS = ("bias", BARE, "heads")
"""The views that are opened ahead, in this order: what Bias looks at takes longest, and Start has it too."""
_PARTS = (".py", ".html", ".txt", ".json")
TITLE = "CLIP heads"
PURPOSE = "See what an attention head of CLIP has learned, switch it off, see what happens."


Opening = Callable[[Mapping[str, str]], "dict[str, str] | None"]


class Openings:
    """The opening screens, the same for everyone: computed once after a start, and kept on the disk.

    Whoever opens one gets it at once, after a restart before PyTorch is imported. They are named by all that
    they are made of (tables, the models offered, the first of them), so what has changed is not shown.
    """

    def __init__(self, found: Collection, given: Sequence[str], first: str) -> None:
        from huggingface_hub import constants

        about: list[object] = [found.source, found.notices, given, first, constants.HF_HOME]
        about += [[name, results.manifest] for name, results in sorted(found.models.items())]
        digest = hashlib.sha256(json.dumps(about, default=str).encode())
        for path in sorted(Path(__file__).parents[1].rglob("*")):
            if path.suffix in _PARTS:
                digest.update(path.read_bytes())
        self._file = Path(constants.HF_HOME) / "clip-ccs" / "openings" / f"{digest.hexdigest()[:16]}.json"
        # A folder's weights may change.
        self._kept = not any(Path(place).exists() for place in (*given, first))

    def find(self, query: Mapping[str, str]) -> dict[str, str] | None:
        """The regions of the screen that an address opens, where they are kept."""
        asked = {name: value for name, value in query.items() if not name.startswith("__")}
        tab = asked.pop("tab", BARE)
        try:
            kept: dict[str, dict[str, str]] = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return None if asked else kept.get(tab)

    def make(self, app: App) -> None:
        """Compute the screens ahead of the first visitor, and keep them for the next start."""
        from ccs.ui.clicks import open_page
        from ccs.ui.links import open_link
        from ccs.ui.service.galleries import world
        from ccs.ui.views.start import claim_of

        try:
            for _ in app.model_cache.loading(app.first, seconds=3600):
                pass
            found: dict[str, dict[str, str]] = {tab: {} for tab in TABS}
            for tab in TABS:
                for _, html in open_page(app, {} if tab == BARE else {"tab": tab}):
                    found[tab] |= html
            own, model = world(app.first), app.model_cache.get(app.first)
            if self._kept and app.galleries.has(own.people) and app.galleries.has(own.pictures):
                write_text(self._file, json.dumps(found))
            # The button of Start has one answer for everyone too.
            app.galleries.embeddings(model, own.people, claim_of(open_link(app, {})).off)
        except InputError as error:
            log.warning("the opening screens are not kept: %s", error)


class LazyApp:
    """An app that is made once, when it is first asked for; others who ask meanwhile wait for it."""

    def __init__(self, make: Callable[[], App]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._app: App | None = None

    @property
    def made(self) -> bool:
        return self._app is not None

    def __call__(self) -> App:
        with self._lock:
            if self._app is None:
                self._app = self._make()
            return self._app


class Sessions:
    """The sessions of all visitors, by page. Where there are too many, the oldest of the same address goes,
    or of the address that has most.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float, int, Session]] = {}  # the least recently used first
        self._lock = threading.Lock()

    def find(self, page: str) -> Session | None:
        """The session of a page, None where there is none, yet or any more: after an hour unused."""
        with self._lock:
            now = time.monotonic()
            self._kept = {page: one for page, one in self._kept.items() if one[1] > now - SECONDS}
            return self._kept[page][3] if page in self._kept else None

    def keep(self, page: str, client: str, session: Session) -> None:
        """Keep the session of a page, which was used from this address just now."""
        with self._lock:
            self._kept.pop(page, None)
            self._kept[page] = client, time.monotonic(), size_of(session), session
            while (most := self._too_much(client)) is not None:
                del self._kept[next(page for page, (owner, *_) in self._kept.items() if owner == most)]

    def _too_much(self, client: str) -> str | None:
        """The address of which one goes, if one has to."""
        counts, sizes = Counter[str](), Counter[str]()
        for owner, _, size, _ in self._kept.values():
            counts[owner] += 1
            sizes[owner] += size
        if counts[client] > OF_ADDRESS:
            return client
        if sizes.total() > LIMIT:
            return sizes.most_common(1)[0][0]
        return counts.most_common(1)[0][0] if len(self._kept) > OF_ALL else None


def page(source: Callable[[], App], kept: Opening = lambda query: None) -> tuple[gr.Blocks, dict[str, Any]]:
    """The page, and the arguments of its `launch`: looks and limits. kept: see `Openings.find`."""
    sessions = Sessions()

    def listener(begin: Callable[[Turn, Fields], Iterator[Update]]) -> Callable[..., Iterator[list[Any]]]:
        """What Gradio calls: it answers with what `begin` makes of an event's fields, or of a new page's
        address, in the turn that the door gave.
        """

        def listen(event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
            assert request.request is not None  # None only for a request made in code
            turn: Turn = request.request.scope["turn"]
            said = json.loads(getattr(event, "_data", None) or "null")  # a text, as the door gives it
            fields = said if isinstance(said, Mapping) else dict(request.query_params)

            def updates() -> Generator[list[Any], None, None]:
                for session, html in begin(turn, fields):
                    if session is not None:
                        sessions.keep(turn.page, turn.client, session)
                    yield [html.get(name, gr.skip()) for name in REGIONS]

            yield from turn.work(updates())

        return listen

    def open_page(turn: Turn, fields: Fields) -> Iterator[Update]:
        return _opening(source, kept, {name: str(value) for name, value in fields.items()})

    def act(turn: Turn, fields: Fields) -> Iterator[Update]:
        from ccs.ui import clicks

        return clicks.act(source(), sessions.find(turn.page), fields)

    def take_apart(turn: Turn, fields: Fields) -> Iterator[Update]:
        from ccs.ui import clicks

        return clicks.take_apart(source(), sessions.find(turn.page), fields, turn.client)

    def cancel(turn: Turn, fields: Fields) -> Iterator[Update]:
        from ccs.ui import clicks

        turn.cancel()
        yield clicks.cancel(source(), sessions.find(turn.page))

    script = _assets("ui.js", "region.js")
    demo: gr.Blocks = gr.Blocks(
        title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(600, 3600)
    )

    def region(name: str, html: str) -> Any:  # Gradio makes an event of any name that the script quotes
        return gr.HTML(html, js_on_load=script, elem_id=f"region-{name}", apply_default_css=False)

    with demo:
        opening = '<div class="opening">{}</div>'
        top = region("top", opening.format(f"<h1>{TITLE}</h1><p>Opening …</p>"))
        state = region("status", render("status.html", state="working"))
        strip = region("strip", "")
        with gr.Row(elem_id="columns"):
            left, main = (region(name, opening.format("")) for name in ("left", "main"))
        outputs = [top, strip, left, main, state]
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        clicks: dict[str, Any] = {**quiet, "concurrency_id": "click", "concurrency_limit": AT_ONCE["click"]}
        demo.load(listener(open_page), None, outputs, **clicks)
        for part in (top, strip, left, main, state):
            part.act(listener(act), None, outputs, trigger_mode="multiple", **clicks)
        beside = {**quiet, "concurrency_limit": BESIDE}
        # These wait for no click: a run takes minutes, in a line of its own, and Cancel ends what is at work.
        left.apart(listener(take_apart), None, outputs, concurrency_id="apart", **beside)
        state.cancel(listener(cancel), None, outputs, concurrency_id="cancel", **beside)
    demo.api_open = False  # `demo.queue` would say so too, and build the server once more
    return demo, _launch_settings(demo)


def _opening(source: Callable[[], App], kept: Opening, query: dict[str, str]) -> Iterator[Update]:
    """The page that a link asks for: the one that is kept, or else the app's, once there is one."""
    if found := kept(query):
        yield None, found  # without a session: the first click begins one
        return
    if isinstance(source, LazyApp) and not source.made:
        main = render("empty.html", title="The app is starting", text=STARTING)
        yield None, {"main": main, "status": render("status.html", state="working", doing="Starting")}
    from ccs.ui import clicks

    yield from clicks.open_page(source(), query)


def _assets(*names: str) -> str:
    return "".join((ASSETS / name).read_text("utf-8") for name in names)


def _launch_settings(demo: gr.Blocks) -> dict[str, Any]:
    kinds = {number: str(one.concurrency_id) for number, one in demo.fns.items()}
    # System fonts only, so that nothing is fetched; the rest is in page/assets.
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    # As a style element, for Gradio rewrites the selectors of `css` and breaks those that hold a comma.
    style = _assets("page.css", "figures.css", "narrow.css", "start.css")
    return {
        "theme": gr.themes.Base(font=fonts, font_mono=mono),
        "head": f'<meta name="description" content="{PURPOSE}"><style>\n{style}</style>',
        "max_file_size": "20mb",
        "state_session_capacity": 10,  # the whole page of each, which nothing here asks for
        "ssr_mode": False,
        "pwa": False,
        "run_history": False,  # its routes fetch files by their address and store calls in a visitor's bucket
        "quiet": True,
        "footer_links": [],
        "app_kwargs": {"middleware": [Middleware(Door, functions=kinds)]},
    }
