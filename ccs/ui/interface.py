"""The Gradio side: three regions of HTML, a listener for what visitors do, one for a page that opens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from ccs.errors import InputError
from ccs.ui import actions, api, core
from ccs.ui.core import App
from ccs.ui.parts import esc
from ccs.ui.session import Session

log = logging.getLogger(__name__)

ASSETS = Path(__file__).parent / "assets"
REGIONS = ("top", "left", "main")
SESSION_SECONDS = 3600
SESSIONS = 200
Update = list[Any]


def blocks(app: App) -> gr.Blocks:
    """The page. One thing computes at a time, in the order asked: two cores gain nothing from more."""
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
            _status(0, "working"), js_on_load=script, elem_id="region-status", apply_default_css=False
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
            "concurrency_limit": 1,
        }
        events = [demo.load(opener(app), [session], outputs, **quiet)]
        for name in REGIONS:
            # Gradio makes an event of any name that the script quotes.
            listener = getattr(parts[name], "act")  # noqa: B009
            events.append(listener(actor(app), [session], outputs, trigger_mode="multiple", **quiet))
        cancel = getattr(parts["status"], "cancel")  # noqa: B009
        cancel(
            canceller(app),
            [session],
            outputs,
            cancels=events[1:],
            show_progress="hidden",
            api_visibility="private",
            queue=False,
        )
        api.expose(app)
    demo.queue(default_concurrency_limit=1, max_size=100)
    return demo


def opener(app: App) -> Any:
    """The listener for a page that opens: its session from the link."""

    def open_page(session: Session | None, request: gr.Request) -> Iterator[Update]:
        query = {key: str(value) for key, value in dict(request.query_params).items()}
        fresh = actions.open_link(app, query)
        yield from _answer(app, fresh)

    return open_page


def actor(app: App) -> Any:
    """The listener for everything that a visitor does."""

    def act(session: Session | None, event: gr.EventData) -> Iterator[Update]:
        data = getattr(event, "_data", None)
        data = data if isinstance(data, Mapping) else {}
        if session is None:  # the page outlived the session that it had here
            session = actions.open_link(app, {})
            session.notices.append("This page had been idle for long, so it starts from the beginning.")
        elif str(data.get("do")) != "dismiss":
            session.notices.clear()
        try:
            actions.update(app, session, str(data.get("do", "")), data)
        except InputError as error:
            session.notices.append(str(error))
        except Exception:
            log.exception("the action %r failed", data.get("do"))
            session.notices.append(
                "Something went wrong with that; the error has been logged. Nothing was changed."
            )
        yield from _answer(app, session)

    return act


def canceller(app: App) -> Any:
    """The listener for Cancel: the page as it was before the heads were switched off."""

    def cancel(session: Session | None) -> Update:
        if session is None:
            return [None, *[gr.skip()] * len(REGIONS), _status(0, "done")]
        session.notices[:] = [
            "Cancelled; the figures are not those of the heads switched off now. Click again to compute them."
        ]
        session.turn += 1
        return [
            session,
            core.regions(app, session, exact=False)["top"],
            gr.skip(),
            gr.skip(),
            _status(session.turn, "done", query=session.state.query()),
        ]

    return cancel


def _answer(app: App, session: Session) -> Iterator[Update]:
    """The regions that changed; before long work an estimate, where there is one, and its progress."""
    session.turn += 1
    query = session.state.query()
    try:
        if core.instant(app, session):
            yield [
                session,
                *_changed(session, core.regions(app, session, exact=False)),
                _status(session.turn, "working", 0.0, "Computing the exact answer", query),
            ]
        for share, doing in core.work(app, session):
            yield [
                session,
                *[gr.skip()] * len(REGIONS),
                _status(session.turn, "working", share, doing, query),
            ]
        new = core.regions(app, session)
    except InputError as error:
        new = core.failed(app, session, str(error))
    except Exception:
        log.exception("the view %r failed", session.state.tab)
        new = core.failed(app, session, "Something went wrong; the error has been logged.")
    yield [session, *_changed(session, new), _status(session.turn, "done", query=query)]


def _changed(session: Session, new: Mapping[str, str]) -> Update:
    """One update a region: its HTML where that changed, else nothing to send."""
    out: Update = []
    for name in REGIONS:
        html = new.get(name, session.shown.get(name, ""))
        out.append(gr.skip() if session.shown.get(name) == html else html)
        session.shown[name] = html
    return out


def _status(turn: int, state: str, share: float = 0.0, doing: str = "", query: str = "") -> str:
    """What the page's script reads: the turn, whether it is over, and the link to this screen."""
    busy = ""
    if doing:
        busy = (
            f'<div class="busy" role="status"><span>{esc(doing)} …</span><progress max="1" '
            f'value="{share:.2f}"></progress>'
            '<button type="button" data-cancel="1">Cancel</button></div>'
        )
    return (
        f'<div class="status" data-turn="{turn}" data-state="{state}" data-query="{esc(query)}">{busy}</div>'
    )


def _waiting(region: str) -> str:
    words = {"top": "<h1>CLIP heads</h1><p>Opening …</p>", "left": "", "main": ""}[region]
    return f'<div class="opening">{words}</div>'


def theme() -> gr.themes.Base:
    """System fonts only, so that nothing is fetched; the rest is in assets/style.css."""
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
        "footer_links": ["api"],
    }
