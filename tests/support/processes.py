"""Processes of their own: Python, and the real app.py."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(*arguments, cwd=ROOT, env=os.environ):
    """Run Python to its end, which must be a success.

    Args:
        *arguments: Its arguments.
        cwd: Working directory.
        env: Environment of the process.

    Returns:
        What it printed.
    """
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@contextmanager
def start_app(env, command=(sys.executable, "-u", "app.py"), folder=ROOT):
    """Start the real app and stop it at the end.

    Args:
        env: Environment of the process.
        command: Command line.
        folder: Working directory.

    Yields:
        The app's address, and what it printed before.
    """
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as app:
        output = ""
        for line in app.stdout:
            output += line
            if match := re.search(r"Open (http\S+)", line):
                output += app.stdout.readline() + app.stdout.readline()  # of the API and of MCP
                try:
                    yield match[1], output
                finally:
                    app.terminate()
                assert app.wait(60) == 0  # whatever it is at
                return
    raise AssertionError(f"app.py ended: {output}")
