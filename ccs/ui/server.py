"""The Gradio side, where a click arrives: regions of HTML, the listeners that `clicks` answers, and limits.

Nothing here needs PyTorch: the page is served first; what computes comes with the app itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware import Middleware

from ccs.ui.door import AT_ONCE, Door, Turn
from ccs.ui.html import render
from ccs.ui.sessions import Sessions

if TYPE_CHECKING:
    from ccs.ui.clicks import Update
    from ccs.ui.session import Session
    from ccs.ui.shared import App

ASSETS = Path(__file__).parent / "page" / "assets"
REGIONS = ("top", "strip", "left", "main", "status")
BESIDE = 12  # runs that wait in line at a time, and some that are told that they cannot
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


def _turn(request: gr.Request) -> Turn:
    """The turn that the door gave a request."""
    assert request.request is not None  # None only for a request made in code
    turn: Turn = request.request.scope["turn"]
    return turn


def page(source: Callable[[], App]) -> tuple[gr.Blocks, dict[str, Any]]:
    """The page, and the arguments of its `launch`: looks and limits."""
    sessions = Sessions()

    def answers(
        request: gr.Request, begin: Callable[[Session | None], Iterator[Update]]
    ) -> Iterator[list[Any]]:
        turn = _turn(request)

        def updates() -> Generator[list[Any], None, None]:
            for session, html in begin(sessions.find(turn.page)):
                if session is not None:
                    sessions.keep(turn.page, turn.client, session)
                yield [html.get(name, gr.skip()) for name in REGIONS]

        return turn.work(updates())

    def open_page(request: gr.Request) -> Iterator[list[Any]]:
        query = {key: str(value) for key, value in dict(request.query_params).items()}
        yield from answers(request, lambda _: _opening(source, query))

    def act(event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        def begin(session: Session | None) -> Iterator[Update]:
            from ccs.ui import clicks

            return clicks.act(source(), session, _fields(event))

        yield from answers(request, begin)

    def take_apart(event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        client = _turn(request).client

        def begin(session: Session | None) -> Iterator[Update]:
            from ccs.ui import clicks

            return clicks.take_apart(source(), session, _fields(event), client)

        yield from answers(request, begin)

    def cancel(request: gr.Request) -> Iterator[list[Any]]:
        def begin(session: Session | None) -> Iterator[Update]:
            from ccs.ui import clicks

            yield clicks.cancel(source(), session)

        _turn(request).cancel()
        yield from answers(request, begin)

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
        demo.load(open_page, None, outputs, **clicks)
        for part in (top, strip, left, main, state):
            part.act(act, None, outputs, trigger_mode="multiple", **clicks)
        # These wait for no click: a run takes minutes, in a line of its own, and Cancel ends what is at work.
        left.apart(take_apart, None, outputs, concurrency_id="apart", concurrency_limit=BESIDE, **quiet)
        state.cancel(cancel, None, outputs, concurrency_id="cancel", concurrency_limit=BESIDE, **quiet)
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


def _fields(event: gr.EventData) -> Mapping[str, Any]:
    data = json.loads(getattr(event, "_data", None) or "null")  # a text, as the door gives it
    return data if isinstance(data, Mapping) else {}


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
