"""`clip-ccs COMMAND ...`: all programs under one name, their options made from dataclasses, and the one way
in which they end on a user's mistake.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import Field, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from ccs.errors import InputError
from ccs.files import escape_output

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

COMMANDS = {
    "app": ("ccs.ui.__main__", "look at heads in the browser, switch them off, see what happens"),
    "compute": ("ccs.batch.compute.__main__", "take models apart: texts, concepts and scores of their heads"),
    "accuracy": ("ccs.batch.accuracy", "measure how many images a model assigns to their class"),
    "bias": ("ccs.batch.bias", "measure a model's social bias on a gallery of faces"),
    "heads": ("ccs.batch.heads", 'find the heads that write about something, such as "dogs"'),
    "localize": ("ccs.batch.localize", "find the heads that carry a bias, or score methods that do"),
    "mitigate": ("ccs.batch.mitigate", "make a model fairer, see what it costs, save it"),
    "compare": ("ccs.batch.compare", "compare two models head by head: which correspond, which changed"),
    "search": ("ccs.batch.search", "find the fewest heads to switch off for less bias"),
    "export": ("ccs.batch.export", "save a model with heads switched off"),
    "publish": ("ccs.batch.publish", "put tables or the app on the Hugging Face Hub"),
    "report": ("ccs.batch.report.__main__", "set what was measured beside what was published"),
    "annotate": ("ccs.batch.annotate", "let people check what judges said"),
}
"""What each command runs, and what it is for."""
T = TypeVar("T", bound="DataclassInstance")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see `run`)."""
    return run(lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print("usage: clip-ccs COMMAND [OPTIONS]      clip-ccs COMMAND --help\n")
        print("Attention heads of CLIP: what they have learned, and what they do.\n")
        for name, (_, purpose) in COMMANDS.items():
            print(f"  {name:9} {purpose}")
        return 0
    if argv[0] == "--version":
        try:
            print(version("clip-ccs"))
        except PackageNotFoundError:
            print("not installed: run from a clone")
        return 0
    if argv[0] not in COMMANDS:
        raise InputError(f"There is no command {argv[0][:40]!r}; commands are {', '.join(COMMANDS)}.")
    status: int = importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])
    return status


# The options of a command -------------------------------------------------------------------------------

FOLDER = "folder of results (default: results/ if it holds any, else those that ship)"
TEXT_TOWER = (
    "for a language model that sees (LLaVA, PaliGemma): the CLIP that its image tower is from, such as "
    "hf-hub:openai/clip-vit-large-patch14-336"
)
OFF = (
    'heads to switch off, such as "L8.H11 L9.H2", of the text tower "T7.H3"; scaled or at their mean: '
    '"L9.H2=0.3 L10.H0=mean"'
)
ATTRIBUTE = "the column that groups people (default: gender, or else the first)"
DEVICE = "cpu, cuda or cuda:N; auto is CCS_DEVICE, else cuda where there is a GPU"
SKIP = "go on where more than 1%% of the images cannot be read"


def option(default: Any, help: str = "", *flags: str, **more: Any) -> Any:
    """A dataclass field that is a command-line option; its default is added to the help. flags: what it is
    called, if not as the field; without dashes it has a place. more: `least`, the lowest value; `read`, a
    function of the given text (or texts); the rest goes to `add_argument`.
    """
    return field(default=default, metadata={"help": help, "flags": flags, **more})


def parse(settings: type[T], argv: Sequence[str] | None) -> T:
    """The settings of a command line. Raises InputError for what is not allowed."""
    return settings(**given(settings, argv))


def given(settings: type[DataclassInstance], argv: Sequence[str] | None) -> dict[str, Any]:
    """The fields that a command line gives a value to. The dataclass's docstring is the description; bool
    fields are switches, tuples repeatable, and `X | None` takes an X. Raises InputError.
    """
    spec = sys.modules[settings.__module__].__spec__  # as `__main__` too it has the module's name
    module = spec.name.removesuffix(".__main__") if spec else ""
    ours, name = module.startswith(("ccs.", "batch.")), module.rpartition(".")[2]
    program = f"clip-ccs {name}" if ours else f"python -m {module}"
    parser = _Parser(program, description=settings.__doc__, argument_default=argparse.SUPPRESS)
    hints = get_type_hints(settings)
    for each in fields(settings):
        _add(parser, each, hints[each.name])
    values = vars(parser.parse_intermixed_args(argv))
    return {each.name: _checked(each, values[each.name]) for each in fields(settings) if each.name in values}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")


def _flags(each: Field[Any]) -> tuple[str, ...]:
    return each.metadata["flags"] or (f"--{each.name.replace('_', '-')}",)


def _add(parser: argparse.ArgumentParser, each: Field[Any], hint: Any) -> None:
    flags, help = _flags(each), each.metadata["help"]
    about = {key: each.metadata[key] for key in each.metadata.keys() - {"flags", "least", "read"}}
    if not (help.endswith(")") or isinstance(each.default, bool) or each.default in (None, (), "")):
        about["help"] = f"{help} (default {_plain(each.default)})".strip()
    if flags[0].startswith("-"):
        about["dest"] = each.name
    kind = next((kind for kind in get_args(hint) if kind is not type(None)), hint)
    if hint is bool:
        about["action"] = "store_true"
    elif get_origin(hint) is tuple:
        about.setdefault("action", "append")
    elif "read" not in each.metadata:
        about["type"] = kind
    parser.add_argument(*flags, **about)


def _checked(each: Field[Any], value: Any) -> Any:
    if "read" in each.metadata:
        return each.metadata["read"](value)
    if (least := each.metadata.get("least")) is not None and not value >= least:
        raise InputError(f"{_flags(each)[0]} is {value}, but must be at least {least}.")
    return tuple(value) if isinstance(value, list) else value


def read_names(given: str) -> tuple[str, ...]:
    """Names (occupations, classes) of a file, one per line, or separated by commas."""
    path = Path(given).expanduser()
    if "," not in given and (path.is_file() or path.suffix[1:].isalnum()):
        try:
            lines = path.read_text("utf-8-sig").splitlines()
            return tuple(name for name in map(str.strip, lines) if name)
        except (OSError, UnicodeDecodeError) as error:
            why = "there is no such file" if isinstance(error, FileNotFoundError) else error
            raise InputError(f"{given} cannot be read as a file of names: {why}.") from None
    return tuple(name for name in map(str.strip, given.split(",")) if name)


def to_folder(given: str) -> Path:
    """A folder that is written in the end. InputError, before the work, where it cannot be."""
    path = Path(given)
    try:
        there = next(one for one in (path, *path.absolute().parents) if one.exists())
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error.strerror}.") from None
    return path


def to_file(given: str) -> Path:
    """A file that is written in the end; as `to_folder`."""
    path = to_folder(str(Path(given).parent)) / Path(given).name
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write to.")
    return path


def _plain(value: Any) -> str:
    if isinstance(value, Path) and value.is_absolute():
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value)


# The end of a command -----------------------------------------------------------------------------------


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
