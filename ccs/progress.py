"""The progress of long work: a bar on a terminal, or lines of JSON for a program that reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm


class Bar(tqdm):  # type: ignore[misc]
    """tqdm that also shows its bar in a notebook, whose output isn't a terminal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
        if options.get("disable", False) is None and ask is not None and hasattr(ask(), "kernel"):
            options["disable"] = False
        super().__init__(*args, **options)


class JsonLines(tqdm):  # type: ignore[misc]
    """A run's bar as lines on stderr such as `{"doing": "moments: 40 of 1,000", "share": 0.12}`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "disable": False, "mininterval": 0.5})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print the share that is done; tqdm calls this instead of drawing.

        Args:
            msg: Has no effect; part of tqdm's signature.
            pos: Has no effect; part of tqdm's signature.
        """
        if self.desc:  # a part was begun
            print(json.dumps({"doing": self.desc, "share": round(self.n, 4)}), file=sys.stderr, flush=True)


class RunBar:
    """One bar for a run of many parts, each opened as a tqdm is, with its name as `desc`.

    A part that is skipped, since it was done before, counts as done once a later one begins, and its share is
    left out of the estimate of the time that is left.
    """

    def __init__(self, bar: type[tqdm] = tqdm, *, disable: bool | None = None) -> None:
        shape = "{desc} |{bar}| {percentage:3.0f}% [{elapsed}<{remaining}]"
        self.whole = bar(total=1.0, bar_format=shape, smoothing=0, miniters=0, disable=disable)
        self._places: dict[str, tuple[float, float]] = {}

    def expect(self, start: float, end: float, parts: Mapping[str, float]) -> None:
        """Declare which parts take the shares `start` to `end` of the run.

        Args:
            start: Share of the run before these parts, 0 to 1.
            end: Share of the run after them.
            parts: Name of each part -> how long it takes, in any unit.
        """
        unit = (end - start) / sum(parts.values())
        for name, time in parts.items():
            self._places[name] = start, start + unit * time
            start += unit * time

    def __call__(self, *, desc: str, total: int, **_: Any) -> Part:
        """Start a part of that many items; a context manager that ends it."""
        start, end = self._places.get(desc, (self.whole.n, self.whole.n))
        if not self.whole.disable:  # a disabled tqdm counts nothing
            self.whole.initial += max(0.0, start - self.whole.n)
        return Part(self.whole, desc, total, start, end)


class Part:
    """A part of a run, from the share `start` to the share `end`. `n`: the number of items that are done."""

    def __init__(self, whole: tqdm, name: str, total: int, start: float, end: float) -> None:
        self._whole, self._name, self._total = whole, name, total
        self._start, self._end, self.n = start, end, 0

    def __enter__(self) -> Part:
        self.update(0)
        self._whole.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._whole.refresh()

    def update(self, n: int) -> None:
        """Count that many more items as done."""
        self.n += n
        share = self.n / self._total if self._total else 1.0
        self._whole.desc = f"{self._name}: {self.n:,} of {self._total:,}"
        self._whole.update(max(0.0, self._start + share * (self._end - self._start) - self._whole.n))


BarMaker = type[tqdm] | RunBar
"""A function that makes a bar: called with `desc` and `total`, it returns a context with `update(n)`."""
