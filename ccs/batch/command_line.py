"""`clip-ccs COMMAND ...`: all programs and the app under one name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from ccs.batch.options import run
from ccs.errors import InputError

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


def page() -> str:
    """What there is, on one screen."""
    lines = (f"  {name:9} {what}" for name, (_, what) in COMMANDS.items())
    usage = "usage: clip-ccs COMMAND [OPTIONS]      clip-ccs COMMAND --help\n"
    return "\n".join([usage, "Attention heads of CLIP: what they have learned, and what they do.\n", *lines])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    return run(lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(page())
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


if __name__ == "__main__":
    sys.exit(main())
