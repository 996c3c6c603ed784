"""Terminals that know no UTF-8."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
from ccs.batch.command_line import run
from ccs.errors import InputError

def work():
    print("müß 桜")
    raise InputError("größer als 桜")

raise SystemExit(run(work))
"""


def test_a_terminal_without_utf_8_gets_escapes():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"m\\xfc\\xdf \\u685c\n")
    assert done.stderr == b"error: gr\\xf6\\xdfer als \\u685c\n"
