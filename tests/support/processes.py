"""Subprocesses: Python, and the real app.py."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(*arguments, cwd=ROOT, env=os.environ):
    """Run Python in a subprocess and assert that it succeeds.

    Args:
        *arguments: Its arguments.
        cwd: Working directory.
        env: Environment of the process.

    Returns:
        Its standard output.
    """
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@contextmanager
def start_app(env, command=(sys.executable, "-u", "app.py"), folder=ROOT):
    """Start the app, and stop it at the end.

    Args:
        env: Environment of the process.
        command: Command line.
        folder: Working directory.

    Yields:
        The app's address, and its output so far.
    """
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as app:
        output = ""
        for line in app.stdout:
            output += line
            if match := re.search(r"Open (http\S+)", line):
                output += app.stdout.readline() + app.stdout.readline()  # addresses of the API and MCP
                try:
                    yield match[1], output
                finally:
                    app.terminate()
                assert app.wait(60) == 0
                return
    raise AssertionError(f"app.py ended: {output}")
