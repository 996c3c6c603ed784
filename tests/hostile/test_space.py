"""The Space in a fresh environment. Long, on the network: `pytest --weekly tests/hostile/test_space.py`."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_the_space_asks_for_the_package_with_two_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    extras = project["optional-dependencies"]
    wanted = {*project["dependencies"], *extras["app"], *extras["data"]}
    assert {line for line in lines if not line.startswith("#")} == {
        line for line in wanted if Requirement(line).name != project["name"]
    }


@pytest.mark.weekly
@pytest.mark.timeout(3600)
def test_requirements_alone_start_the_space() -> None:
    subprocess.run([ROOT / "scripts" / "check_space.sh"], check=True)
