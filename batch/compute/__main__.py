"""Compute the tables of one or more models: `python -m batch.compute --help`."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from batch.compute.processes import Processes, start, stop
from batch.compute.settings import Settings, parse
from batch.compute.stages import disk_errors, locked
from ccs.errors import InputError

if TYPE_CHECKING:
    from batch.compute.outcome import Outcome
    from batch.compute.run import Run


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 after a sentence on what was wrong, or 130 where it was interrupted."""
    try:
        settings = parse(argv)
        processes = start(settings.device)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return compute(settings, processes, print if processes.first else _silent)
    except InputError as error:
        if processes.first:
            print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if processes.first:
            print("\nInterrupted. What is finished is kept; give the same command to go on.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, previous)
        stop()


def compute(settings: Settings, processes: Processes, tell: Callable[[str], Any]) -> int:
    """Every model of the settings in turn. A model that cannot be had is told, and the others are done."""
    # Imported here: a mistake on the command line is answered at once, without loading PyTorch's world.
    from batch.compute import cost
    from batch.compute import manifest as summary
    from batch.compute.run import Run

    failed = []
    with ExitStack() as stack:
        stack.enter_context(_errors_only(logging.getLogger("ccs")))  # manifest and summary hold the rest
        processes.once(lambda: _hold(stack, settings))
        for name in settings.models:
            chosen = settings.for_model(name)
            try:
                run = Run(chosen, processes, tell)
                if settings.plan_cost:
                    tell(cost.page(run))
                    continue
                outcome = run.go()
                if not settings.dry_run:
                    processes.once(partial(_write, run, outcome))
                    tell(summary.page(outcome))
            except InputError as error:
                if len(settings.models) == 1:
                    raise
                failed.append(name)
                tell(f"error: {name} is left out: {error}")
    return 2 if failed else 0


def _write(run: Run, outcome: Outcome) -> None:
    from batch.compute.manifest import manifest
    from batch.compute.outcome import write

    with disk_errors(outcome.folder):
        write(outcome, lambda tables: manifest(outcome, tables, run.processes), run.store)


@contextmanager
def _errors_only(log: logging.Logger) -> Iterator[None]:
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _hold(stack: ExitStack, settings: Settings) -> None:
    stack.enter_context(locked(settings.out))


def _silent(_: str) -> None:
    """What all but the first process say."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
