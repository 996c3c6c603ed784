"""The way of a click: an action of a visitor, the session after it, and the regions of HTML that changed.

`server` hands over what a visitor does; the action is one of `actions` or of the view on the screen; what is
shown afterwards comes from that view and from the modules of `page`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl

from markupsafe import Markup

from ccs.errors import InputError
from ccs.ui.actions import ACTIONS, Action, Fields, change, set_off
from ccs.ui.html import render
from ccs.ui.links import open_link
from ccs.ui.page import apart_form, grid_column, header
from ccs.ui.service.model_cache import shipped
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import one_of
from ccs.ui.views import VIEWS, strip
from ccs.ui.views.base import MADE_WITH, Empty
from ccs.ui.views.screen import Screen

log = logging.getLogger(__name__)

TURN, GLANCE = 5.0, 0.3  # seconds that an answer waits for a model: a new one, and one that was on its way
Update = tuple[Session | None, dict[str, str]]  # the session, and the HTML of what changed: regions or status


def _tab(app: App, session: Session, fields: Fields) -> None:
    change(session, tab=one_of(fields.get("value"), tuple(VIEWS), "view"))


def _open(app: App, session: Session, fields: Fields) -> None:
    """Show the screen of a link in the session that there is, as Back and Forward do."""
    found = open_link(app, _query(fields.get("query")))
    set_off(session, found.state.off)
    session.state, session.notices = found.state, found.notices


def _code(app: App, session: Session, fields: Fields) -> None:
    """The program that prints what the screen shows."""
    try:
        session.code = VIEWS[session.state.tab].snippet(Screen(app, session))
    except InputError as error:
        session.code = f"# {error}\n"


def _query(address: object) -> dict[str, str]:
    """The fields of what stands in an address behind the question mark."""
    return dict(parse_qsl(str(address or "").removeprefix("?")))


_ACTIONS: dict[str, Action] = {**ACTIONS, "tab": _tab, "open": _open, "code": _code}
for _view in VIEWS.values():
    _ACTIONS |= _view.actions


def update(app: App, session: Session, do: str, fields: Fields) -> None:
    """Apply one action to the session; InputError where it cannot be applied.

    Where that fails, the session is as it was.
    """
    if do not in _ACTIONS:
        raise InputError(f"There is no action {do!r}.")
    before = dict(vars(session))
    try:
        _ACTIONS[do](app, session, fields)
    except BaseException:  # the visitor's cancelling too
        vars(session).update(before)
        raise


def open_page(app: App, query: Mapping[str, str]) -> Iterator[Update]:
    """A page that opens: its session from the link."""
    yield from _answer(app, open_link(app, query))


def act(app: App, session: Session | None, fields: Fields) -> Iterator[Update]:
    """Everything that a visitor does: `fields` has the action's name as `do`."""
    do = str(fields.get("do", ""))
    session = _present(app, session, fields, keep=do in ("dismiss", "poll"))
    try:
        update(app, session, do, fields)
    except InputError as error:
        session.tell(str(error))
    except Exception:  # a fault of this program's: the page goes on, and the log has it; so below
        log.exception("the action %r failed", do)
        session.tell("That did not work. The error has been logged, and nothing was changed.")
    yield from _answer(app, session)


def take_apart(app: App, session: Session | None, fields: Fields, client: str = "") -> Iterator[Update]:
    """Take the model on the screen apart and show its tables: long, so not one of the actions."""
    session = _present(app, session, fields)
    try:
        request = apart_form.read(app, session, fields)
        for share, doing in app.kept.make(request, client):
            yield (
                session,
                {"status": _status(session, "working", share, f"Taking {request.model} apart: {doing}")},
            )
        change(session, apart=request.key, text=0)  # the link finds the tables again
    except InputError as error:
        session.tell(f"Taking the model apart failed: {error}")
    except Exception:
        log.exception("a model could not be taken apart")
        session.tell("The model could not be taken apart; the error has been logged.")
    yield from _answer(app, session)


def _present(app: App, session: Session | None, fields: Fields, keep: bool = False) -> Session:
    """The session of a page, its notices gone unless they are kept; where there is none, yet or any more, one
    of the screen in the page's address.
    """
    if session is None:
        session = open_link(app, _query(fields.get("page")))
        if fields.get("turn") != "1":
            session.notices = [
                "This page was idle too long: your own images are gone, the rest is as it was."
            ]
        session.turn = 1
    elif not keep:
        session.notices = []
    return session


def cancel(app: App, session: Session | None) -> Update:
    """The page as it was, with a notice."""
    if session is None:
        return None, {"status": render("status.html", state="done")}
    session.wanted = None
    session.notices = ["Canceled. What is shown may not match what is chosen; any click computes it."]
    session.turn += 1
    if on_way := _on_way(app, session):
        other = next(name for name in (*app.model_cache.loaded(), *shipped()) if name not in on_way)
        update(app, session, "model", {"value": other})
        session.notices = [f"{', '.join(on_way)} is still being loaded; choose it again when you like."]
    new = regions(app, session) if on_way else {"top": header.render(Screen(app, session))}
    return session, {**_changed(session, new), "status": _over(app, session)}


