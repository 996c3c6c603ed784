"""The real app.py in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@contextmanager
def started(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The app's address, and what it said before it named it."""
    command = [sys.executable, "-u", "app.py"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as app:
        assert app.stdout is not None
        said = ""
        for line in app.stdout:
            said += line
            if match := re.search(r"Open (http\S+)", line):
                yield match[1], said
                app.terminate()
                return
    pytest.fail(f"app.py ended: {said}")
