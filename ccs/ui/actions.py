"""What each action of a visitor does to their session. Actions are checked here: they come from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.ui import forms, opening
from ccs.ui.fields import Fields, whole
from ccs.ui.page import left
from ccs.ui.service.pictures import parse_example
from ccs.ui.service.uploads import MAX_PICTURES, take
from ccs.ui.session import Session
from ccs.ui.state import VIEWS, line
from ccs.ui.views import task

if TYPE_CHECKING:
    from ccs.ui.app import App


def update(app: App, session: Session, do: str, fields: Fields) -> None:
    """Apply one action to the session; where that fails, the session is as it was. InputError: it cannot be
    applied."""
    if do not in ACTIONS:
        raise InputError(f"There is no action {do!r}.")
    before = dict(vars(session))
    try:
        ACTIONS[do](app, session, fields)
    except Exception:
        vars(session).update(before)
        raise


def _set_off(session: Session, off: HeadSet) -> None:
    session.history = session.history.to(session.state.off, off)
    session.state = replace(session.state, off=off)


def _heads(app: App, session: Session, text: str) -> HeadSet:
    off, known = HeadSet.parse(text), app.heads(session.state.model)
    if unknown := off - known:
        raise InputError(f"{HeadSet(unknown)} is not in {session.state.model}.")
    return off


def _tab(app: App, session: Session, fields: Fields) -> None:
    tab = str(fields.get("value"))
    if tab not in VIEWS:
        raise InputError(f"There is no view {tab!r}.")
    session.state = replace(session.state, tab=tab)
    session.click = "inspect" if tab == "heads" else "switch"
    if tab == "judges":
        task.offer(app, session)


def _model(app: App, session: Session, fields: Fields) -> None:
    name = str(fields.get("value"))
    if name not in app.models:
        raise InputError(f"There is no model {name!r}; there are {', '.join(app.models)}.")
    known = app.heads(name)
    head = session.state.head if session.state.head in known else opening.best(app, name)
    _set_off(session, HeadSet(session.state.off & known))
    session.state = replace(
        session.state, model=name, head=head, text=0, concept="", level="", other_head=None, other_model=""
    )
    if session.state.tab == "judges":
        task.offer(app, session)


def _off(app: App, session: Session, fields: Fields) -> None:
    _set_off(session, _heads(app, session, str(fields.get("off", ""))))


def _toggle(app: App, session: Session, fields: Fields) -> None:
    one = _heads(app, session, str(fields.get("head", "")))
    _set_off(session, HeadSet(session.state.off ^ one))


def _inspect(app: App, session: Session, fields: Fields) -> None:
    (head,) = _heads(app, session, str(fields.get("head", "")))
    session.state = replace(session.state, head=head, text=0, tab="heads")
    session.click = "inspect"


def _preset(app: App, session: Session, fields: Fields) -> None:
    name, state = str(fields.get("value")), session.state
    found = left.presets(app.sheet(state.model), app.heads(state.model))
    if name == "custom":
        return
    if name not in found:
        raise InputError(f"{state.model} has no heads for the preset {name!r}.")
    _set_off(session, found[name])


def _random(app: App, session: Session, fields: Fields) -> None:
    n, seed = whole(fields.get("n"), "number of heads"), whole(fields.get("seed"), "seed")
    heads = app.heads(session.state.model)
    _set_off(session, left.random_heads(heads, n, seed, app.sheet(session.state.model).level("high")))


def _undo(app: App, session: Session, fields: Fields) -> None:
    off, session.history = session.history.undo(session.state.off)
    session.state = replace(session.state, off=off)


def _redo(app: App, session: Session, fields: Fields) -> None:
    off, session.history = session.history.redo(session.state.off)
    session.state = replace(session.state, off=off)


def _click(app: App, session: Session, fields: Fields) -> None:
    session.click = "switch" if fields.get("value") == "switch" else "inspect"


def _filter(app: App, session: Session, fields: Fields) -> None:
    concept, level, find = (line(str(fields.get(name, ""))) for name in ("concept", "level", "find"))
    session.state = replace(session.state, concept=concept, level=level, find=find)


def _example(app: App, session: Session, fields: Fields) -> None:
    example = str(fields.get("value"))
    parse_example(example)
    session.uploads = ()
    session.state = replace(session.state, example=example)


def _upload(app: App, session: Session, fields: Fields) -> None:
    files = fields.get("files") or []
    if not isinstance(files, list) or not files:
        raise InputError("No picture was sent.")
    good, bad = list(session.uploads), []
    for file in files:
        try:
            picture = take(
                str(file.get("path", "")), app.uploads, line(str(file.get("name", "picture")))[:60]
            )
        except InputError as error:
            bad.append(str(error))
        else:
            good.append(picture)
    if len(good) > MAX_PICTURES:
        bad.append(
            f"At most {MAX_PICTURES} pictures are kept; the last {len(good) - MAX_PICTURES} were left out."
        )
    session.uploads = tuple(good[:MAX_PICTURES])
    session.notices += bad


def _remove(app: App, session: Session, fields: Fields) -> None:
    index = whole(fields.get("index"), "picture’s number")
    session.uploads = tuple(p for i, p in enumerate(session.uploads) if i != index)


def _text(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(session.state, text=whole(fields.get("index"), "text’s number"))


def _show(app: App, session: Session, fields: Fields) -> None:
    """Nothing changes; what had been cancelled is computed."""


def _swap(app: App, session: Session, fields: Fields) -> None:
    """The other head becomes the first, and the first the other."""
    state = session.state
    if state.other_head is None:
        raise InputError("There is no other head to swap with.")
    model, head = state.model, state.head
    if state.other_model:
        _model(app, session, {"value": state.other_model})
    session.state = replace(
        session.state,
        head=state.other_head,
        other_head=head,
        other_model=model if state.other_model else "",
        text=0,
    )


def _other_model(app: App, session: Session, fields: Fields) -> None:
    name = str(fields.get("value"))
    if name not in app.models:
        raise InputError(f"There is no model {name!r}.")
    same = name == session.state.model
    session.state = replace(
        session.state, other_model="" if same else name, other_head=None if same else opening.best(app, name)
    )


def _other_head(app: App, session: Session, fields: Fields) -> None:
    text, model = str(fields.get("value", "")), session.state.other_model or session.state.model
    if not text:
        session.state = replace(session.state, other_head=None, other_model="")
        return
    head = Head.parse(text)
    if head not in app.heads(model):
        raise InputError(f"{head} is not in {model}.")
    session.state = replace(session.state, other_head=head)


def _load_plan(app: App, session: Session, fields: Fields) -> None:
    model = str(fields.get("model", ""))
    if model != session.state.model:
        _model(app, session, {"value": model})
    _set_off(session, _heads(app, session, str(fields.get("heads", ""))))


def _dismiss(app: App, session: Session, fields: Fields) -> None:
    session.notices.clear()


def _annotate(app: App, session: Session, fields: Fields) -> None:
    task.answer(session, str(fields.get("value", "")))


def _begin(app: App, session: Session, fields: Fields) -> None:
    task.begin(app, session, whole(fields.get("seed", "0"), "seed"))


ACTIONS: dict[str, Callable[[App, Session, Fields], None]] = {
    "tab": _tab,
    "model": _model,
    "off": _off,
    "toggle": _toggle,
    "inspect": _inspect,
    "preset": _preset,
    "random": _random,
    "undo": _undo,
    "redo": _redo,
    "click": _click,
    "filter": _filter,
    "example": _example,
    "upload": _upload,
    "remove": _remove,
    "text": _text,
    "classify": forms.ask_classes,
    "own-classes": forms.own_classes,
    "bias": forms.ask_bias,
    "occupations": forms.occupations,
    "row": forms.row,
    "look": forms.look,
    "show": _show,
    "swap": _swap,
    "other-model": _other_model,
    "other-head": _other_head,
    "points": forms.points,
    "plan": _load_plan,
    "dismiss": _dismiss,
    "annotate": _annotate,
    "begin": _begin,
}
