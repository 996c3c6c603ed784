"""Time to take ViT-B-32 apart in the running app, and the cost of other visitors' clicks meanwhile.

    python -m benchmarks.apart --photographs ../shared/data/imagenet-sample [--count 1000]

Random weights, 4,216 texts. A click is the server's work from an action to the HTML it sends, with four
images on Classify: six random heads off, others each time, so that no answer is known. Clicks before and
during the run come from one process on one machine; the load before it is kept with the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count as counting
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

RESULTS = Path(__file__).parent / "results" / "apart.json"
MODEL = "ViT-B-32/random"
ALLOWED = {"seconds": 180.0, "ratio": 2.0}
CLICKS, PAUSE = 24, 1.0


def measure(photographs: Path, count: int, texts: str) -> dict[str, Any]:
    """Seconds of the run, and the median click before and during it."""
    from ccs import results
    from ccs.ui.app import App
    from ccs.ui.page import opening, page
    from ccs.ui.service.apart import Request

    class One(App):
        models = (MODEL,)

    with tempfile.TemporaryDirectory() as folder:
        app = One(results.load(), Path(folder))
        model = app.model_cache.get(MODEL)
        seeds = counting()
        session = opening.open_link(app, {"model": MODEL, "tab": "classify", "off": "none"})

        def click() -> float:
            start = time.perf_counter()
            for _ in page.act(app, session, {"do": "random", "n": "6", "seed": str(next(seeds))}):
                pass
            return time.perf_counter() - start

        for _ in range(3):
            click()
        before = [click() for _ in range(CLICKS)]
        load, start = os.getloadavg()[0], time.perf_counter()
        run = app.workshop.ask(Request(MODEL, MODEL, model.weights_hash, str(photographs), count, texts))
        during = []
        while not run.ended:
            run.asked = time.monotonic()
            time.sleep(PAUSE)
            during.append(click())
        if run.error:
            raise SystemExit(run.error)
        return {
            "photographs": count,
            "texts": texts,
            "load before": load,
            "seconds": time.perf_counter() - start,
            "click before": median(before),
            "click during": median(during),
            "ratio": median(during) / median(before),
            "allowed": ALLOWED,
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and keep as JSON; 1 where something takes longer than it should."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--texts", default="photographs", help="the pool")
    args = parser.parse_args(argv)
    found = measure(args.photographs.resolve(), args.count, args.texts)
    print(*(f"{name} {value}" for name, value in found.items()), sep=" | ")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0 if all(found[name] <= most for name, most in ALLOWED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
