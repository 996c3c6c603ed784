"""The effects of addresses and forms on a screen, and forms of all views: model, images, and analyses."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import Field, ValidationError

from ccs.app.html import render
from ccs.app.jobs import Job, Work
from ccs.app.routes import ROUTES, Files, Long, Name, post, post_fields
from ccs.app.services.analyses import DATASETS, DEFAULT_COUNT, MAX_COUNT, MIN_COUNT, Request
from ccs.app.services.examples import first_example, parse_example
from ccs.app.services.model_cache import saw_drawings_only
from ccs.app.services.uploads import MAX_IMAGES, read_images
from ccs.app.session import App, Screen, Session
from ccs.app.state import NO_HEADS, OWN, State, clean_line, describe_problem, require_choice
from ccs.app.views.query import BiasQuery
from ccs.errors import InputError
from ccs.model.loading.footprint import require_room
from ccs.model.loading.sources import is_public

MAX_HISTORY = 100  # ablations that can be undone
Count = Annotated[int, Field(ge=MIN_COUNT, le=MAX_COUNT)]  # of images in an analysis
WEIGHT_COPIES, OTHER_BYTES = 3, 2**30  # copies of the weights in an analysis, and bytes for the rest
MAX_ADDRESS = 20_000  # characters
OTHER_FILES = "someone's own {}, which no link holds; the results here are of others."


def parse_query(address: str) -> dict[str, str]:
    """Return the fields of an address's query."""
    return dict(parse_qsl(address[:MAX_ADDRESS].removeprefix("?")))


def open_screen(app: App, session: Session, query: Mapping[str, str]) -> Screen:
    """Return the screen of an address. The session gets a notice for each part that can't be used.

    An empty address opens the view Start. All heads are on unless the address names heads to ablate.

    Args:
        app: The app.
        session: The visitor's session.
        query: The fields of the address.
    """
    screen, notices = Screen(app, session, State()), list[str]()
    names = [name for name in vars(screen.state) if name in query]
    if names in ([], ["model"]):
        screen.change(tab="start")
    for name in names:
        with _part(screen, notices):
            screen.change(**{name: query[name]})
    settle(screen, notices)
    if screen.state.head and "encoder" not in query:
        screen.change(encoder=screen.state.head.encoder)
    session.notify(*notices)
    return screen


def settle(screen: Screen, notices: list[str] | None = None) -> None:
    """Check a screen's state against the app, and fill in defaults.

    Args:
        screen: The screen.
        notices: Receives a notice for each part that can't be used; the part then gets its default.

    Raises:
        InputError: If a part can't be used and there are no `notices`.
    """
    app, session, part = screen.app, screen.session, partial(_part, screen, notices)
    with part(model="", ablate=NO_HEADS, head=None) as state:
        app.require_model(state.model or app.model_cache.first)
    screen.change(model=screen.state.model or app.model_cache.first)
    with part(ablate=NO_HEADS) as state:
        app.require_heads(state.model, state.ablate)
    if screen.state.head not in app.heads_of_model(screen.state.model):
        screen.change(head=app.best_head(screen.state.model))
    with part(analysis="") as state:
        if state.analysis and (other := app.analyses.records(state.analysis).model) != state.model:
            raise InputError(f"These tables are of {other}; choose that model first.")
    with part(example="") as state:
        parse_example(state.example)
    screen.change(example=screen.state.example or first_example(screen.state.model))
    with part(images="") as state:
        if state.images and not session.uploads:
            raise InputError(OTHER_FILES.format("images"))
    with part(gallery="", k=0) as state:
        if state.gallery.startswith(OWN):
            if not session.gallery:
                raise InputError(OTHER_FILES.format("gallery"))
            screen.change(gallery=session.gallery.name)
        if app.galleries.has(screen.gallery):
            BiasQuery.from_state(app, screen.state)  # raises InputError if K is too large
    with part(attribute="") as state:
        if app.galleries.has(screen.gallery):
            require_choice(state.attribute, ("", *app.galleries.people(screen.gallery).groups), "attribute")


