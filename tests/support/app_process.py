"""The real app.py in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def started(
    env: Mapping[str, str], command: Sequence[str] = (sys.executable, "-u", "app.py"), folder: Path = ROOT
) -> Iterator[tuple[str, str]]:
    """The app's address, and what it said before it named it."""
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as app:
        assert app.stdout is not None
        said = ""
        for line in app.stdout:
            said += line
            if match := re.search(r"Open (http\S+)", line):
                try:
                    yield match[1], said
                finally:
                    app.terminate()
                return
    raise AssertionError(f"app.py ended: {said}")
