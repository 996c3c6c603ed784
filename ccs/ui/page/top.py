"""The head of the page: which model, which view, what to know first, and how to take the screen along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.ui.page.parts import button, esc, options
from ccs.ui.service.models import shipped
from ccs.ui.session import Session
from ccs.ui.views import snippet

if TYPE_CHECKING:
    from ccs.ui.app import App

TITLES = {
    "heads": "Heads",
    "classify": "Classify",
    "bias": "Bias",
    "paradox": "Paradox",
    "judges": "Judges",
    "about": "About",
}
MORE = {"about": '<span class="wide"> this run</span>'}
PURPOSE = {
    "heads": "What each attention head writes about, by the texts that describe it.",
    "classify": "What the model answers to pictures, with all heads and without some.",
    "bias": "Whom the model puts first when it ranks people for an occupation.",
    "paradox": "Every measured set of heads: what it costs in accuracy, what it does to bias.",
    "judges": "Who decided whether a text fits a concept, how far they agree, and your own judgment.",
    "about": "How the figures came about: texts, images, seeds, versions, licences.",
}


def render(app: App, session: Session) -> str:
    """The head of the page as HTML."""
    state = session.state
    names = [(name, name if name in app.collection.models else f"{name} (no tables)") for name in app.models]
    tabs = "".join(
        f'<button type="button" data-do="tab" data-value="{tab}'
        f'"{" aria-current=page" if tab == state.tab else ""}>{title}{MORE.get(tab, "")}</button>'
        for tab, title in TITLES.items()
    )
    code = esc(snippet.snippet(app, session))
    return (
        '<div class="bar-top"><div class="brand"><h1>CLIP heads</h1>'
        "<p>See what a head has learned, switch it off, see what happens.</p></div>"
        '<div class="tools"><label class="field"><span>Model</span><select data-do="model">'
        f"{options(names, state.model)}</select></label>"
        '<button type="button" data-copy="link"><span class="wide">Copy </span>link</button>'
        f'<button type="button" data-copy="code" data-code="{code}"><span class="wide">Copy as </span>Python'
        "</button>"
        '<button type="button" data-theme-toggle="1" aria-label="Light or dark">◐</button></div></div>'
        f'<nav aria-label="Views">{tabs}</nav>{_notices(app, session)}'
        f'<p class="purpose">{PURPOSE[state.tab]}</p>'
    )


def _notices(app: App, session: Session) -> str:
    parts = []
    if session.notices:
        items = "".join(f"<li>{esc(text)}</li>" for text in session.notices)
        parts.append(
            f'<div class="notice bad" role="alert"><ul>{items}</ul>{button("Close", "dismiss", css="quiet")}'
            "</div>"
        )
    standing = [*app.collection.notices, *_standing(app, session)]
    if standing:
        items = "".join(f"<li>{esc(text)}</li>" for text in standing)
        parts.append(f'<div class="notice" role="status"><ul>{items}</ul></div>')
    return "".join(parts)


def _standing(app: App, session: Session) -> list[str]:
    """What holds as long as this model is shown."""
    name = session.state.model
    results = app.collection.models.get(name)
    if results is None:
        return [
            f"There are no tables for {name}, so its heads have no texts and no scores. They can be switched "
            "off all the same. "
            "Compute the tables with: python -m batch.compute"
        ]
    if name in shipped() and name in app.shelf.loaded():
        try:
            actual = app.shelf.get(name).weights_hash
        except InputError as error:
            return [str(error)]
        if actual != str(results.manifest["model"]["weights_hash"]):
            return [
                f"The tables of {name} were computed from other weights than those loaded here; texts and "
                "scores may not fit what "
                "the live model does. Compute them again with: python -m batch.compute --force"
            ]
    return []
