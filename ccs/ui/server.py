"""The Gradio side: three regions of HTML, a listener for what visitors do, one for a page that opens.

Nothing here needs PyTorch: the page is served first; what computes (`loop`) comes with the app itself.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ccs.ui import api
from ccs.ui.page.parts import status
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.app import App

ASSETS = Path(__file__).parent / "page" / "assets"
REGIONS = ("top", "left", "main")
SESSION_SECONDS = 3600
SESSIONS = 200
AT_ONCE = api.AT_ONCE
Update = list[Any]


class Later:
    """An app that is made once, when it is first asked for; others who ask meanwhile wait for it."""

    def __init__(self, make: Callable[[], App]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._app: App | None = None

    def __call__(self) -> App:
        with self._lock:
            if self._app is None:
                self._app = self._make()
            return self._app


def blocks(source: Callable[[], App]) -> gr.Blocks:
    """The page. Two visitors are answered at a time, the others in the order asked: a short answer need not
    wait for a long one, and two cores gain nothing from more."""
    script = (ASSETS / "region.js").read_text("utf-8")
    demo: gr.Blocks = gr.Blocks(
        title="CLIP heads", analytics_enabled=False, fill_width=True, delete_cache=(600, 3600)
    )
    with demo:
        session = gr.State(None, time_to_live=SESSION_SECONDS)
        parts: dict[str, gr.HTML] = {}
        parts["top"] = gr.HTML(
            _waiting("top"), js_on_load=script, elem_id="region-top", apply_default_css=False
        )
        parts["status"] = gr.HTML(
            status(0, "working"), js_on_load=script, elem_id="region-status", apply_default_css=False
        )
        with gr.Row(elem_id="columns"):
            for name in ("left", "main"):
                parts[name] = gr.HTML(
                    _waiting(name), js_on_load=script, elem_id=f"region-{name}", apply_default_css=False
                )
        outputs = [session, *(parts[name] for name in (*REGIONS, "status"))]
        quiet: dict[str, Any] = {
            "show_progress": "hidden",
            "api_visibility": "private",
            "concurrency_id": "model",
            "concurrency_limit": AT_ONCE,
        }
        events = [demo.load(opener(source), [session], outputs, **quiet)]
        for name in REGIONS:
            # Gradio makes an event of any name that the script quotes.
            listener = getattr(parts[name], "act")  # noqa: B009
            events.append(listener(actor(source), [session], outputs, trigger_mode="multiple", **quiet))
        cancel = getattr(parts["status"], "cancel")  # noqa: B009
        cancel(
            canceller(source),
            [session],
            outputs,
            cancels=events[1:],
            show_progress="hidden",
            api_visibility="private",
            queue=False,
        )
        api.expose(source)
    demo.queue(default_concurrency_limit=AT_ONCE, max_size=100)
    return demo


def opener(source: Callable[[], App]) -> Any:
    """The listener for a page that opens."""

    def open_page(session: Session | None, request: gr.Request) -> Iterator[Update]:
        from ccs.ui import loop

        yield from loop.open_page(source(), request)

    return open_page


def actor(source: Callable[[], App]) -> Any:
    """The listener for everything that a visitor does."""

    def act(session: Session | None, event: gr.EventData) -> Iterator[Update]:
        from ccs.ui import loop

        yield from loop.act(source(), session, event)

    return act


def canceller(source: Callable[[], App]) -> Any:
    """The listener for Cancel."""

    def cancel(session: Session | None) -> Update:
        from ccs.ui import loop

        return loop.cancel(source(), session)

    return cancel


def _waiting(region: str) -> str:
    words = {"top": "<h1>CLIP heads</h1><p>Opening …</p>", "left": "", "main": ""}[region]
    return f'<div class="opening">{words}</div>'


def theme() -> gr.themes.Base:
    """System fonts only, so that nothing is fetched; the rest is in page/assets/style.css."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
    return gr.themes.Base(
        font=fonts, font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    )


def launch_settings() -> dict[str, Any]:
    """What `launch` needs of the page's looks and limits."""
    return {
        # As a style element, for Gradio rewrites the selectors of `css` and breaks those that hold a comma.
        "theme": theme(),
        "head": f"<style>\n{(ASSETS / 'style.css').read_text('utf-8')}</style>",
        "max_file_size": "20mb",
        "state_session_capacity": SESSIONS,
        "ssr_mode": False,
        "pwa": False,
        "quiet": True,
        "mcp_server": importlib.util.find_spec("mcp") is not None,
        "footer_links": ["api"],
    }
