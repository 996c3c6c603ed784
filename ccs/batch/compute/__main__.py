"""Compute the tables of one or more models: `clip-ccs compute --help`."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from functools import cache, partial

from tqdm import tqdm

from ccs.batch.compute import Compute, Settings
from ccs.batch.compute.stages import Lost, Processes, in_processes, locked
from ccs.errors import InputError
from ccs.progress import JsonLines, RunBar


def _main(settings: Settings) -> int:
    if settings.dry_run:
        from ccs.batch.compute.dry_run import describe_needs

        print(describe_needs(settings))
        return 0
    log = logging.getLogger("ccs")  # manifest and summary hold what it warns of
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        return in_processes(settings.device, partial(compute, settings))
    finally:
        log.setLevel(level)


def compute(settings: Settings, processes: Processes) -> int:
    """Run all models of the settings in turn. One that isn't accessible is reported, and the others run.

    Args:
        settings: The settings for all models.
        processes: The processes of the run.

    Returns:
        The exit status.

    Raises:
        InputError: The only model can't be used, or another process is gone.
    """
    # Imported here: a mistake on the command line is answered at once, without loading PyTorch.
    from ccs.batch.compute import inputs, needs, run_manifest
    from ccs.batch.compute.run import Run
    from ccs.judges.prices import Spending

    tell = cache(tqdm.write if processes.first else lambda _: None)  # once, however many models it concerns
    by_model = settings.by_model()
    usable = processes.once(lambda: needs.require(by_model, tell))
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
                note = processes.once(partial(run_manifest.write, run))
                tell(run_manifest.summarize(run) + (f"\n  note: {note}" if note else ""))
            except InputError as error:
                if len(by_model) == 1 or isinstance(error, Lost):
                    raise
                status = 2
                tell(f"error: {model_settings.models[0]} is left out: {error}")
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
