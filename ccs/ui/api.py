"""What the page answers, as functions: on Gradio's API page, in gradio_client, and as MCP tools.

Functions take what they need and keep nothing between calls; an answer is figures by name, each with its
title, unit and rows. A mistake comes back as a sentence. What needs PyTorch is imported when a function runs:
the page is served before that.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api as endpoint

from ccs.errors import InputError
from ccs.ui.guard import AT_ONCE, Turns
from ccs.ui.state import one_of, parse_int, texts

if TYPE_CHECKING:
    from ccs.ui.session import Session
    from ccs.ui.shared import App

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Endpoints:
    """The functions, bound to one app, which is made when it is first needed."""

    def __init__(self, source: Callable[[], App]) -> None:
        self._source = source

    def heads(self, model: str = "organism") -> list[Json]:
        """All heads of a model: name, concept, CCS (null where unknown), K, level, explained share, variance.

        model: one of the page's list.
        """
        from ccs.ui.page import grid_column

        app, state = self._source(), self._session(model).state
        rows: list[Json] = grid_column.table(app.records(model), app.heads(model), state.off).json()["rows"]
        return rows

    def classify(
        self,
        pictures: list[str] | None = None,
        classes: str = "",
        off: str = "",
        model: str = "organism",
        template: str = "",
        example: str = "",
    ) -> Json:
        """Zero-shot probabilities of images with all heads on (before) and with some off (after).

        pictures: files; none means the page's, or the drawn `example`, such as occupations:0. classes: one
        per line or separated by commas; empty means the example's own. off: heads such as "L7.H2 L6.H1".
        template: with {} where the class goes.
        """
        from ccs.ui.service import uploads

        typed = {"classes": classes, "template": template}
        examples = {"example": {"value": example}} if example else {}
        session = self._session(model, off, **examples, classify=typed)
        if len(pictures or ()) > uploads.MAX_IMAGES:
            raise InputError(f"At most {uploads.MAX_IMAGES} pictures are taken, not {len(pictures or ())}.")
        good, bad = uploads.take([(path, Path(path).name) for path in pictures or ()], self._source().uploads)
        if bad:
            raise InputError(bad[0])
        session.uploads = tuple(good)
        return self._figures(session, "classify")

    def bias(
        self,
        occupations: str = "judge",
        off: str = "",
        model: str = "organism",
        gallery: str = "",
        attribute: str = "gender",
        k: int = 0,
    ) -> Json:
        """MaxSkew, AUC and NDKL of rankings of people for occupations, before, after and by chance.

        occupations: one per line or separated by commas. off: heads such as "L7.H2 L6.H1". k: cut-off, 0 for
        the gallery's own. gallery: "" for the model's first. Intervals are 95%.
        """
        return self._figures(
            self._session(model, off),
            "bias",
            **self._asked(model, occupations, gallery, attribute),
            k=parse_int(k, "cut-off K"),
        )

    def _session(self, model: str, off: str = "", **actions: dict[str, str]) -> Session:
        """A session of one call, after some actions; InputError for a model or a head that is not there."""
        from ccs.ui.clicks import update
        from ccs.ui.links import open_link

        app = self._source()
        session = open_link(app, {"model": app.known_model(model), "off": "none"})
        for do, fields in {"off": {"off": off}, **actions}.items():
            update(app, session, do, fields)
        return session

    def _asked(self, model: str, occupations: str, gallery: str, attribute: str) -> dict[str, Any]:
        """The fields of a question of bias; InputError for what is not there."""
        galleries = self._source().galleries
        gallery = gallery or galleries.names(model)[0]
        for _ in galleries.fetched(gallery):
            pass
        attribute = one_of(attribute, tuple(galleries.get(gallery).groups), "attribute")
        return {"occupations": texts(occupations), "gallery": gallery, "attribute": attribute}

    def _figures(self, session: Session, view: str, **state: Any) -> Json:
        """The figures of a view by name."""
        from ccs.ui.actions import change
        from ccs.ui.views import VIEWS

        change(session, tab=view, **state)
        return {figure.name: figure.json() for figure in VIEWS[view].figures(self._source(), session)}


def _told(function: Callable[..., Any], turns: Turns) -> Callable[..., Any]:
    """The function as Gradio calls it: also with the request, whose turn ends with it, and with a visitor's
    mistake as an error that Gradio shows.
    """

    @functools.wraps(function)
    def call(request: gr.Request, *args: Any) -> Any:
        with turns.of(request):
            try:
                return function(*args)
            except InputError as error:
                raise gr.Error(str(error), print_exception=False) from None
            except Exception:  # whatever it is: the caller gets a sentence, the log the error
                log.exception("the call of %s failed", function.__name__)
                raise gr.Error(
                    "Something went wrong; the error has been logged.", print_exception=False
                ) from None

    known = inspect.signature(function, eval_str=True)
    request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=gr.Request)
    shown = known.replace(parameters=[request, *known.parameters.values()])
    call.__dict__["__signature__"] = shown
    call.__annotations__ = {one.name: one.annotation for one in shown.parameters.values()}
    call.__annotations__["return"] = known.return_annotation
    return call


def expose(source: Callable[[], App], turns: Turns) -> None:
    """Add the functions to the page that is being built. They queue for the model like everyone else."""
    ends = Endpoints(source)
    shared: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": AT_ONCE}
    for name in ("heads", "bias"):
        endpoint(_told(getattr(ends, name), turns), api_name=name, **shared)
    with gr.Row(visible=False):
        inputs = [
            gr.File(label="pictures", file_count="multiple", type="filepath"),
            gr.Textbox("", label="classes"),
            gr.Textbox("", label="off"),
            gr.Textbox("organism", label="model"),
            gr.Textbox("", label="template"),
            gr.Textbox("", label="example"),
        ]
        gr.Button().click(
            _told(ends.classify, turns), inputs, gr.JSON(label="answer"), api_name="classify", **shared
        )
