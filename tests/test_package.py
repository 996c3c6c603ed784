"""The wheel: what is in it, what works without its extras, what is said of what does not; the Space."""

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
SNIPPET, SAID = re.findall(r"^```(?:python|text)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
NEEDED = {"httpx2", "jinja2", "markupsafe"}  # by torch and huggingface_hub themselves
ALONE = """
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
for ask in (lambda: glyph("dog_face", 8), lambda: frames(Path("a.mp4"), 1),
            lambda: krippendorff_alpha([[1, 2], [1, 1]]), lambda: __import__("ccs.app.server")):
    try:
        ask()
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


def hidden(*extras):
    """The modules that these extras bring."""
    wanted, always = ({requirement.name for requirement in _requirements(of)} for of in (extras, ()))
    return {name.replace("-", "_") for name in wanted - always} - NEEDED


def test_the_library_names_the_extra_that_is_needed_and_runs_the_readmes_snippet_with_it(wheel, tmp_path):
    """On the wheel, where the packages of all extras are hidden, then of all but data's."""
    assert "`pip install '.[data]'`" in README
    others = ("all", "app", "judges", "report")
    venv.create(tmp_path / "alone", symlinks=True)
    site = next(tmp_path.glob("alone/lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    # Through a .pth: Debian's Python has a sitecustomize of its own, which an environment's does not replace.
    hide = f"import sys; sys.modules.update(dict.fromkeys({hidden('data', *others)!r}))"
    (site / "ours.pth").write_text(f"{Path(find_spec('torch').origin).parents[1]}\n{hide}\n", "utf-8")
    of_data = hidden("data", *others) - hidden(*others)
    command = [tmp_path / "alone/bin/python", "-c", ALONE.format(names=of_data, snippet=SNIPPET)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout.endswith(SAID), done.stderr
    location, *shape = re.search(r"^(\S+ccs/__init__.py) (.+)$", done.stdout, re.MULTILINE)[0].split()
    assert Path(location).is_relative_to(tmp_path)
    assert shape == ["1", "160", "2"]
    extras = re.findall(r"run `pip install 'clip-ccs\[(\w+)\]'`\.$", done.stdout, re.MULTILINE)
    assert extras == ["data", "data", "judges", "app"], done.stderr
    assert done.stderr.startswith("error: The app needs the package gradio, which is not installed: run ")


def test_the_wheel_holds_what_ships(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tables = {f"ccs/precomputed/organism/{file}" for file in ("manifest.json", "bias.parquet")}
    assert {"ccs/py.typed", *tables} <= names
    assert check_wheel.top_level(wheel) == {"ccs"}
    ours = [path for path in ROOT.glob("ccs/**/*") if path.is_file() and path.parent.name != "__pycache__"]
    assert {str(path.relative_to(ROOT)) for path in ours} <= names


def test_versions_agree():
    """Those of changelog, citation, pyproject.toml and a tag."""
    assert check_version.version_problems() == []
    problems = check_version.version_problems("v9.9.9")
    assert [problem.partition(" has ")[0] for problem in problems][:1] == ["The tag"]


def test_what_is_imported_is_asked_for():
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


def test_files_that_workflows_name_exist():
    texts = [path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    paths = re.findall(r"(?<![\w/.])(?:tests|scripts|benchmark)/[\w/.]+", "\n".join(texts))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
