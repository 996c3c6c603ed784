"""The command `clip-ccs`: its subcommands, and how each parses its options and ends.

A subcommand is a frozen dataclass of options and a function of it, joined by `Command`. cyclopts reads the
dataclass; `ccs.cli.options` has the annotations that several share.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cyclopts import App, CycloptsError, Group, Parameter

from ccs.cli.options import format_default, with_split
from ccs.errors import InputError
from ccs.files import escape_output

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

COMMANDS = {
    "app": ("ccs.app.__main__", "Explore attention heads in the browser."),
    "compute": ("ccs.batch.compute.__main__", "Describe and score a model's heads, and measure ablations."),
    "accuracy": ("ccs.batch.accuracy", "Measure zero-shot accuracy, with and without ablated heads."),
    "bias": ("ccs.batch.bias", "Measure the social bias of image rankings."),
    "audit": ("ccs.batch.audit", "Audit the bias of models: published prompts, harms, intersections."),
    "heads": ("ccs.batch.heads", "Find the heads that encode a text."),
    "search": ("ccs.batch.search", "Find the smallest ablation that lowers MaxSkew."),
    "localize": ("ccs.batch.localize", "Find the heads that carry a bias."),
    "mitigate": ("ccs.batch.mitigate", "Compare ways to lower bias, recommend one, and save the model."),
    "compare": ("ccs.batch.compare", "Match the heads of two models and list the changes."),
    "export": ("ccs.batch.export", "Save a model with ablated heads."),
    "publish": ("ccs.batch.publish", "Publish results as a dataset on the Hugging Face Hub."),
    "report": ("ccs.batch.report", "Compare your results with the paper's."),
    "annotate": ("ccs.batch.annotate", "Measure the agreement of people with LLM judges."),
}
"""The module and the summary of each subcommand."""
T = TypeVar("T", bound="DataclassInstance")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `clip-ccs` and return its exit status (see `run`).

    Args:
        argv: Words of the command line, by default those of the process.
    """
    return run(lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    if argv and argv[0] in COMMANDS:
        return command(argv[0])(argv[1:])
    app = _app("clip-ccs", "Interpret, ablate, and debias the attention heads of CLIP models.")
    app.version, app.version_flags = package_version, ("--version",)
    for place, (name, (_, summary)) in enumerate(COMMANDS.items()):
        app.command(lambda: None, name=name, help=summary, sort_key=place)  # listed, and not imported
    _parse(app, argv or ["--help"])
    return 0


def command(name: str) -> Command[Any]:
    """Import the subcommand with this name."""
    subcommand: Command[Any] = importlib.import_module(COMMANDS[name][0]).main
    return subcommand


def package_version() -> str:
    """Return the version of the installed package."""
    try:
        return version("clip-ccs")
    except PackageNotFoundError:
        return "not installed: run from a clone"


@dataclass(frozen=True)
class Command(Generic[T]):
    """The `main` of a subcommand: parses its options, runs it, and returns its exit status.

    Args:
        settings: Dataclass of its options. The docstring is the help text, with "Examples:".
        action: Function of the parsed options that does the work and returns an exit status (None means 0).
        interrupted: Message for a user who interrupts the command.
    """

    settings: type[T]
    action: Callable[[T], int | None]
    interrupted: str = "Interrupted; nothing was written."

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run with the options of `argv` (default: those of the process) and return the exit status."""

        def parse_and_act() -> int | None:
            settings = self.parse(argv)
            return None if settings is None else self.action(settings)

        return run(parse_and_act, self.interrupted)

    def parse(self, argv: Sequence[str] | None) -> T | None:
        """Return the options of `argv`, or None after `--help`. Raises InputError if one isn't allowed."""
        values = self.values(sys.argv[1:] if argv is None else argv)
        return None if values is None else self.settings(**with_split(values))

    def values(self, argv: Sequence[str]) -> dict[str, Any] | None:
        """Return the values of the options in `argv`, or None after `--help`. Raises InputError."""
        return _parse(self.app(), argv)

    @property
    def examples(self) -> list[str]:
        """Command lines shown at the end of the help text."""
        text = (inspect.getdoc(self.settings) or "").partition("\n\nExamples:\n")[2]
        return [line.strip() for line in text.splitlines()]

    def app(self) -> App:
        """Return the parser of the options."""
        spec = sys.modules[self.settings.__module__].__spec__  # has the module's name even as `__main__`
        module = spec.name.removesuffix(".__main__") if spec else ""
        subcommand = module.startswith(("ccs.", "batch."))
        program = f"clip-ccs {module.rpartition('.')[2]}" if subcommand else f"python -m {module}"
        app = _app(program, (inspect.getdoc(self.settings) or "").partition("\n\nExamples:")[0])
        app.help_epilogue = "\n  ".join(("Examples:", *self.examples)) if self.examples else None
        app.default(self.settings)
        return app


def _app(program: str, text: str) -> App:
    app = App(
        program,
        help=re.sub(r"(?<!\n)\n(?!\n)", " ", text),
        help_format="plaintext",
        version_flags=(),
        group_parameters=Group("Options", sort_key=0),
        default_parameter=Parameter(negative=(), show_default=format_default, allow_repeating=True),
    )
    app["--help"].show = False
    return app


def _parse(app: App, argv: Sequence[str]) -> dict[str, Any] | None:
    try:
        command, bound, _ = app.parse_args(argv, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        raise InputError(f"{error} See {app.name[0]} --help.") from None
    if command is app.default_command:
        return dict(bound.arguments)
    command(*bound.args, **bound.kwargs)  # prints the help or the version
    return None


def run(action: Callable[[], int | None], interrupted: str = "Interrupted; nothing was written.") -> int:
    """Run a command and return its exit status.

    Args:
        action: Function that does the work and returns an exit status (None means 0).
        interrupted: Message on standard error after an interrupt.

    Returns:
        The status of `action`. 2 after an InputError and after a failure of a disk or a connection, with the
        reason on standard error. 130 after an interrupt. 141, without a message, if nobody reads the output.
    """
    escape_output()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    if os.environ.get("COLUMNS") == "0":  # of a terminal without a size; no text fits into it
        del os.environ["COLUMNS"]
    try:
        status = action() or 0
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


if __name__ == "__main__":
    sys.exit(main())
