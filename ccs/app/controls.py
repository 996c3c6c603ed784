"""What a form does, and the forms that every view has: model, view, heads, images, and analyses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from ccs.app.html import render
from ccs.app.jobs import Job, Work
from ccs.app.links import open_screen, parse_query, settle
from ccs.app.routes import ROUTES, Files, Long, Name, post, post_fields
from ccs.app.services.analyses import DATASETS, DEFAULT_COUNT, MAX_COUNT, MIN_COUNT, Request
from ccs.app.services.examples import first_example
from ccs.app.services.model_cache import saw_drawings_only
from ccs.app.services.uploads import MAX_IMAGES, read_images
from ccs.app.session import Screen
from ccs.app.state import OWN, clean_line, describe_problem, parse_ablation, require_choice
from ccs.errors import InputError
from ccs.heads import Head, HeadSet, Intervention
from ccs.model.loading.footprint import require_room
from ccs.model.loading.sources import is_public

MAX_HISTORY = 100  # ablations that can be undone
COPIES, MORE = 3, 2**30  # copies of the weights in an analysis, and bytes for the rest


def apply_form(screen: Screen, path: str, fields: Mapping[str, Any]) -> Any:
    """Do what a form requests. If that fails, the screen and its session stay as they were.

    Args:
        screen: The screen that the form changes.
        path: The form's path, a key of `ROUTES`.
        fields: What the browser sent.

    Returns:
        The handler's answer: None, or work to start.

    Raises:
        InputError: If a field can't be used, or the handler can't do what the form requests.
    """
    route, state, values = ROUTES[path], screen.state, dict(vars(screen.session))
    try:
        answer = route.handler(screen, **dict(route.form.model_validate(fields)))
        settle(screen)
        if screen.state.ablate != state.ablate and screen.session.past == values["past"]:  # not by Undo
            screen.session.past = [*values["past"], state.ablate][-MAX_HISTORY:]
        return answer
    except Exception as error:
        screen.state = state
        vars(screen.session).update(values)
        raise InputError(describe_problem(error)) if isinstance(error, ValidationError) else error from None


@post("open")
def open_address(screen: Screen, query: Long = "") -> None:
    """Show the screen of an address, as Back, Forward, and links do.

    Args:
        screen: The screen that the form changes.
        query: The address's query, with or without its `?`. Notices report the parts that can't be used.
    """
    screen.state = open_screen(screen.app, screen.session, parse_query(query)).state


@post("show")
@post("notices/close")
def show(screen: Screen) -> None:
    """Show the screen as it is, without notices: each request closes them."""


post_fields("tab", "tab")
post_fields("heads/encoder", "encoder")


@post("model")
def set_model(screen: Screen, model: Name = "") -> None:
    """Show another model. Heads that it also has stay ablated.

    Args:
        screen: The screen that the form changes.
        model: The model's name.

    Raises:
        InputError: If there is no such model.
    """
    app, state = screen.app, screen.state
    known = app.heads_of_model(app.require_model(model))
    screen.change(model=model, ablate=state.ablate & known, text=0, analysis="")
    if (example := first_example(model)) != first_example(state.model):  # photographs instead of drawings
        screen.change(example=example, gallery="", attribute="", k=0, row=0)


# -- heads ---------------------------------------------------------------------------------------------------


@post("heads/inspect")
def inspect_head(screen: Screen, head: Name = "") -> None:
    """Show a head in the view Heads.

    Args:
        screen: The screen that the form changes.
        head: One head of the model, such as `L7.H4`.

    Raises:
        InputError: If the text doesn't name one head, or the model doesn't have it.
    """
    (name,) = screen.app.require_heads(screen.state.model, HeadSet([Head.parse(head)]))
    screen.change(head=name, encoder=name.encoder, text=0, tab="heads")


@post("heads/toggle")
def toggle_heads(screen: Screen, head: Long = "") -> None:
    """Turn heads off, or on again if they are off, scaled, or edited.

    Args:
        screen: The screen that the form changes.
        head: The heads, such as `L5.H0 L6.H1`.

    Raises:
        InputError: If the text doesn't name heads.
    """
    screen.change(ablate=screen.state.ablate ^ parse_ablation(head))


post_fields("heads/ablate", "ablate")  # "" turns all heads on


@post("heads/change")
def change_heads(screen: Screen, heads: Long = "") -> None:
    """Turn heads on or off, or scale or edit them; the others stay as they are.

    Args:
        screen: The screen that the form changes.
        heads: The heads, each with its change, such as `L5.H0=1 L6.H1=erase:gender`; a factor of 1 turns a
            head on.

    Raises:
        InputError: If the text doesn't name heads.
    """
    screen.change(ablate=str(screen.state.ablate | Intervention.parse(heads)))


@post("heads/undo")
def undo(screen: Screen) -> None:
    """Go back to the previous ablation."""
    if screen.session.past:
        *screen.session.past, ablate = screen.session.past
        screen.change(ablate=ablate & screen.app.heads_of_model(screen.state.model))


# -- images --------------------------------------------------------------------------------------------------


@post("images/example")
def set_example(screen: Screen, example: Name = "") -> None:
    """Show example images instead of the visitor's.

    Args:
        screen: The screen that the form changes.
        example: A dataset and page, such as `occupations:3`; "" for the first.
    """
    screen.session.uploads = ()
    screen.change(example=example, images="")


@post("images/add")
def add_images(screen: Screen, files: Files = ()) -> None:
    """Add the visitor's images. The link then says that it was made with such images.

    Notices report the files that couldn't be read, and those beyond `MAX_IMAGES`.

    Args:
        screen: The screen that the form changes.
        files: The uploaded files.

    Raises:
        InputError: If no file was sent, or a file's name is too long.
    """
    session, room = screen.session, MAX_IMAGES - len(screen.session.uploads)
    if not files:
        raise InputError("No image was sent.")
    images, problems = read_images([(f.file.read(), clean_line(f.filename or "")) for f in files[:room]])
    if len(files) > room:
        problems.append(f"At most {MAX_IMAGES} images are kept; the last {len(files) - room} were left out.")
    session.uploads = (*session.uploads, *images)
    screen.change(images=OWN if session.uploads else "")
    session.notify(*problems)


# -- analyze this model: texts, concepts, and CCS of its heads, computed here --------------------------------


@post("analyze")
def analyze(
    screen: Screen,
    images: Name = "",
    count: Annotated[int, Field(ge=MIN_COUNT, le=MAX_COUNT)] = DEFAULT_COUNT,
) -> Work:
    """Analyze the model on the screen. The work goes on while the visitor does other things.

    Args:
        screen: The screen that the form changes.
        images: The dataset to analyze it on, a key of `DATASETS`.
        count: The number of images.

    Returns:
        The work, which reports its result or its error as a note on the page.

    Raises:
        InputError: For another dataset, without the model, and with too little memory.
    """
    require_choice(images, DATASETS, "dataset")
    app, name, model = screen.app, screen.state.model, screen.model
    place = app.model_cache.place(name)
    weights = sum(values.nbytes for values in model.clip.state_dict().values())
    require_room(f"Analyzing {model.name}", COPIES * weights + MORE)
    if not is_public(place) and Path(place).is_dir():
        place = str(Path(place).resolve())  # the run works in another folder
    texts = "world" if saw_drawings_only(name) else "photographs"
    request = Request(name, place, model.weights_hash, DATASETS[images], count, texts)

    def work(job: Job) -> dict[str, str]:
        problem = ""
        try:
            app.analyses.make(request, job.tell)
        except InputError as error:
            problem = str(error)
        return {"note": render("analyzed.html", model=name, key=request.key, problem=problem)}

    return work


post_fields("tables/show", "analysis", text=0)  # tables that were computed here; "" for the model's own
