"""Time of an analysis of ViT-B-32 in the running app, and of other visitors' clicks during it.

    python -m benchmarks.clicks_beside_run [--photographs ../shared/data/imagenet-sample]

Random weights, 4,216 texts. A click is the server's work from an action to the HTML it sends, with four
images on Classify. It ablates six new random heads each time, so that no answer is cached. Clicks before and
during the run come from one process on one machine; the load before it is stored with the results.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.common import PHOTOGRAPHS, keep, timed
from benchmarks.visitor_waits import act, alone, opened
from ccs.app.services.analyses import Request
from ccs.heads import HeadSet

MODEL = "ViT-B-32/random"
COUNT, TEXTS = 1000, "photographs"
ALLOWED = {"seconds": 180.0, "ratio": 2.0}
CLICKS, PAUSE = 24, 1.0


def measure(photographs: Path) -> dict[str, Any]:
    """Return the seconds of the run, and of the median click before and during it."""
    with alone(MODEL) as app:
        model = app.model_cache.get(MODEL).load()
        seeds = count()
        screen = opened(app, model=MODEL, tab="classify")

        def click() -> float:
            off = Random(next(seeds)).sample(list(model.heads), 6)
            return timed(lambda: act(screen, "heads/ablate", ablate=str(HeadSet(off))))

        for _ in range(3):
            click()
        before = [click() for _ in range(CLICKS)]
        load, start = os.getloadavg()[0], time.perf_counter()
        request = Request(MODEL, MODEL, model.weights_hash, str(photographs), COUNT, TEXTS)
        run = ThreadPoolExecutor(1).submit(lambda: list(app.analyses.make(request)))
        during = []
        while not run.done():
            time.sleep(PAUSE)
            during.append(click())
        run.result()
        return {
            "photographs": COUNT,
            "texts": TEXTS,
            "load before": load,
            "seconds": time.perf_counter() - start,
            "click before": median(before),
            "click during": median(during),
            "ratio": median(during) / median(before),
            "allowed": ALLOWED,
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and store the results; return 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--photographs", type=Path, default=PHOTOGRAPHS)
    numbers = measure(parser.parse_args(argv).photographs.resolve())
    print(*(f"{name} {value}" for name, value in numbers.items()), sep=" | ")
    keep("clicks_beside_run", numbers)
    return int(any(numbers[name] > limit for name, limit in ALLOWED.items()))


if __name__ == "__main__":
    sys.exit(main())
