"""Compute the tables of one or more models: `clip-ccs compute --help`."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from dataclasses import replace
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
    log = logging.getLogger("ccs")  # its warnings go into manifest and summary
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
        InputError: The only model, the images, a set that the user names, or a judge can't be used, or
            another process is gone.
    """
    # Imported here: a mistake on the command line is answered at once, without loading PyTorch.
    from ccs.batch.compute import inputs, judge, tables
    from ccs.batch.compute.run import Run
    from ccs.judges.prices import Spending
    from ccs.results import STAGES

    tell = cache(tqdm.write if processes.first else lambda _: None)  # each sentence once, for all models
    by_model = settings.by_model()

    def require_judges() -> None:
        for of_model in by_model:
            judge.Judging(of_model, judge.known_pool(of_model)).require_keys()

    processes.once(require_judges)
    status, spending = 0, Spending("estimated" if settings.budget is None else settings.budget)
    with ExitStack() as stack:
        processes.once(lambda: stack.enter_context(locked(settings.out)))
        quiet = None if processes.first else True  # one bar is enough: shards are dealt out evenly
        bar = RunBar(JsonLines if settings.progress and processes.first else tqdm, disable=quiet)
        stack.enter_context(bar.whole)
        checked = settings.out / STAGES / "complete"
        open_data = cache(lambda data: processes.once(lambda: inputs.open_all(data, tell, checked)))
        opened = [open_data(replace(of_model, models=())) for of_model in by_model]
        for number, of_model in enumerate(by_model):
            try:
                run = Run(of_model, processes, opened[number], spending, bar)
                bar.expect(bar.whole.n, (number + 1) / len(by_model), run.part_lengths())
                run.go()
                note = processes.once(partial(tables.write_tables, run))
                tell(tables.summarize(run) + (f"\n  note: {note}" if note else ""))
            except InputError as error:
                if len(by_model) == 1 or isinstance(error, Lost):
                    raise
                status = 2
                tell(f"error: {of_model.models[0]} is left out: {error}")
    return status


main = Compute(Settings, _main, interrupted="Interrupted; the same command continues from what is finished.")


if __name__ == "__main__":
    sys.exit(main())
