"""The progress of long work: a bar on a terminal, or a line of JSON per step for a program that reads it."""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm


class JsonLines(tqdm):  # type: ignore[misc]
    """A bar that is told on stderr as `{"step": "moments", "done": 40, "total": 1000}`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.step = str(options.get("desc") or "")
        super().__init__(*args, **{**options, "disable": False, "leave": True, "mininterval": 0.5})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Tell how far it is; tqdm calls this instead of drawing."""
        print(
            json.dumps({"step": self.step, "done": self.n, "total": self.total}), file=sys.stderr, flush=True
        )


BAR: ContextVar[type[tqdm]] = ContextVar("BAR", default=tqdm)
"""What draws bars: tqdm, or `JsonLines`."""
