"""Compute the tables of one or more models: `clip-ccs compute --help`."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

from tqdm import tqdm

from ccs.batch.compute import Compute, Settings
from ccs.batch.compute.stages import Lost, Processes, locked, start, stop
from ccs.errors import InputError
from ccs.progress import JsonLines, RunBar


class _Ended(KeyboardInterrupt):
    """The launcher ends this process, as it does when another one of the run has ended."""


def _end(*_: object) -> None:
    raise _Ended


def _main(settings: Settings) -> int:
    previous = signal.signal(signal.SIGTERM, _end)
    processes = start(settings.device)
    log = logging.getLogger("ccs")  # manifest and summary hold what it warns of
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        return compute(settings, processes, tqdm.write if processes.first else lambda _: None)
    except (InputError, KeyboardInterrupt) as error:
        if processes.first or isinstance(error, _Ended | Lost):
            raise
        return 2 if isinstance(error, InputError) else 130
    finally:
        log.setLevel(level)
        signal.signal(signal.SIGTERM, previous)
        stop()


def compute(settings: Settings, processes: Processes, tell: Callable[[str], Any]) -> int:
    """Run all models of the settings in turn. One that isn't accessible is reported, and the others run.

    Args:
        settings: The settings for all models.
        processes: The processes of the run.
        tell: Gets sentences and summaries.

    Returns:
        The exit status.

    Raises:
        InputError: The only model can't be used, or another process is gone.
    """
    # Imported here: a mistake on the command line is answered at once, without loading PyTorch.
    from ccs.batch.compute import inputs, needs, run_manifest
    from ccs.batch.compute.run import Run
    from ccs.judges.prices import Spending

    if settings.dry_run:
        tell(needs.describe_needs(settings))
        return 0
    by_model = [settings.for_model(name) for name in dict.fromkeys(settings.models)]
    tell = cache(tell)  # each sentence once, however many models it concerns
    usable = processes.once(lambda: needs.require(by_model, tell))
    finished: list[str] = []
    status = 2 * (len(usable) < len(by_model))
    spending = Spending("estimated" if settings.budget is None else settings.budget)
    with ExitStack() as stack:
        processes.once(lambda: stack.enter_context(locked(settings.out)))
        quiet = None if processes.first else True  # the first speaks for all: shards are dealt out evenly
        bar = RunBar(JsonLines if settings.progress and processes.first else tqdm, disable=quiet)
        stack.enter_context(bar.whole)
        open_data = cache(lambda data: processes.once(lambda: inputs.open_all(data, tell)))
        for number, model_settings in enumerate(usable, 1):
            try:
                run = Run(model_settings, processes, open_data, spending, bar)
                bar.expect(bar.whole.n, number / len(usable), run.part_lengths())
                run.go()
                for sentence in processes.once(partial(run_manifest.write, run)):
                    tell(sentence)
                tell(run_manifest.summarize(run))
                finished.append(run.model.name)
            except InputError as error:
                if len(by_model) == 1 or isinstance(error, Lost):
                    raise
                status = 2
                tell(f"error: {model_settings.models[0]} is left out: {error}")
        if settings.publish and finished:
            from ccs.batch import publish  # needs the Hub's cards, which no other run does

            name = settings.publish
            processes.once(lambda: publish.publish_results(settings.out, finished, name))
    return status


main = Compute(
    Settings,
    _main,
    (
        "clip-ccs compute",
        "clip-ccs compute --model ViT-B-32/openai --images DIR --gallery DIR",
        "clip-ccs compute --paper --dry-run",
    ),
    "Interrupted; the same command continues from what is finished.",
)


if __name__ == "__main__":
    sys.exit(main())
