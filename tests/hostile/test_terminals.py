"""Terminals that know no UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.results_sample import write_model

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from batch.options import run
from ccs import results
from ccs.errors import InputError
from ccs.texts import pools

def work():
    found = results.load(Path(sys.argv[1]))
    texts = pools.load_pool("world").texts
    print(len(texts), sorted(found.models), "müß 桜 \U0001f600")
    raise InputError("größer als 桜")

sys.exit(run(work))
"""


def test_a_terminal_without_utf_8_gets_the_same(tmp_path: Path) -> None:
    write_model(tmp_path / "results", "m-ü", only=("spans",))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    said = {}
    for name, locale in {"utf": "C.UTF-8", "C": "C", "Turkish": "tr_TR.ISO-8859-9"}.items():
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": locale, "OMP_NUM_THREADS": "1"}
        if name != "utf":
            environment |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        environment.pop("PYTHONIOENCODING", None)
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / "results")],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 2, done.stderr.decode("utf-8", "replace")
        assert b"Traceback" not in done.stderr
        said[name] = done.stdout.decode("utf-8").encode("ascii", "backslashreplace")
    escaped = said["C"]
    assert b"m\\xfc\\xdf" in escaped
    assert said["Turkish"] == escaped
    assert said["utf"].split()[:1] == escaped.split()[:1]
