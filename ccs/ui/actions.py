"""Actions that every view knows, on heads, models and images. They come from outside and are checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ccs.errors import InputError
from ccs.heads import TOWERS, HeadSet
from ccs.intervention import Intervention
from ccs.ui.service.examples import first_example, parse_example
from ccs.ui.service.uploads import MAX_IMAGES, take
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import line, one_of, parse_int, parse_off

MAX_HISTORY = 100  # steps that can be undone
CUSTOM = "custom"  # in the list of presets: the visitor's own selection
ANOTHER = "another"  # in the list of models: one that the visitor names

Fields = Mapping[str, Any]  # what an action brings along
Action = Callable[[App, Session, Fields], None]


def change(session: Session, **fields: Any) -> None:
    """Change the screen."""
    session.state = replace(session.state, **fields)


def set_off(session: Session, off: HeadSet) -> None:
    """Switch exactly these heads off, or scale them; Undo goes back."""
    if off != session.state.off:
        session.past, session.undone = (*session.past, session.state.off)[-MAX_HISTORY:], ()
        change(session, off=off)


def parse_heads(app: App, session: Session, text: str) -> HeadSet:
    """Heads of the model that is shown; InputError for others."""
    off = parse_off(text)
    if unknown := off - app.both(session.state.model):
        raise InputError(f"{HeadSet(unknown)} is not in {session.state.model}.")
    return off


def set_model(app: App, session: Session, fields: Fields) -> None:
    """Show another model, with the same heads off as far as it has them."""
    session.naming, session.offer = fields.get("value") == ANOTHER, None
    if session.naming:
        return
    name = app.known_model(fields.get("value"))
    known, state = app.both(name), session.state
    head = state.head if state.head in known else app.best_head(name)
    set_off(session, Intervention.of(state.off & known))
    second = "" if state.second == name else state.second
    change(session, model=name, head=head, text=0, apart="", second=second)
    if (shown := first_example(name)) != first_example(state.model):  # another world
        change(session, example=shown, gallery="", attribute="", k=0, row=0)


def _tower(app: App, session: Session, fields: Fields) -> None:
    """Show the heads of the other tower."""
    change(session, tower=one_of(fields.get("value"), tuple(TOWERS), "tower"))


def _name_model(app: App, session: Session, fields: Fields) -> None:
    """Ask what a model by a name of the visitor's own would cost; without a name, stop asking."""
    name = line(str(fields.get("name", "")))
    session.naming, session.offer = bool(name), None
    if name:
        session.offer = app.model_cache.offer(name)


def _off(app: App, session: Session, fields: Fields) -> None:
    set_off(session, parse_heads(app, session, str(fields.get("off", ""))))


def _toggle(app: App, session: Session, fields: Fields) -> None:
    toggled = parse_heads(app, session, str(fields.get("head", "")))
    set_off(session, Intervention.of(session.state.off ^ toggled))


def _factor(app: App, session: Session, fields: Fields) -> None:
    """Multiply a head's output by a factor: 0 is off, 1 is on."""
    head, value = str(fields.get("of", "")), str(fields.get("value", ""))
    rest = Intervention(session.state.off - HeadSet.parse(head))
    set_off(session, rest | parse_heads(app, session, f"{head}={value}"))


def _preset(app: App, session: Session, fields: Fields) -> None:
    name, found = str(fields.get("value")), app.shown(session.state).presets
    if name == CUSTOM:
        return
    if name not in found:
        raise InputError(f"{session.state.model} has no heads for the preset {name!r}.")
    set_off(session, found[name])


def _undo(app: App, session: Session, fields: Fields) -> None:
    if session.past:
        *past, off = session.past
        session.past, session.undone = tuple(past), (session.state.off, *session.undone)
        change(session, off=off)


def _redo(app: App, session: Session, fields: Fields) -> None:
    if session.undone:
        off, *undone = session.undone
        session.past, session.undone = (*session.past, session.state.off), tuple(undone)
        change(session, off=off)


def _example(app: App, session: Session, fields: Fields) -> None:
    example = str(fields.get("value"))
    parse_example(example)
    session.uploads = ()
    change(session, example=example)


def _upload(app: App, session: Session, fields: Fields) -> None:
    files = fields.get("files") or []
    if not isinstance(files, list) or not files or not all(isinstance(file, Mapping) for file in files):
        raise InputError("No image was sent.")
    room = MAX_IMAGES - len(session.uploads)
    sent = [(str(file.get("path", "")), line(str(file.get("name", "image")))) for file in files]
    good, bad = take(sent, app.uploads, room)
    if len(files) > room:
        bad.append(f"At most {MAX_IMAGES} images are kept; the last {len(files) - room} were left out.")
    session.uploads += tuple(good)
    session.tell(*bad)


def _remove(app: App, session: Session, fields: Fields) -> None:
    index = parse_int(fields.get("index"), "image’s number")
    session.uploads = tuple(p for i, p in enumerate(session.uploads) if i != index)


def _close_tables(app: App, session: Session, fields: Fields) -> None:
    """Show the model's own tables again, not those that were made here."""
    change(session, apart="")


def _poll(app: App, session: Session, fields: Fields) -> None:
    """Nothing changes; a model that is on its way is shown once it is there."""


def _reveal(app: App, session: Session, fields: Fields) -> None:
    """Show which heads something was planted in or taught, or no longer."""
    session.revealed = not session.revealed


def _dismiss(app: App, session: Session, fields: Fields) -> None:
    session.notices = []


ACTIONS: Mapping[str, Action] = {
    "model": set_model,
    "name-model": _name_model,
    "tower": _tower,
    "off": _off,
    "toggle": _toggle,
    "factor": _factor,
    "preset": _preset,
    "undo": _undo,
    "redo": _redo,
    "example": _example,
    "upload": _upload,
    "remove": _remove,
    "poll": _poll,
    "apart-close": _close_tables,
    "reveal": _reveal,
    "dismiss": _dismiss,
}