def regions(app: App, session: Session, complete: bool = True) -> dict[str, str]:
    """The page as HTML, by region; with `complete` False, what can be shown at once."""
    screen = Screen(app, session)
    before = MADE_WITH.set(_made_with(screen))
    try:
        return _page(screen, VIEWS[screen.state.tab].render(screen, complete))
    finally:
        MADE_WITH.reset(before)


def _made_with(screen: Screen) -> dict[str, str]:
    """Model, weights, gallery, template and heads off, as every CSV of the screen names them."""
    state = screen.state
    if screen.has_model:
        weights = screen.model.weights_hash
    else:
        weights = str(screen.records.manifest.get("model", {}).get("weights_hash", ""))
    more = VIEWS[state.tab].made_with(screen)
    return {"model": state.model, "weights": weights[:16], **more, "heads off": str(state.off)}


def _answer(app: App, session: Session) -> Iterator[Update]:
    """The regions that changed; while long work goes on, what can be shown already, and its progress."""
    session.turn += 1
    try:
        if _pending(app, session):
            first = _changed(session, regions(app, session, complete=False))
            yield session, {**first, "status": _status(session, "working", 0.0, "Computing")}
        news = _news(app, session)
        for share, doing in _work(app, session):
            more: dict[str, str] = {}
            if (now := _news(app, session)) != news:
                news, more = now, _changed(session, regions(app, session, complete=False))
            yield session, {**more, "status": _status(session, "working", share, doing)}
        new = regions(app, session, complete=not _on_way(app, session))
    except InputError as error:
        new = _failed(app, session, str(error))
    except Exception:
        log.exception("the view %r failed", session.state.tab)
        new = _failed(app, session, "Something went wrong; the error has been logged.")
    yield session, {**_changed(session, new), "status": _over(app, session)}


def _over(app: App, session: Session) -> str:
    """The status of an answer that is over, with the work that continues in the background."""
    on_way = _on_way(app, session)
    share, doing = app.model_cache.progress(on_way[0]) if on_way else (0.0, "")
    code, session.code = session.code, ""
    return _status(session, "done", share, doing, cancel=bool(on_way), code=code)


def _on_way(app: App, session: Session) -> list[str]:
    """The models of the view that are still being loaded."""
    return [name for name in _missing(app, session) if app.model_cache.is_loading(name)]


def _missing(app: App, session: Session) -> list[str]:
    """The models that the view computes with and that are not in memory."""
    names = VIEWS[session.state.tab].models(session.state)
    return [name for name in names if name not in app.model_cache.loaded()]


def _pending(app: App, session: Session) -> bool:
    """True if a part of the view should be shown while `_work` goes on."""
    try:
        return bool(_missing(app, session)) or VIEWS[session.state.tab].pending(Screen(app, session))
    except InputError:
        return False


def _news(app: App, session: Session) -> Hashable:
    """What can be shown so far of a view that is being worked on."""
    with suppress(InputError):
        return None if _missing(app, session) else VIEWS[session.state.tab].news(Screen(app, session))
    return None


def _work(app: App, session: Session) -> Iterator[tuple[float, str]]:
    """The long part of showing this screen: yields (share done, what is being done)."""
    try:
        for name in _missing(app, session):
            yield 0.0, f"Loading {name}"
            # Others wait for this visitor's turn to end, so long loading continues in the background.
            patience = GLANCE if app.model_cache.is_loading(name) else TURN
            yield from app.model_cache.loading(name, patience)
        if _on_way(app, session):
            return
        yield from VIEWS[session.state.tab].prepare(Screen(app, session))
    except InputError:
        return  # the view says it, beside what can be shown all the same


def _changed(session: Session, new: Mapping[str, str]) -> dict[str, str]:
    """The regions whose HTML is not what the visitor sees."""
    digests = {name: hashlib.blake2b(html.encode(), digest_size=16).digest() for name, html in new.items()}
    found = {name: html for name, html in new.items() if session.shown.get(name) != digests[name]}
    session.shown.update(digests)
    session.view = session.state.tab if "main" in new else session.view
    return found


def _failed(app: App, session: Session, words: str) -> dict[str, str]:
    """The page where the view itself could not be made: the rest of it still works."""
    return _page(Screen(app, session), Markup("{}").format(Empty("This view cannot be shown", words)))


def _page(screen: Screen, body: Markup) -> dict[str, str]:
    view = VIEWS[screen.state.tab]
    main = Markup('<div class="view view-{}" id="view" tabindex="-1"><h2 class="sr">{}</h2>{}</div>').format(
        view.name, view.title, body
    )
    return {
        "top": header.render(screen),
        "strip": strip.render(screen),
        "left": grid_column.render(screen),
        "main": main,
    }


def _status(
    session: Session, state: str, share: float, doing: str, cancel: bool = True, code: str = ""
) -> str:
    of = {"turn": session.turn, "query": session.state.query(), "code": code}
    return render("status.html", state=state, share=share, doing=doing, cancel=cancel, **of)
