"""Command lines made from dataclasses, and the one way in which commands end on a user's mistake."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from ccs.errors import InputError
from ccs.files import escape_output

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FOLDER = "folder of results (default: results/ if it holds any, else those that ship)"
TEXT_TOWER = (
    "for a language model that sees (LLaVA, PaliGemma): the CLIP that its image tower is from, such as "
    "hf-hub:openai/clip-vit-large-patch14-336"
)
T = TypeVar("T", bound="DataclassInstance")
_NOT_ARGPARSES = ("flags", "least", "implies", "read")


def option(default: Any, help: str = "", *flags: str, **more: Any) -> Any:
    """A dataclass field that is a command-line option; its default is added to the help.

    flags: what it is called, where not as the field is; without dashes it is known by its place. more:
    `least`, the lowest value allowed; `implies`, from the field's value to the defaults of other fields where
    it is given; `read`, which turns the given text (or texts) into the field's value; the rest goes to
    `add_argument`.
    """
    return field(default=default, metadata={"help": help, "flags": flags, **more})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")


def parse(settings: type[T], argv: Sequence[str] | None) -> T:
    """The settings of a command line, described by their docstring: bool fields are switches, tuples
    repeatable, `X | None` takes an X. Raises InputError for what is not allowed.
    """
    main, name = sys.modules["__main__"], settings.__module__
    if name == "__main__" and main.__spec__:  # run by `python -m`
        name = main.__spec__.name
    parser = _Parser(program(name), description=settings.__doc__, argument_default=argparse.SUPPRESS)
    hints, every = get_type_hints(settings), fields(settings)
    for one in every:
        _add(parser, one, hints[one.name])
    given = vars(parser.parse_args(argv))
    for one in (one for one in every if one.name in given):
        value = given[one.name]
        value = one.metadata["read"](value) if "read" in one.metadata else value
        given[one.name] = tuple(value) if isinstance(value, list) else value
        if "implies" in one.metadata:
            given = one.metadata["implies"](value) | given
    found = settings(**given)
    for one in every:
        value, least = getattr(found, one.name), one.metadata.get("least")
        if value is not None and least is not None and value < least:
            raise InputError(f"{_flags(one)[0]} is {value}, but must be at least {least}.")
    return found


def _flags(one: Field[Any]) -> tuple[str, ...]:
    return one.metadata["flags"] or (f"--{one.name.replace('_', '-')}",)


def _add(parser: argparse.ArgumentParser, one: Field[Any], hint: Any) -> None:
    """Tell argparse of a field of this type."""
    about = {key: value for key, value in one.metadata.items() if key not in _NOT_ARGPARSES}
    flags, help = _flags(one), about["help"]
    if not (help.endswith(")") or isinstance(one.default, bool) or one.default in (None, (), "")):
        about["help"] = f"{help} (default {_plain(one.default)})".strip()
    if flags[0].startswith("-"):
        about["dest"] = one.name
    kind = next((kind for kind in get_args(hint) if kind is not type(None)), hint)
    if hint is bool:
        about["action"] = "store_true"
    elif get_origin(hint) is tuple:
        about.setdefault("action", "append")
    elif "read" not in one.metadata:
        about["type"] = kind
    parser.add_argument(*flags, **about)


def program(module: str) -> str:
    """How the command of this module is called, in its help and in messages."""
    return f"clip-ccs {module.removesuffix('.__main__').removesuffix('.settings').rpartition('.')[2]}"


def _plain(value: Any) -> str:
    if isinstance(value, Path) and value.is_absolute():
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value)


def command(
    settings: type[T], work: Callable[[T], int | None], interrupted: str = "Interrupted; nothing was written."
) -> Callable[..., int]:
    """The `main` of a command: from its words (by default those it was called with) to its exit code."""

    def main(argv: Sequence[str] | None = None) -> int:
        return run(lambda: work(parse(settings, argv)), interrupted)

    return main


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
