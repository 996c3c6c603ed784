"""What each action of a visitor does to their session. Actions are checked here: they come from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.ui import bias, classify, judges, left
from ccs.ui.pictures import parse_example
from ccs.ui.session import Session
from ccs.ui.state import VIEWS, from_query, line, texts
from ccs.ui.uploads import MAX_PICTURES, take

if TYPE_CHECKING:
    from ccs.ui.core import App

Fields = Mapping[str, Any]


def open_link(app: App, query: Mapping[str, str]) -> Session:
    """A new session at the screen that a link names; without a link, at a worked example."""
    state, problems = from_query(query)
    notices = list(problems)
    if not state.model:
        state = replace(state, model=app.models[0])
    elif state.model not in app.models:
        notices.append(f"The link’s model {state.model!r} is not here; this is {app.models[0]}.")
        state = replace(state, model=app.models[0], off=HeadSet(), head=None)
    try:
        parse_example(state.example)
        classify.check_template(state.template)
    except InputError as error:
        notices.append(str(error))
        state = replace(state, example="", template="")
    session = Session(state=state, notices=notices)
    known = app.heads(state.model)
    if unknown := state.off - known:
        notices.append(f"The link’s heads {HeadSet(unknown)} are not in {state.model} and were left out.")
        state = replace(state, off=HeadSet(state.off & known))
    if state.head not in known:
        state = replace(state, head=_best(app, state.model))
        if not query.get("off") and not query.get("tab") and state.head is not None:
            state = replace(state, off=HeadSet([state.head]))  # a first visit shows an effect
    session.state = state
    session.click = "inspect" if state.tab == "heads" else "switch"
    return session


def _best(app: App, model: str) -> Head | None:
    """The head to open first: the highest CCS, then the most variance explained."""
    cards = app.sheet(model).cards.values()
    if not cards:
        return next(iter(app.heads(model)), None)
    return max(cards, key=lambda card: (card.ccs if card.ccs is not None else -1, card.share or 0)).head


def update(app: App, session: Session, do: str, fields: Fields) -> None:
    """Apply one action to the session. InputError, with the session as it was, where it cannot be applied."""
    if do not in ACTIONS:
        raise InputError(f"There is no action {do!r}.")
    before = session.state
    try:
        ACTIONS[do](app, session, fields)
    except InputError:
        session.state = before
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


def _model(app: App, session: Session, fields: Fields) -> None:
    name = str(fields.get("value"))
    if name not in app.models:
        raise InputError(f"There is no model {name!r}; there are {', '.join(app.models)}.")
    known = app.heads(name)
    head = session.state.head if session.state.head in known else _best(app, name)
    _set_off(session, HeadSet(session.state.off & known))
    session.state = replace(
        session.state, model=name, head=head, concept="", level="", other_head=None, other_model=""
    )


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
    n, seed = _whole(fields.get("n"), "number of heads"), _whole(fields.get("seed"), "seed")
    heads = app.heads(session.state.model)
    _set_off(session, left.random_heads(heads, n, seed, app.sheet(session.state.model).level("high")))


def _whole(value: object, name: str) -> int:
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or len(text) > 7:
        raise InputError(f"The {name} must be a whole number of at most seven digits, not {text[:20]!r}.")
    return int(text)


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
    index = _whole(fields.get("index"), "picture’s number")
    session.uploads = tuple(p for i, p in enumerate(session.uploads) if i != index)


def _text(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(session.state, text=_whole(fields.get("index"), "text’s number"))


def _classify(app: App, session: Session, fields: Fields) -> None:
    classes = texts(str(fields.get("classes", "")))
    template = line(str(fields.get("own") or fields.get("template") or ""))
    classify.check_template(template)
    # The set's own classes, untouched, stay its own: another example then brings its own.
    if classes == classify.asked(replace_state(session, classes=()))[0]:
        classes = ()
    session.state = replace(session.state, classes=classes, template=template)


def replace_state(session: Session, **changes: Any) -> Session:
    """A session with another screen, for looking ahead; pictures and memory are shared."""
    return replace(session, state=replace(session.state, **changes))


def _own_classes(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(session.state, classes=())


def _bias(app: App, session: Session, fields: Fields) -> None:
    gallery = app.galleries.get(str(fields.get("gallery", "")))
    attribute = str(fields.get("attribute", ""))
    changed = gallery.name != bias.asked(app, session).gallery.name
    k = _whole(fields.get("k"), "cut-off K")
    if not changed and not 1 <= k <= len(gallery.images):
        raise InputError(f"K must be 1 to {len(gallery.images)}, not {k}.")
    template = line(str(fields.get("template", "")))
    if template not in ("", "study"):
        classify.check_template(template)
    attribute = attribute if attribute in gallery.groups else next(iter(gallery.groups))
    session.state = replace(
        session.state,
        gallery=gallery.name,
        attribute=attribute,
        bias_template=template,
        k=0 if changed or k == gallery.k.get(attribute) else k,
        occupations=texts(str(fields.get("occupations", ""))),
        target="uniform" if fields.get("target") == "uniform" else "pool",
        faulty=bool(fields.get("faulty")),
    )


def _occupations(app: App, session: Session, fields: Fields) -> None:
    from ccs import paper

    names = (
        paper.occupations()
        if fields.get("value") == "study"
        else bias.asked(app, session).gallery.occupations
    )
    session.state = replace(session.state, occupations=names)


def _pin(app: App, session: Session, fields: Fields) -> None:
    (head,) = _heads(app, session, str(fields.get("head", "")))
    session.state = replace(session.state, other_head=head, other_model="")


def _other_model(app: App, session: Session, fields: Fields) -> None:
    name = str(fields.get("value"))
    if name not in app.models:
        raise InputError(f"There is no model {name!r}.")
    same = name == session.state.model
    session.state = replace(
        session.state, other_model="" if same else name, other_head=None if same else _best(app, name)
    )


def _other_head(app: App, session: Session, fields: Fields) -> None:
    text = str(fields.get("value", ""))
    session.state = replace(session.state, other_head=Head.parse(text) if text else None)


def _points(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(
        session.state,
        quality=line(str(fields.get("quality", ""))),
        fairness=line(str(fields.get("fairness", ""))),
    )


def _load_plan(app: App, session: Session, fields: Fields) -> None:
    model = str(fields.get("model", ""))
    if model != session.state.model:
        _model(app, session, {"value": model})
    _set_off(session, _heads(app, session, str(fields.get("heads", ""))))


def _dismiss(app: App, session: Session, fields: Fields) -> None:
    session.notices.clear()


def _annotate(app: App, session: Session, fields: Fields) -> None:
    judges.answer(app, session, str(fields.get("value", "")))


def _begin(app: App, session: Session, fields: Fields) -> None:
    judges.begin(app, session, _whole(fields.get("seed", "0"), "seed"))


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
    "classify": _classify,
    "own-classes": _own_classes,
    "bias": _bias,
    "occupations": _occupations,
    "pin": _pin,
    "other-model": _other_model,
    "other-head": _other_head,
    "points": _points,
    "plan": _load_plan,
    "dismiss": _dismiss,
    "annotate": _annotate,
    "begin": _begin,
}
