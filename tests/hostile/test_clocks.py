"""Clocks that are wrong, and terminals and files that know no UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ccs
from ccs import results
from ccs.judges.cache import Cache
from ccs.judges.provider import Usage
from ccs.model.model import Model
from tests.support.results_sample import write_model
from tests.support.spoil import says

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef" * 4
YEARS = {"before 1970": -(10**9), "1970": 0, "after 2038": 2**31 + 5, "2500": 16_725_225_600}


@pytest.mark.parametrize("year", YEARS)
def test_the_time_of_files_and_of_the_clock_changes_nothing(
    year: str, tiny_folder: Path, tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path / "results", "m", only=("spans",))
    with Cache(tmp_path / "judges.sqlite") as cache:
        cache.put(KEY, "tags", {"verdicts": [True]}, Usage(1, 1))
    monkeypatch.setattr(time, "time", lambda: float(YEARS[year]))  # back or forth, while all is in use
    for path in (*folder.iterdir(), *tiny_folder.iterdir(), tmp_path / "judges.sqlite"):
        os.utime(path, (YEARS[year], YEARS[year]))
    assert set(results.load(tmp_path / "results").models) == {"m"}
    assert ccs.load(str(tiny_folder)).weights_hash == tiny_model.weights_hash
    with Cache(tmp_path / "judges.sqlite") as cache:
        cache.put(KEY[::-1], "tags", {"verdicts": [False]}, Usage(1, 1))
        assert cache.get(KEY) == {"verdicts": [True]}
        assert cache.get(KEY[::-1]) == {"verdicts": [False]}


@pytest.mark.parametrize(
    "created", ["1969-12-31T23:59:59+00:00", "2038-01-19T03:14:08+00:00", "9999-12-31T23:59:59+00:00", "no"]
)
def test_a_manifest_of_any_day_is_read(created: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m", only=("spans",))
    says("manifest.json", created=created)(folder)
    assert results.load(tmp_path).models["m"].manifest["created"] == created


# -- locales -------------------------------------------------------------------------------------------------

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
