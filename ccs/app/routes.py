"""The forms of the app: `POST path` -> the fields that a browser may send, and their handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

from fastapi import UploadFile
from pydantic import BaseModel, Field, create_model

Key = Annotated[str, Field(pattern=r"^[\w-]{0,64}$")]
Name = Annotated[str, Field(max_length=300)]
Long = Annotated[str, Field(max_length=50_000)]
"""Limits on what a browser may send. The code that uses a value checks its meaning."""
Files = Annotated[Sequence[UploadFile], Field()]


class Form(BaseModel):
    """The fields that every form has: the page's key, and the query of the address that it shows."""

    page: Key = ""
    at: Annotated[str, Field(max_length=20_000)] = ""


Handler = TypeVar("Handler", bound=Callable[..., Any])


class Route(NamedTuple):
    """A form's path, the model of its fields, and a function of the screen and of the filled-in form."""

    path: str
    form: type[Form]
    handle: Callable[[Any, Form], Any]


ROUTES: list[Route] = []


def post(path: str) -> Callable[[Handler], Handler]:
    """Register the handler of `POST /path`: a function of the screen and of the form's fields.

    The handler raises InputError if it can't do what the form requests. The screen then stays as it was.
    """

    def register(handler: Handler) -> Handler:
        hints = get_type_hints(handler, include_extras=True)
        _, *parameters = inspect.signature(handler).parameters.values()
        fields: dict[str, Any] = {field.name: (hints[field.name], field.default) for field in parameters}

        def handle(screen: Any, form: Form) -> Any:
            """Call the handler with the form's fields.

            Args:
                screen: The screen that the form changes.
                form: The filled-in form.

            Returns:
                The handler's answer: None, or work to start.
            """
            return handler(screen, **{name: getattr(form, name) for name in fields})

        ROUTES.append(Route(path, create_model(handler.__name__, __base__=Form, **fields), handle))
        return handler

    return register
