"""What the forms of the views do to a session: classes, occupations, axes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ccs.errors import InputError
from ccs.ui.fields import Fields, among, whole
from ccs.ui.session import Session
from ccs.ui.state import FAULTS, LOOKS, line, texts
from ccs.ui.views import bias, classify

if TYPE_CHECKING:
    from ccs.ui.app import App


def ask_classes(app: App, session: Session, fields: Fields) -> None:
    classes = texts(str(fields.get("classes", "")))
    template = line(str(fields.get("own") or fields.get("template") or ""))
    classify.check_template(template)
    # The set's own classes, untouched, stay its own: another example then brings its own.
    if classes == classify.asked(replace_state(session, classes=()))[0]:
        classes = ()
    session.state = replace(session.state, classes=classes, template=template)


def own_classes(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(session.state, classes=())


def look(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(session.state, look=among(fields.get("value"), LOOKS, "attention"))


def ask_bias(app: App, session: Session, fields: Fields) -> None:
    gallery = app.galleries.get(str(fields.get("gallery", "")))
    attribute = str(fields.get("attribute", ""))
    changed = gallery.name != bias.asked(app, session).gallery.name
    k = whole(fields.get("k"), "cut-off K")
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
        fault=among(fields.get("fault", ""), FAULTS, "way to compute"),
        row=0,
    )


def occupations(app: App, session: Session, fields: Fields) -> None:
    from ccs import paper

    names = (
        paper.occupations()
        if fields.get("value") == "study"
        else bias.asked(app, session).gallery.occupations
    )
    session.state = replace(session.state, occupations=names)


def row(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(session.state, row=whole(fields.get("value"), "occupation’s number"))


def points(app: App, session: Session, fields: Fields) -> None:
    session.state = replace(
        session.state,
        quality=line(str(fields.get("quality", ""))),
        fairness=line(str(fields.get("fairness", ""))),
        published="" if fields.get("published") else "no",
    )


def replace_state(session: Session, **changes: Any) -> Session:
    """A session with another screen, for looking ahead; pictures and memory are shared."""
    return replace(session, state=replace(session.state, **changes))
