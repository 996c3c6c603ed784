"""The forms of the app: `POST path` -> the model of its fields and the function that changes the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, Field

Key = Annotated[str, Field(pattern=r"^[\w-]{0,64}$")]
Name = Annotated[str, Field(max_length=300)]
Long = Annotated[str, Field(max_length=50_000)]
"""Bounds of what a browser may send. What it means is checked where it is used."""


class Form(BaseModel):
    """The fields that every form has: the page's key, and the query of the address that it shows."""

    page: Key = ""
    at: Annotated[str, Field(max_length=20_000)] = ""


Handler = TypeVar("Handler", bound=Callable[..., Any])


class Route(NamedTuple):
    """A form's path, the model of its fields, and its handler, a function of the screen and of the form."""

    path: str
    form: type[Form]
    handle: Callable[..., Any]


ROUTES: list[Route] = []


def post(path: str) -> Callable[[Handler], Handler]:
    """Register the handler of `POST /path`. It raises InputError if it can't do what the form says; the
    screen then stays as it was.
    """

    def register(handle: Handler) -> Handler:
        ROUTES.append(Route(path, get_type_hints(handle).get("form", Form), handle))
        return handle

    return register
