"""The way of a click: an action of a visitor, the session after it, and the regions of HTML that changed.

`server` hands over what a visitor does; `actions` has what can be done, the view on the screen and the frame
around it what is shown afterwards.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from inspect import signature
from typing import TypeVar
from urllib.parse import parse_qsl

from markupsafe import escape

from ccs.errors import InputError
from ccs.ui import frame
from ccs.ui.actions import ACTIONS, Fields, action
from ccs.ui.html import render
from ccs.ui.links import open_link
from ccs.ui.service.model_cache import shipped
from ccs.ui.session import App, Screen, Session
from ccs.ui.state import one_of
from ccs.ui.views import VIEWS
from ccs.ui.views.base import MADE_WITH, Empty

log = logging.getLogger(__name__)

T = TypeVar("T")
TURN, GLANCE = 5.0, 0.3  # seconds that an answer waits for a model: a new one, and one that was on its way
Update = tuple[Session | None, dict[str, str]]  # the session, and the HTML of what changed: regions or status


@action("tab")
def _tab(screen: Screen, value: str) -> None:
    screen.change(tab=one_of(value, tuple(VIEWS), "view"))


@action("open")
def _open(screen: Screen, query: str) -> None:
    """Show the screen of a link in the session that there is, as Back and Forward do."""
    found = open_link(screen.app, _query(query))
    screen.set_off(found.state.off)
    screen.session.state, screen.session.notices = found.state, found.session.notices


@action("code")
def _code(screen: Screen) -> None:
    """The program that prints what the screen shows; InputError where there is none."""
    screen.session.code = VIEWS[screen.state.tab].snippet(screen)


def _query(address: object) -> dict[str, str]:
    """The fields of what stands in an address behind the question mark."""
    return dict(parse_qsl(str(address or "").removeprefix("?")))


def update(screen: Screen, do: str, fields: Fields) -> None:
    """Apply one action; InputError where it cannot be applied. Where that fails, the session is as it was."""
    if do not in ACTIONS:
        raise InputError(f"There is no action {do[:20]!r}.")
    before = dict(vars(screen.session))
    try:
        _called(ACTIONS[do], screen, fields)
    except BaseException:  # the visitor's cancelling too
        vars(screen.session).update(before)
        raise


def _called(work: Callable[..., T], screen: Screen, fields: Fields) -> T:
    """A function of a screen, with the fields that it asks for."""
    given = {}
    _, *asked = signature(work).parameters.values()
    for one in asked:
        sent = fields.get(one.name, "")
        given[one.name] = sent if one.annotation == "object" else str(sent)
    return work(screen, **given)


def open_page(app: App, query: Mapping[str, str]) -> Iterator[Update]:
    """The screen that a link asks for."""
    yield from _answer(open_link(app, query))


def act(app: App, session: Session | None, fields: Fields) -> Iterator[Update]:
    """Answer an action of the page with the regions of the screen that it changes."""
    do = str(fields.get("do", ""))
    screen = _present(app, session, fields, keep=do in ("dismiss", "poll"))
    try:
        update(screen, do, fields)
    except InputError as error:
        screen.session.tell(str(error))
    except Exception:  # a fault of this program's: the page goes on, and the log has it; so below
        log.exception("the action %r failed", do)
        screen.session.tell("That did not work. The error has been logged, and nothing was changed.")
    yield from _answer(screen)


def take_apart(app: App, session: Session | None, fields: Fields, client: str = "") -> Iterator[Update]:
    """Take the model on the screen apart and show its tables: long, so not one of the actions."""
    screen = _present(app, session, fields)
    try:
        request = _called(frame.asked_apart, screen, fields)
        for share, doing in app.kept.make(request, client):
            status = _status(screen, "working", share, f"Taking {request.model} apart: {doing}")
            yield screen.session, {"status": status}
        screen.change(apart=request.key, text=0)  # the link finds the tables again
    except InputError as error:
        screen.session.tell(f"Taking the model apart failed: {error}")
    except Exception:
        log.exception("a model could not be taken apart")
        screen.session.tell("The model could not be taken apart; the error has been logged.")
    yield from _answer(screen)


def _present(app: App, session: Session | None, fields: Fields, keep: bool = False) -> Screen:
    """The screen of a page, its notices gone unless they are kept; where there is no session, yet or any
    more, the one in the page's address.
    """
    if session is None:
        screen = open_link(app, _query(fields.get("page")))
        if fields.get("turn") != "1":
            screen.session.notices = [
                "This page was idle too long: your own images are gone, the rest is as it was."
            ]
        screen.session.turn = 1
        return screen
    if not keep:
        session.notices = []
    return Screen(app, session)


def cancel(app: App, session: Session | None) -> Update:
    """The page as it was, with a notice."""
    if session is None:
        return None, {"status": render("status.html", state="done")}
    screen = Screen(app, session)
    session.wanted = None
    session.notices = ["Canceled. What is shown may not match what is chosen; any click computes it."]
    session.turn += 1
    if on_way := _on_way(screen):
        other = next(name for name in (*app.model_cache.loaded(), *shipped()) if name not in on_way)
        update(screen, "model", {"value": other})
        session.notices = [f"{', '.join(on_way)} is still being loaded; choose it again when you like."]
    new = regions(screen) if on_way else {"top": frame.top(screen)}
    return session, {**_changed(session, new), "status": _over(screen)}


def regions(screen: Screen, complete: bool = True) -> dict[str, str]:
    """The page as HTML, by region; with `complete` False, what can be shown at once."""
    state, view = screen.state, VIEWS[screen.state.tab]
    weights = screen.model.weights_hash if screen.has_model else screen.records.weights
    made = {"model": state.model, "weights": weights[:16], "gallery": "", "template": ""}
    before = MADE_WITH.set({**made, "heads off": state.off})
    try:
        return frame.regions(screen, view.render(screen, complete))
    finally:
        MADE_WITH.reset(before)


def _answer(screen: Screen) -> Iterator[Update]:
    """The regions that changed; while long work goes on, what can be shown already, and its progress."""
    session = screen.session
    session.turn += 1
    try:
        if _pending(screen):
            first = _changed(session, regions(screen, complete=False))
            yield session, {**first, "status": _status(screen, "working", 0.0, "Computing")}
        news = _news(screen)
        for share, doing in _work(screen):
            more: dict[str, str] = {}
            if (now := _news(screen)) != news:
                news, more = now, _changed(session, regions(screen, complete=False))
            yield session, {**more, "status": _status(screen, "working", share, doing)}
        new = regions(screen, complete=not _on_way(screen))
    except InputError as error:
        new = _failed(screen, str(error))
    except Exception:
        log.exception("the view %r failed", screen.state.tab)
        new = _failed(screen, "Something went wrong; the error has been logged.")
    yield session, {**_changed(session, new), "status": _over(screen)}


def _over(screen: Screen) -> str:
    """The status of an answer that is over, with the work that continues in the background."""
    on_way = _on_way(screen)
    doing = screen.app.model_cache.progress(on_way[0]) if on_way else ""
    code, screen.session.code = screen.session.code, ""
    return _status(screen, "done", 0.0, doing, cancel=bool(on_way), code=code)


def _on_way(screen: Screen) -> list[str]:
    """The models of the view that are still being loaded."""
    return [name for name in _missing(screen) if screen.app.model_cache.is_loading(name)]


def _missing(screen: Screen) -> list[str]:
    """The models that the view computes with and that are not in memory."""
    names = VIEWS[screen.state.tab].models(screen.state)
    return [name for name in names if name not in screen.app.model_cache.loaded()]


def _pending(screen: Screen) -> bool:
    """True if a part of the view should be shown while `_work` goes on."""
    try:
        return bool(_missing(screen)) or VIEWS[screen.state.tab].pending(screen)
    except InputError:
        return False


def _news(screen: Screen) -> Hashable:
    """What can be shown so far of a view that is being worked on."""
    with suppress(InputError):
        return None if _missing(screen) else VIEWS[screen.state.tab].news(screen)
    return None


def _work(screen: Screen) -> Iterator[tuple[float, str]]:
    """The long part of showing this screen: yields (share done, what is being done)."""
    models = screen.app.model_cache
    try:
        for name in _missing(screen):
            yield 0.0, f"Loading {name}"
            # Others wait for this visitor's turn to end, so long loading continues in the background.
            for doing in models.loading(name, GLANCE if models.is_loading(name) else TURN):
                yield 0.0, doing
        if not _on_way(screen):
            yield from VIEWS[screen.state.tab].prepare(screen)
    except InputError:
        return  # the view says it, beside what can be shown all the same


def _changed(session: Session, new: Mapping[str, str]) -> dict[str, str]:
    """The regions whose HTML is not what the visitor sees."""
    digests = {name: hashlib.blake2b(html.encode(), digest_size=16).digest() for name, html in new.items()}
    found = {name: html for name, html in new.items() if session.shown.get(name) != digests[name]}
    session.shown.update(digests)
    session.view = session.state.tab if "main" in new else session.view
    return found


def _failed(screen: Screen, words: str) -> dict[str, str]:
    """The page where the view itself could not be made: the rest of it still works."""
    return frame.regions(screen, escape(Empty("This view cannot be shown", words)))


def _status(screen: Screen, state: str, share: float, doing: str, cancel: bool = True, code: str = "") -> str:
    of = {"turn": screen.session.turn, "query": screen.state.query(), "code": code}
    return render("status.html", state=state, share=share, doing=doing, cancel=cancel, **of)
