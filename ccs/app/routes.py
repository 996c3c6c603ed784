"""The forms of the app: `POST path` -> their handler, and the fields that a browser may send."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field, InstanceOf, create_model
from starlette.datastructures import UploadFile

Name = Annotated[str, Field(max_length=300)]
Long = Annotated[str, Field(max_length=50_000)]
"""Limits on what a browser may send. The code that uses a value checks its meaning."""
Files = Sequence[InstanceOf[UploadFile]]
Handler = TypeVar("Handler", bound=Callable[..., Any])


class Route(NamedTuple):
    """The model of a form's fields, and the function of the screen and of these fields that handles it."""

    form: type[BaseModel]
    handler: Callable[..., Any]


ROUTES: dict[str, Route] = {}


def post(path: str) -> Callable[[Handler], Handler]:
    """Register the handler of `POST /path`: a function of the screen and of the form's fields.

    The handler raises InputError if it can't do what the form requests. The screen then stays as it was.
    """

    def register(handler: Handler) -> Handler:
        _, *parameters = inspect.signature(handler, eval_str=True).parameters.values()
        fields: dict[str, Any] = {field.name: (field.annotation, field.default) for field in parameters}
        ROUTES[path] = Route(create_model(path, **fields), handler)
        return handler

    return register


def post_fields(path: str, *names: str, **fixed: Any) -> None:
    """Register `POST /path`, whose fields are those of the screen's state.

    Args:
        path: The form's path.
        *names: The fields that the browser sends.
        **fixed: Fields that change with them, by value.
    """
    form: Any = create_model(path, **dict.fromkeys(names, (Long, "")))  # type: ignore[call-overload]
    ROUTES[path] = Route(form, lambda screen, **fields: screen.change(**fields, **fixed))
