"""The Gradio side, where a click arrives: regions of HTML, the listeners that `clicks` answers, and limits.

Nothing here needs PyTorch: the page is served first; what computes comes with the app itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware import Middleware

from ccs.ui.door import AT_ONCE, Door, Turn
from ccs.ui.html import render
from ccs.ui.service.cache import size_of

if TYPE_CHECKING:
    from ccs.ui.actions import Fields
    from ccs.ui.clicks import Update
    from ccs.ui.session import App, Session

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
TITLE = "CLIP heads"
PURPOSE = "See what an attention head of CLIP has learned, switch it off, see what happens."


class LazyApp:
    """An app that is made once, when it is first asked for; others who ask meanwhile wait for it.

    opening: the regions of a screen that are known without it, by the address's query.
    """

    def __init__(
        self,
        make: Callable[[], App],
        opening: Callable[[Mapping[str, str]], dict[str, str] | None] = lambda query: None,
    ) -> None:
        self._make, self.opening = make, opening
        self._lock = threading.Lock()
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


def page(source: Callable[[], App]) -> tuple[gr.Blocks, dict[str, Any]]:
    """The page, and the arguments of its `launch`: looks and limits."""
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
        return _opening(source, {name: str(value) for name, value in fields.items()})

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
    demo.queue(max_size=None, api_open=False)  # the door bounds it
    return demo, _launch_settings(demo)


def _opening(source: Callable[[], App], query: dict[str, str]) -> Iterator[Update]:
    """The page that a link asks for: the one that is kept, or else the app's, once there is one."""
    if isinstance(source, LazyApp) and (kept := source.opening(query)):
        yield None, kept  # without a session: the first click begins one
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
