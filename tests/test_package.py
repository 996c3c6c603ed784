"""The wheel: its files, its dependencies, and errors about missing extras."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import check_version, check_wheel
from tests.support.processes import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
SNIPPET, SNIPPET_OUTPUT = re.findall(r"^```(?:python|text)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
REQUIRED = {"httpx2", "jinja2", "markupsafe"}  # by torch and huggingface_hub
PROGRAM = """
import sys
from pathlib import Path
from PIL import Image
import ccs
from ccs.cli.command_line import main
from ccs.errors import MissingExtra
from ccs.metrics.agreement import krippendorff_alpha
from ccs.data.clips import frames
from ccs.synthetic.scene import glyph

model, image = ccs.load("organism"), Image.new("RGB", (64, 64), "red")
off, texts = ccs.HeadSet.parse("L7.H1"), ["red", "a dog", "blue"]
spans = ccs.textspan(ccs.collect_moments(model, [[image] * 8]), texts, model.embed_texts(texts), k=2)
print(ccs.__file__, *model.embed_images([image], off).shape, len(spans[ccs.Head(7, 1)]))
for call in (lambda: glyph("dog_face", 8), lambda: frames(Path("a.mp4"), 1),
             lambda: krippendorff_alpha([[1, 2], [1, 1]]), lambda: __import__("ccs.app.server")):
    try:
        call()
    except MissingExtra as error:
        print(error)
for name in {names!r}:
    del sys.modules[name]
exec({snippet!r})
raise SystemExit(main(["app"]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "LICENSE", "NOTICE", "docs/pypi.md"):
        (source / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    for name in ("ccs", "precomputed"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return next(out.glob("*.whl"))


def modules_of(*extras):
    """List the modules that only these extras install."""
    of_extras, always = ({requirement.name for requirement in _requirements(of)} for of in (extras, ()))
    return {name.replace("-", "_") for name in of_extras - always} - REQUIRED


def test_wheel_without_extras_names_missing_extra(wheel, tmp_path):
    """Hide the packages of all extras, then of all except `data`."""
    assert "`pip install '.[data]'`" in README
    other_extras = ("all", "app", "judges", "report")
    venv.create(tmp_path / "alone", symlinks=True)
    site = next(tmp_path.glob("alone/lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    # In a .pth file, because an environment can't replace Debian's own sitecustomize.
    hide = f"import sys; sys.modules.update(dict.fromkeys({modules_of('data', *other_extras)!r}))"
    (site / "packages.pth").write_text(f"{Path(find_spec('torch').origin).parents[1]}\n{hide}\n", "utf-8")
    data_modules = modules_of("data", *other_extras) - modules_of(*other_extras)
    command = [tmp_path / "alone/bin/python", "-c", PROGRAM.format(names=data_modules, snippet=SNIPPET)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout.endswith(SNIPPET_OUTPUT), done.stderr
    location, *shape = re.search(r"^(\S+ccs/__init__.py) (.+)$", done.stdout, re.MULTILINE)[0].split()
    assert Path(location).is_relative_to(tmp_path)
    assert shape == ["1", "160", "2"]
    extras = re.findall(r"run `pip install 'clip-ccs\[(\w+)\]'`\.$", done.stdout, re.MULTILINE)
    assert extras == ["data", "data", "judges", "app"], done.stderr
    assert done.stderr.startswith("error: The app needs the package gradio, which is not installed: run ")


def test_wheel_contains_package_files(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tables = {f"ccs/precomputed/organism/{file}" for file in ("manifest.json", "bias.parquet")}
    assert {"ccs/py.typed", *tables} <= names
    assert check_wheel.top_level(wheel) == {"ccs"}
    files = [path for path in ROOT.glob("ccs/**/*") if path.is_file() and path.parent.name != "__pycache__"]
    assert {str(path.relative_to(ROOT)) for path in files} <= names


def test_versions_agree():
    """The changelog, citation, pyproject.toml, and a tag name one version."""
    assert check_version.version_problems() == []
    problems = check_version.version_problems("v9.9.9")
    assert [problem.partition(" has ")[0] for problem in problems][:1] == ["The tag"]


def test_imported_packages_are_declared():
    extras = PROJECT["optional-dependencies"].keys() - {"docs", "test"}
    names = {canonicalize_name(requirement.name) for requirement in _requirements(extras)}
    distributions = packages_distributions() | {"pydantic_core": ["pydantic"]}
    external = {"include_external_packages": True, "exclude_type_checking_imports": True}
    graph = grimp.build_graph("ccs", cache_dir=None, **external)
    for name in set(filter(graph.is_module_squashed, graph.modules)) - sys.stdlib_module_names:
        importers = graph.find_modules_that_directly_import(name)
        assert names & set(map(canonicalize_name, distributions[name])), f"{importers} import {name}"


def _requirements(extras):
    optional = map(PROJECT["optional-dependencies"].get, extras)
    requirements = map(Requirement, chain(PROJECT["dependencies"], *optional))
    return [requirement for requirement in requirements if requirement.name != PROJECT["name"]]


def test_files_named_in_workflows_exist():
    texts = [path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    paths = re.findall(r"(?<![\w/.])(?:tests|scripts|benchmark)/[\w/.]+", "\n".join(texts))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
