"""Command lines made from dataclasses, and the one way in which commands end on a user's mistake."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from ccs.errors import InputError
from ccs.files import escape_output

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FOLDER = "folder of results (default: results/ if it holds any, else those that ship)"
T = TypeVar("T", bound="DataclassInstance")


def option(default: Any, help: str = "", **more: Any) -> Any:
    """A dataclass field that is a command-line option; its default is added to the help.

    more: `flag`, where the option is not called as the field is; `also`, its other names; `least`, the lowest
    value allowed; `implies`, from the field's value to the defaults of other fields where it is given;
    `read`, which turns the given text (or texts) into the field's value; the rest goes to
    `add_argument`.
    """
    return field(default=default, metadata={"help": help, **more})


def parse(settings: type[T], argv: Sequence[str] | None) -> T:
    """The settings of a command line, described by their docstring: bool fields are switches, tuples
    repeatable, `X | None` takes an X.

    Raises InputError for a value that is not allowed; argparse exits on an option that does not exist.
    """
    main, name = sys.modules["__main__"], settings.__module__
    if name == "__main__" and main.__spec__:  # run by `python -m`
        name = main.__spec__.name
    parser = argparse.ArgumentParser(
        prog=program(name),
        description=settings.__doc__,
        argument_default=argparse.SUPPRESS,
    )
    hints = get_type_hints(settings)
    readers: dict[str, Callable[[Any], Any]] = {}
    least: dict[str, float] = {}
    presets: dict[str, Callable[[Any], dict[str, Any]]] = {}
    for one in fields(settings):
        about: dict[str, Any] = dict(one.metadata)
        flag = about.pop("flag", "--" + one.name.replace("_", "-"))
        least[flag] = about.pop("least", -math.inf)
        implied = about.pop("implies", None)
        if implied is not None:
            presets[one.name] = implied
        said = about["help"].endswith(")") or isinstance(one.default, bool) or one.default in (None, (), "")
        if not said:
            about["help"] = f"{about['help']} (default {_plain(one.default)})".strip()
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
        parser.add_argument(flag, *about.pop("also", ()), dest=one.name, **about)
    given = vars(parser.parse_args(argv))
    values = {name: readers.get(name, lambda value: value)(value) for name, value in given.items()}
    for name, implied in presets.items():
        if name in values:
            values = implied(values[name]) | values
    found = settings(**values)
    for one, (flag, lowest) in zip(fields(settings), least.items(), strict=True):
        value = getattr(found, one.name)
        if value is not None and lowest > -math.inf and value < lowest:
            raise InputError(f"{flag} is {value}, but must be at least {lowest}.")
    return found


def program(module: str) -> str:
    """How the command of this module is called, in its help and in messages."""
    return f"clip-ccs {module.removesuffix('.__main__').removesuffix('.settings').rpartition('.')[2]}"


def _plain(value: Any) -> str:
    if isinstance(value, Path) and value.is_absolute():
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value)


def command(
    settings: type[T],
    argv: Sequence[str] | None,
    work: Callable[[T], int | None],
    interrupted: str = "Interrupted; nothing was written.",
) -> int:
    """Do the work of a command line; its exit code (see `run`)."""
    return run(lambda: work(parse(settings, argv)), interrupted)


def run(work: Callable[[], int | None], interrupted: str = "Interrupted; nothing was written.") -> int:
    """The exit code of a command: what `work` returns (0 for None), 2 after InputError or where a disk or a
    connection fails, 130 if interrupted. Standard error says why; `interrupted` is said of the last. 141,
    without a word, where nobody reads on.
    """
    escape_output()
    try:
        status = work() or 0
        sys.stdout.flush()
        return status
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a disk that is full, read-only or gone
        if error.strerror is None:
            raise
        print(f"error: {error.filename or 'The disk'}: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{interrupted}", file=sys.stderr)
        return 130
