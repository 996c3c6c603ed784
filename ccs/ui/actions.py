"""What the page can ask for, by name, and the actions that every view knows: on heads, models and images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccs.errors import InputError
from ccs.heads import TOWERS, HeadSet, Intervention
from ccs.ui.service.examples import first_example, parse_example
from ccs.ui.service.uploads import MAX_IMAGES, take
from ccs.ui.session import Screen
from ccs.ui.state import line, one_of, parse_int, parse_off

CUSTOM = "custom"  # in the list of presets: the visitor's own selection
ANOTHER = "another"  # in the list of models: one that the visitor names

Fields = Mapping[str, Any]  # what comes from the page; nothing of it is checked
Action = Callable[..., None]
ACTIONS: dict[str, Action] = {}


def action(name: str) -> Callable[[Action], Action]:
    """What the page means by `data-do="name"`: a function of the screen and of the fields that come along.

    Its parameters are texts, but for one of the type `object`, which comes as it was sent. It checks them:
    InputError where it cannot be done.
    """

    def register(work: Action) -> Action:
        ACTIONS[name] = work
        return work

    return register


def parse_heads(screen: Screen, text: str) -> HeadSet:
    """Heads of the model that is shown; InputError for others."""
    off = parse_off(text)
    if unknown := off - screen.app.heads(screen.state.model):
        raise InputError(f"{HeadSet(unknown)} is not in {screen.state.model}.")
    return off


@action("model")
def set_model(screen: Screen, value: str) -> None:
    """Show another model, with the same heads off as far as it has them."""
    app, session = screen.app, screen.session
    session.naming, session.offer = value == ANOTHER, None
    if session.naming:
        return
    name = app.known_model(value)
    known, state = app.heads(name), screen.state
    head = state.head if state.head in known else app.best_head(name)
    screen.set_off(Intervention.of(state.off & known))
    second = "" if state.second == name else state.second
    screen.change(model=name, head=head, text=0, apart="", second=second)
    if (shown := first_example(name)) != first_example(state.model):  # another world
        screen.change(example=shown, gallery="", attribute="", k=0, row=0)


@action("tower")
def _tower(screen: Screen, value: str) -> None:
    """Show the heads of the other tower."""
    screen.change(tower=one_of(value, tuple(TOWERS), "tower"))


@action("name-model")
def _name_model(screen: Screen, name: str) -> None:
    """Ask what a model by a name of the visitor's own would cost; without a name, stop asking."""
    name, session = line(name), screen.session
    session.naming, session.offer = bool(name), None
    if name:
        session.offer = screen.app.model_cache.offer(name)


@action("off")
def _off(screen: Screen, off: str) -> None:
    screen.set_off(parse_heads(screen, off))


@action("toggle")
def _toggle(screen: Screen, head: str) -> None:
    screen.set_off(Intervention.of(screen.state.off ^ parse_heads(screen, head)))


@action("factor")
def _factor(screen: Screen, of: str, value: str) -> None:
    """Multiply a head's output by a factor: 0 is off, 1 is on."""
    rest = Intervention(screen.state.off - HeadSet.parse(of))
    screen.set_off(rest | parse_heads(screen, f"{of}={value}"))


@action("preset")
def _preset(screen: Screen, value: str) -> None:
    found = screen.records.presets
    if value == CUSTOM:
        return
    if value not in found:
        raise InputError(f"{screen.state.model} has no heads for the preset {value[:20]!r}.")
    screen.set_off(found[value])


@action("undo")
def _undo(screen: Screen) -> None:
    session = screen.session
    if session.past:
        *past, off = session.past
        session.past, session.undone = tuple(past), (session.state.off, *session.undone)
        screen.change(off=off)


@action("redo")
def _redo(screen: Screen) -> None:
    session = screen.session
    if session.undone:
        off, *undone = session.undone
        session.past, session.undone = (*session.past, session.state.off), tuple(undone)
        screen.change(off=off)


@action("example")
def _example(screen: Screen, value: str) -> None:
    parse_example(value)
    screen.session.uploads = ()
    screen.change(example=value)


@action("upload")
def _upload(screen: Screen, files: object) -> None:
    if not isinstance(files, list) or not files or not all(isinstance(file, Mapping) for file in files):
        raise InputError("No image was sent.")
    session = screen.session
    room = MAX_IMAGES - len(session.uploads)
    sent = [(str(file.get("path", "")), line(str(file.get("name", "image")))) for file in files]
    good, bad = take(sent, screen.app.uploads, room)
    if len(files) > room:
        bad.append(f"At most {MAX_IMAGES} images are kept; the last {len(files) - room} were left out.")
    session.uploads += tuple(good)
    session.tell(*bad)


@action("remove")
def _remove(screen: Screen, index: str) -> None:
    number, uploads = parse_int(index, "image’s number"), screen.session.uploads
    screen.session.uploads = tuple(image for i, image in enumerate(uploads) if i != number)


@action("apart-close")
def _close_tables(screen: Screen) -> None:
    """Show the model's own tables again, not those that were made here."""
    screen.change(apart="")


@action("poll")
def _poll(screen: Screen) -> None:
    """Nothing changes; a model that is on its way is shown once it is there."""


@action("reveal")
def _reveal(screen: Screen) -> None:
    """Show which heads something was planted in or taught, or no longer."""
    screen.session.revealed = not screen.session.revealed


@action("dismiss")
def _dismiss(screen: Screen) -> None:
    screen.session.notices = []
