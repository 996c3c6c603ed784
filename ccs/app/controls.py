"""Forms that every view has: choose a model, a view, heads, and images."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import UploadFile
from pydantic import Field

from ccs.app.links import open_screen, parse_query
from ccs.app.routes import Form, Key, Long, Name, post
from ccs.app.services.examples import first_example, parse_example
from ccs.app.services.uploads import MAX_IMAGES, InputImage, read_images
from ccs.app.session import Screen
from ccs.app.state import OWN, clean_line, parse_ablation, parse_int, require_choice
from ccs.app.views import VIEWS
from ccs.errors import InputError
from ccs.heads import ENCODERS, HeadSet, Intervention

CUSTOM = "custom"  # in the list of presets: the visitor's own selection


def parse_heads(screen: Screen, text: str) -> HeadSet:
    """Read heads of the model that is shown; InputError for others."""
    heads = parse_ablation(text)
    if unknown := heads - screen.app.heads(screen.state.model):
        raise InputError(f"{HeadSet(unknown)} isn't in {screen.state.model}.")
    return heads


class ScreenForm(Form):
    query: Long = ""
    tab: Name = ""
    model: Name = ""
    encoder: Name = ""
    key: Key = ""


@post("open")
def open_address(screen: Screen, form: ScreenForm) -> None:
    """Show the screen of an address, as Back, Forward, and links do."""
    opened = open_screen(screen.app, screen.session, parse_query(form.query))
    screen.set_ablation(opened.state.ablate)
    screen.state = opened.state


@post("show")
@post("notices/close")
def show(screen: Screen, form: Form) -> None:
    """Show the screen as it is, without notices: each request closes them."""


@post("tab")
def set_tab(screen: Screen, form: ScreenForm) -> None:
    """Show another view."""
    screen.change(tab=require_choice(form.tab, VIEWS, "view"))


@post("model")
def set_model(screen: Screen, form: ScreenForm) -> None:
    """Show another model, with the same heads ablated as far as it has them."""
    app, state = screen.app, screen.state
    name = app.require_model(form.model)
    known = app.heads(name)
    screen.session.offer = None
    screen.set_ablation(Intervention.of(state.ablate & known))
    head = state.head if state.head in known else app.best_head(name)
    screen.change(model=name, head=head, text=0, analysis="")
    if (example := first_example(name)) != first_example(state.model):  # photographs instead of drawings
        screen.change(example=example, gallery="", attribute="", k=0, row=0)


@post("model/offer")
def offer_model(screen: Screen, form: ScreenForm) -> None:
    """Look up the size of a model that the visitor names; without a name, forget it."""
    name = clean_line(form.model)
    screen.session.offer = screen.app.model_cache.offer(name) if name else None


@post("tables/show")
def show_tables(screen: Screen, form: ScreenForm) -> None:
    """Show tables that were computed here instead of the model's own; without a key, the model's own."""
    records = screen.app.analyses.records(form.key) if form.key else None
    if form.key and records is None:
        raise InputError("These tables are no longer kept; analyze the model again.")
    if records and records.model != screen.state.model:
        set_model(screen, ScreenForm(model=records.model))
    screen.change(analysis=form.key if records else "", text=0)


# -- heads ---------------------------------------------------------------------------------------------------

Heads = Annotated[str, Field(max_length=12_000)]


class HeadsForm(Form):
    head: Heads = ""
    ablate: Heads = ""
    preset: Name = ""


@post("heads/encoder")
def set_encoder(screen: Screen, form: ScreenForm) -> None:
    """Show the heads of the other encoder."""
    screen.change(encoder=require_choice(form.encoder, ENCODERS, "encoder"))


@post("heads/inspect")
def inspect_head(screen: Screen, form: HeadsForm) -> None:
    """Show a head in the view Heads."""
    heads = parse_heads(screen, form.head)
    if len(heads) != 1:
        raise InputError(f"Expected one head; got {len(heads)}.")
    (head,) = heads
    screen.change(head=head, encoder=head.encoder, text=0, tab="heads")


@post("heads/toggle")
def toggle_heads(screen: Screen, form: HeadsForm) -> None:
    """Turn heads off, or on again if they are off, scaled, or edited."""
    screen.set_ablation(Intervention.of(screen.state.ablate ^ parse_heads(screen, form.head)))


@post("heads/ablate")
def set_ablation(screen: Screen, form: HeadsForm) -> None:
    """Ablate, scale, or edit exactly these heads."""
    screen.set_ablation(parse_heads(screen, form.ablate))


@post("heads/preset")
def set_preset(screen: Screen, form: HeadsForm) -> None:
    """Ablate the heads of a level or of a concept."""
    if form.preset != CUSTOM:
        require_choice(form.preset, presets := screen.records.presets, "set of heads")
        screen.set_ablation(presets[form.preset])


@post("heads/undo")
def undo(screen: Screen, form: Form) -> None:
    """Go back to the ablation before."""
    session = screen.session
    if session.past:
        *past, heads = session.past
        _restore(screen, heads, tuple(past), (screen.state.ablate, *session.undone))


@post("heads/redo")
def redo(screen: Screen, form: Form) -> None:
    """Take Undo back."""
    session = screen.session
    if session.undone:
        heads, *undone = session.undone
        _restore(screen, heads, (*session.past, screen.state.ablate), tuple(undone))


def _restore(screen: Screen, heads: HeadSet, past: tuple[HeadSet, ...], undone: tuple[HeadSet, ...]) -> None:
    screen.session.past, screen.session.undone = past, undone
    screen.change(ablate=Intervention.of(heads & screen.app.heads(screen.state.model)))


# -- images --------------------------------------------------------------------------------------------------


class ImagesForm(Form):
    example: Name = ""
    index: Name = ""


class Upload(Form):
    files: list[UploadFile] = Field(default=[])


@post("images/example")
def set_example(screen: Screen, form: ImagesForm) -> None:
    """Show example images instead of the visitor's."""
    parse_example(form.example)
    _set_uploads(screen)
    screen.change(example=form.example)


@post("images/add")
def add_images(screen: Screen, form: Upload) -> None:
    """Add images of the visitor's."""
    session, files = screen.session, [file for file in form.files if file.filename]
    if not files:
        raise InputError("No image was sent.")
    room = MAX_IMAGES - len(session.uploads)
    contents = [(file.file.read(), clean_line(file.filename or "")) for file in files[:room]]
    images, problems = read_images(contents)
    if len(files) > room:
        problems.append(f"At most {MAX_IMAGES} images are kept; the last {len(files) - room} were left out.")
    _set_uploads(screen, *session.uploads, *images)
    session.notify(*problems)


@post("images/remove")
def remove_image(screen: Screen, form: ImagesForm) -> None:
    """Remove one of the visitor's images."""
    number = parse_int(form.index, "image's number")
    _set_uploads(screen, *(image for i, image in enumerate(screen.session.uploads) if i != number))


def _set_uploads(screen: Screen, *images: InputImage) -> None:
    """Show these images of the visitor's; the link then says that it was made with such images."""
    screen.session.uploads = images
    screen.change(images=OWN if images else "")


def new_key() -> str:
    """Return an unguessable key, of a page or of a visitor's gallery."""
    return secrets.token_urlsafe(16)
