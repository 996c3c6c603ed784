"""The Space in a fresh environment. Long, on the network: `pytest --weekly tests/hostile/test_space.py`."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


_WITH = {"pydantic_core": "pydantic"}
"""Modules that are a part of another distribution that is asked for."""


@pytest.mark.parametrize(
    ("file", "extra"), [("requirements.txt", "all"), ("locks/all.txt", "all"), ("locks/test.txt", "test")]
)
def test_one_version_of_all_that_is_imported_is_written_down(file, extra):
    """A lock has what the package and its extra ask for, with hashes where `./run` installs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    entries = (ROOT / file).read_text("utf-8").replace(" \\\n", " ").splitlines()
    assert all("--hash=sha256:" in entry for entry in entries) == file.startswith("locks/")
    pinned = [Requirement(entry.partition(" --hash")[0]) for entry in entries]
    for one in map(Requirement, {*project["dependencies"], *of_extras(project, {extra})}):
        name = canonicalize_name(one.name)
        versions = [next(iter(pin.specifier)) for pin in pinned if canonicalize_name(pin.name) == name]
        assert versions, one
        assert all(each.operator == "==" and one.specifier.contains(each.version) for each in versions)


def test_what_is_imported_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = {*project["dependencies"], *of_extras(project, {"all", "plot", "onnx", "mat"})}
    names = {canonicalize_name(Requirement(line).name) for line in lines}
    distributions = packages_distributions() | {"google": ["google-genai"]}
    for path in (ROOT / "app.py", *(ROOT / "ccs").rglob("*.py")):
        for name in imported(path) - {"ccs", "_typeshed"} - sys.stdlib_module_names:
            known = {canonicalize_name(one) for one in distributions[_WITH.get(name, name)]}
            assert known & names, f"{path} imports {name}"


def of_extras(project, extras):
    """The requirements of the project's extras, other extras among them resolved."""
    for line in (line for extra in extras for line in project["optional-dependencies"][extra]):
        asked = Requirement(line)
        yield from of_extras(project, asked.extras) if asked.name == project["name"] else [line]


def imported(path):
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
def test_requirements_alone_run_the_space_and_every_command():
    subprocess.run([ROOT / "scripts" / "check_space.sh"], check=True)
