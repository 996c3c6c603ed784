"""The Gradio side, where a click arrives: regions of HTML, the listeners that `clicks` answers, and limits.

Nothing here needs PyTorch: the page is served first; what computes comes with the app itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware import Middleware

from ccs.ui.guard import AT_ONCE, Guard, Turns
from ccs.ui.html import render

if TYPE_CHECKING:
    from ccs.ui.session import Session
    from ccs.ui.shared import App

ASSETS = Path(__file__).parent / "page" / "assets"
REGIONS = ("top", "strip", "left", "main", "status")
SESSION_SECONDS = 3600
SESSIONS = 200
WAITING = 100  # actions of all visitors
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


def page(source: Callable[[], App]) -> tuple[gr.Blocks, dict[str, Any]]:
    """The page, and the arguments of its `launch`: looks and limits."""
    turns = Turns()

    def open_page(session: Any, request: gr.Request) -> Iterator[list[Any]]:
        with turns.of(request):
            query = {key: str(value) for key, value in dict(request.query_params).items()}
            if isinstance(source, LazyApp) and (kept := source.opening(query)):
                yield _outputs((None, kept))  # without a session: the first click begins one
                return
            if isinstance(source, LazyApp) and not source.made:
                main = render("empty.html", title="The app is starting", text=STARTING)
                status = render("status.html", state="working", doing="Starting")
                yield _outputs((None, {"main": main, "status": status}))
            from ccs.ui import clicks

            yield from map(_outputs, clicks.open_page(source(), query))

    def act(session: Any, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        with turns.of(request):
            from ccs.ui import clicks

            yield from map(_outputs, clicks.act(source(), session, _fields(event)))

    def take_apart(session: Any, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        with turns.of(request):
            from ccs.ui import clicks
        # Its client's turn has ended: a run takes minutes, in a queue of its own.
        yield from map(_outputs, clicks.take_apart(source(), session, _fields(event)))

    def cancel(session: Any) -> list[Any]:
        from ccs.ui import clicks

        return _outputs(clicks.cancel(source(), session))

    script = _assets("ui.js", "region.js")
    demo: gr.Blocks = gr.Blocks(
        title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(600, 3600)
    )

    def region(name: str, html: str) -> Any:  # Gradio makes an event of any name that the script quotes
        return gr.HTML(html, js_on_load=script, elem_id=f"region-{name}", apply_default_css=False)

    with demo:
        session = gr.State(None, time_to_live=SESSION_SECONDS)
        opening = '<div class="opening">{}</div>'
        top = region("top", opening.format(f"<h1>{TITLE}</h1><p>Opening …</p>"))
        state = region("status", render("status.html", state="working"))
        strip = region("strip", "")
        with gr.Row(elem_id="columns"):
            left, main = (region(name, opening.format("")) for name in ("left", "main"))
        outputs = [session, top, strip, left, main, state]
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        queued: dict[str, Any] = {**quiet, "concurrency_id": "model", "concurrency_limit": AT_ONCE}
        demo.load(open_page, [session], outputs, **queued)
        acts = [
            part.act(act, [session], outputs, trigger_mode="multiple", **queued)
            for part in (top, strip, left, main, state)
        ]
        acts.append(left.apart(take_apart, [session], outputs, concurrency_limit=1, **quiet))
        state.cancel(cancel, [session], outputs, cancels=acts, queue=False, **quiet)
    demo.queue(default_concurrency_limit=AT_ONCE, max_size=WAITING, api_open=False)
    return demo, _launch_settings(turns, demo)


def _fields(event: gr.EventData) -> Mapping[str, Any]:
    data = getattr(event, "_data", None)
    return data if isinstance(data, Mapping) else {}


def _assets(*names: str) -> str:
    return "".join((ASSETS / name).read_text("utf-8") for name in names)


def _outputs(update: tuple[Session | None, Mapping[str, str]]) -> list[Any]:
    """The values of Gradio's outputs: the session, and each region where it changed."""
    session, html = update
    return [session, *(html.get(name, gr.skip()) for name in REGIONS)]


def _launch_settings(turns: Turns, demo: gr.Blocks) -> dict[str, Any]:
    # System fonts only, so that nothing is fetched; the rest is in page/assets.
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    # As a style element, for Gradio rewrites the selectors of `css` and breaks those that hold a comma.
    style = _assets("page.css", "figures.css", "narrow.css", "start.css")
    return {
        "theme": gr.themes.Base(font=fonts, font_mono=mono),
        "head": f'<meta name="description" content="{PURPOSE}"><style>\n{style}</style>',
        "max_file_size": "20mb",
        "state_session_capacity": SESSIONS,
        "ssr_mode": False,
        "pwa": False,
        "run_history": False,  # its routes fetch files by their address and store calls in a visitor's bucket
        "quiet": True,
        "footer_links": [],
        "app_kwargs": {
            "middleware": [Middleware(Guard, turns=turns, functions=demo.fns.keys())],
        },
    }
