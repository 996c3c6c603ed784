"""Command lines made from dataclasses, and the one way in which commands end on a user's mistake."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ccs.errors import InputError
from ccs.files import escape_output

T = TypeVar("T")


def option(default: Any, help: str, **more: Any) -> Any:
    """A dataclass field that is a command-line option.

    more: `flag`, where the option is not called as the field is; `least`, the lowest value allowed; `read`,
    which turns the given text (or texts) into the field's value; the rest goes to `add_argument`.
    """
    return field(default=default, metadata={"help": help, **more})


def parse(settings: type[T], argv: Sequence[str] | None, *, prog: str, description: str | None) -> T:
    """The settings of a command line: bool fields are switches, tuples repeatable, `X | None` takes an X.

    Raises InputError for a value that is not allowed; argparse exits on an option that does not exist.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description, argument_default=argparse.SUPPRESS)
    hints = get_type_hints(settings)
    readers: dict[str, Callable[[Any], Any]] = {}
    for one in fields(settings):  # type: ignore[arg-type]
        about: dict[str, Any] = dict(one.metadata)
        about.pop("least", None)
        kinds = [kind for kind in get_args(hints[one.name]) if kind not in (type(None), Ellipsis)]
        kind = hints[one.name] if get_origin(hints[one.name]) is tuple or not kinds else kinds[0]
        if "read" in about:
            readers[one.name] = about.pop("read")
        elif kind is bool:
            about["action"] = "store_true"
        elif get_origin(kind) is tuple:
            about["action"], readers[one.name] = "append", tuple
        else:
            about["type"] = kind
        parser.add_argument(about.pop("flag", _flag(one.name)), dest=one.name, **about)
    given = vars(parser.parse_args(argv))
    return settings(**{name: readers.get(name, lambda value: value)(value) for name, value in given.items()})


def check_least(settings: Any) -> None:
    """Raise InputError for an option below the lowest value it may have."""
    for one in fields(settings):
        value, least = getattr(settings, one.name), one.metadata.get("least")
        if value is not None and least is not None and value < least:
            flag = one.metadata.get("flag", _flag(one.name))
            raise InputError(f"{flag} is {value}, but must be at least {least}.")


def run(work: Callable[[], int | None], interrupted: str = "Interrupted; nothing was written.") -> int:
    """The exit code of a command: what `work` returns (0 for None), 2 after InputError or what a disk or a
    connection would not do, 130 if interrupted.

    All are told on standard error, `interrupted` being what to say of the last.
    """
    escape_output()
    try:
        return work() or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a disk that is full, read-only or gone
        if error.strerror is None:
            raise
        print(f"error: {error.filename or 'The disk'}: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{interrupted}", file=sys.stderr)
        return 130


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
