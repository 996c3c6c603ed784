"""The Space in a fresh environment. Long, on the network: `pytest --weekly tests/hostile/test_space.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


_WITH = {"pydantic_core": "pydantic"}
"""Modules that are a part of another distribution that is asked for."""


def test_the_space_asks_for_all_that_is_imported() -> None:
    """requirements.txt is the package with all of its extras for users, and among it is every import."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()[1:]
    assert set(lines) == {*project["dependencies"], *of_extras(project, {"all"})}
    asked = {canonicalize_name(Requirement(line).name) for line in lines}
    distributions = packages_distributions() | {"google": ["google-genai"]}
    for path in (ROOT / "app.py", *(ROOT / "ccs").rglob("*.py")):
        for name in imported(path) - {"ccs", "_typeshed"} - sys.stdlib_module_names:
            known = {canonicalize_name(one) for one in distributions[_WITH.get(name, name)]}
            assert known & asked, f"{path} imports {name}"


def of_extras(project: dict[str, Any], extras: set[str]) -> Iterator[str]:
    """The requirements of the project's extras, other extras among them resolved."""
    for line in (line for extra in extras for line in project["optional-dependencies"][extra]):
        asked = Requirement(line)
        yield from of_extras(project, asked.extras) if asked.name == project["name"] else [line]


def imported(path: Path) -> set[str]:
    """The first names of all modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.weekly
@pytest.mark.timeout(3600)
def test_requirements_alone_run_the_space_and_every_command() -> None:
    subprocess.run([ROOT / "scripts" / "check_space.sh"], check=True)