@contextmanager
def _part(screen: Screen, notices: list[str] | None, **default: Any) -> Iterator[State]:
    """Check a part of a state. In a link, an unusable part is replaced by its default."""
    try:
        yield screen.state
    except InputError as error:
        if notices is None:
            raise
        notices.append(f"Left out of the link: {error}")
        screen.change(**default)


def apply_form(screen: Screen, path: str, fields: Mapping[str, Any]) -> Any:
    """Apply a form. If that fails, the screen and its session don't change.

    Args:
        screen: The screen to change.
        path: The form's path, a key of `ROUTES`.
        fields: The fields that the browser sent.

    Returns:
        The handler's answer: None, or work to start.

    Raises:
        InputError: If a field can't be used, or the handler refuses the request.
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
    """Show the screen of an address, for Back, Forward, and links.

    Args:
        screen: The screen to change.
        query: The address's query, with or without its `?`. Notices report the parts that can't be used.
    """
    screen.state = open_screen(screen.app, screen.session, parse_query(query)).state


post_fields("show")
post_fields("notices/close")  # every request removes the notices
post_fields("tab", "tab")


@post("model")
def set_model(screen: Screen, model: Name = "") -> None:
    """Show another model. Ablated heads stay ablated if it has them.

    Args:
        screen: The screen to change.
        model: The model's name.

    Raises:
        InputError: If there is no such model.
    """
    app, state = screen.app, screen.state
    known = app.heads_of_model(app.require_model(model))
    screen.change(model=model, ablate=state.ablate & known, text=0, analysis="")
    if (example := first_example(model)) != first_example(state.model):  # photographs instead of drawings
        screen.change(example=example, gallery="", attribute="", k=0, row=0)


# -- images --------------------------------------------------------------------------------------------------


@post("images/example")
def set_example(screen: Screen, example: Name = "") -> None:
    """Show example images instead of the visitor's.

    Args:
        screen: The screen to change.
        example: A dataset and page, such as `occupations:3`; "" for the first.
    """
    screen.session.uploads = ()
    screen.change(example=example, images="")


@post("images/add")
def add_images(screen: Screen, files: Files = ()) -> None:
    """Add the visitor's images. The link then says that it was made with uploaded images.

    Notices report the files that couldn't be read, and those beyond `MAX_IMAGES`.

    Args:
        screen: The screen to change.
        files: The uploaded files.

    Raises:
        InputError: If a file's name is too long.
    """
    session, room = screen.session, MAX_IMAGES - len(screen.session.uploads)
    images, problems = read_images([(f.file.read(), clean_line(f.filename or "")) for f in files[:room]])
    if len(files) > room:
        problems.append(f"At most {MAX_IMAGES} images are kept; the last {len(files) - room} were left out.")
    session.uploads = (*session.uploads, *images)
    screen.change(images=OWN if session.uploads else "")
    session.notify(*problems)


# -- analyze this model: texts, concepts, and CCS of its heads, computed here --------------------------------


@post("analyze")
def analyze(screen: Screen, images: Name = "", count: Count = DEFAULT_COUNT) -> Work:
    """Analyze the model on the screen in the background.

    Args:
        screen: The screen to change.
        images: The dataset, a key of `DATASETS`.
        count: The number of images.

    Returns:
        The work, which reports its result or its error as a note on the page.

    Raises:
        InputError: If the dataset isn't listed, the model isn't available, or memory is too small.
    """
    require_choice(images, DATASETS, "dataset")
    app, name, model = screen.app, screen.state.model, screen.model.load()
    place = app.model_cache.place(name)
    weights = sum(values.nbytes for values in model.clip.state_dict().values())
    require_room(f"Analyzing {model.name}", WEIGHT_COPIES * weights + OTHER_BYTES)
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
