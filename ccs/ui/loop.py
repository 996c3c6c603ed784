"""The loop: an action of a visitor, the session after it, and the regions of the page that changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from ccs.errors import InputError
from ccs.ui import actions, opening
from ccs.ui import app as core
from ccs.ui.app import App
from ccs.ui.page import top
from ccs.ui.page.parts import status
from ccs.ui.session import Session

log = logging.getLogger(__name__)

REGIONS = ("top", "left", "main")
Update = list[Any]


def open_page(app: App, request: gr.Request) -> Iterator[Update]:
    """A page that opens: its session from the link."""
    query = {key: str(value) for key, value in dict(request.query_params).items()}
    fresh = opening.open_link(app, query)
    yield from _answer(app, fresh)


def act(app: App, session: Session | None, event: gr.EventData) -> Iterator[Update]:
    """Everything that a visitor does."""
    data = getattr(event, "_data", None)
    data = data if isinstance(data, Mapping) else {}
    if session is None:  # the page outlived the session that it had here
        session = opening.open_link(app, {})
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


def cancel(app: App, session: Session | None) -> Update:
    """Cancel, and show what was there."""
    if session is None:
        return [None, *[gr.skip()] * len(REGIONS), status(0, "done")]
    session.notices[:] = ["Cancelled. What is shown may not be what is chosen now; any click computes it."]
    session.turn += 1
    session.shown["top"] = top.render(app, session)
    return [
        session,
        session.shown["top"],
        gr.skip(),
        gr.skip(),
        status(session.turn, "done", query=session.state.query()),
    ]


def _answer(app: App, session: Session) -> Iterator[Update]:
    """The regions that changed; before long work an estimate, where there is one, and its progress."""
    session.turn += 1
    query = session.state.query()
    try:
        if core.first(app, session):
            yield [
                session,
                *_changed(session, core.regions(app, session, whole=False)),
                status(session.turn, "working", 0.0, "Computing", query),
            ]
        for share, doing in core.work(app, session):
            yield [
                session,
                *[gr.skip()] * len(REGIONS),
                status(session.turn, "working", share, doing, query),
            ]
        new = core.regions(app, session)
    except InputError as error:
        new = core.failed(app, session, str(error))
    except Exception:
        log.exception("the view %r failed", session.state.tab)
        new = core.failed(app, session, "Something went wrong; the error has been logged.")
    yield [session, *_changed(session, new), status(session.turn, "done", query=query)]


def _changed(session: Session, new: Mapping[str, str]) -> Update:
    """One update a region: its HTML where that changed, else nothing to send."""
    out: Update = []
    for name in REGIONS:
        html = new.get(name, session.shown.get(name, ""))
        out.append(gr.skip() if session.shown.get(name) == html else html)
        session.shown[name] = html
    return out
