"""The wheel: what is in it, what works without its extras, and what is said of what does not."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ccs.batch import command_line
from scripts import check_version, check_wheel

ROOT = Path(__file__).parents[1]
GIT = (ROOT / ".git").exists()
"""False in an archive of the source."""
README = (ROOT / "README.md").read_text("utf-8")
SNIPPET, SAID = re.findall(r"^```(?:python|text)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
MODULES = {"google-genai": "google.genai"}  # where the name is another
NEEDED = {"httpx2", "jinja2", "markupsafe"}  # by torch and huggingface_hub themselves
BLOCKED = """
import sys
from importlib.machinery import PathFinder

class Blocked(PathFinder):
    names = {names!r}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in cls.names else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Blocked
"""
"""A module that hides the packages of the extras from an environment that has them."""


def _modules(project, *extras):
    wanted = {Requirement(line).name for extra in extras for line in project["optional-dependencies"][extra]}
    return {MODULES.get(name, name.replace("-", "_")) for name in wanted - {"clip-ccs"}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the files that git knows; where there is no git, of all."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    if GIT:
        packed = subprocess.check_output(["git", "archive", "HEAD"], cwd=ROOT)
        subprocess.run(["tar", "xf", "-"], cwd=source, input=packed, check=True)
    else:
        for name in ("pyproject.toml", "LICENSE", "NOTICE", "docs/pypi.md"):
            (source / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source / name)
        for name in ("ccs", "precomputed"):
            shutil.copytree(ROOT / name, source / name, symlinks=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def alone(wheel, tmp_path_factory):
    """The Python of an environment with the wheel and its required packages, those of the extras hidden."""
    return _environment(tmp_path_factory.mktemp("alone"), wheel, "all", "app", "data", "judges", "report")


def _environment(folder, wheel, *extras):
    """The Python of an environment with the wheel, in which these extras' packages are hidden."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    required = {Requirement(line).name for line in project["dependencies"]}
    names = _modules(project, *extras) - required - NEEDED
    # Through a .pth: Debian's Python has a sitecustomize of its own, which an environment's does not replace.
    (site / "hidden_packages.py").write_text(BLOCKED.format(names=names), "utf-8")
    ours = Path(find_spec("torch").origin).parents[1]
    (site / "ours.pth").write_text(f"{ours}\nimport hidden_packages\n", "utf-8")
    return folder / "bin" / "python"


def _run(python, code, folder):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_readmes_snippet_runs_on_the_wheel_and_the_extra_that_is_named(wheel, tmp_path):
    assert "`pip install '.[data]'`" in README
    done = _run(_environment(tmp_path / "data", wheel, "all", "app", "judges", "report"), SNIPPET, tmp_path)
    assert done.stdout == SAID, done.stderr


def test_the_library_works_without_any_extra(alone, tmp_path):
    code = (
        "import ccs; from PIL import Image; model = ccs.load('organism');"
        "off = ccs.HeadSet.parse('L7.H1'); image = Image.new('RGB', (64, 64), 'red');"
        "moments = ccs.collect_moments(model, [[image] * 8]); texts = ['red', 'a dog', 'blue'];"
        "spans = ccs.textspan(moments, texts, model.embed_texts(texts), k=2);"
        "print(ccs.__file__, *model.embed_images([image], off).shape, len(spans[ccs.Head(7, 1)]))"
    )
    done = _run(alone, code, tmp_path)
    assert done.returncode == 0, done.stderr
    where, *rest = done.stdout.splitlines()[-1].split()  # what packages say comes before
    assert Path(where).is_relative_to(alone.parents[1])
    assert rest == ["1", "160", "2"]


def test_what_an_extra_holds_names_it(alone, tmp_path):
    code = """
from pathlib import Path
from ccs.batch.command_line import main
from ccs.errors import MissingExtra
from ccs.measures.agreement import krippendorff_alpha
from ccs.sets.clips import frames
from ccs.world.scene import glyph

for ask in (lambda: glyph("dog_face", 8), lambda: frames(Path("a.mp4"), 1),
            lambda: krippendorff_alpha([[1, 2], [1, 1]]), lambda: __import__("ccs.ui.server")):
    try:
        ask()
    except MissingExtra as error:
        print(error)
raise SystemExit(main(["app"]))
"""
    done = _run(alone, code, tmp_path)
    extras = re.findall(r"run `pip install 'clip-ccs\[(\w+)\]'`\.$", done.stdout, re.MULTILINE)
    assert extras == ["data", "data", "judges", "app"], done.stderr
    assert done.returncode == 2
    assert done.stderr.startswith("error: The app needs the package gradio, which is not installed: run ")


def test_the_wheel_holds_what_ships(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tables = {f"ccs/precomputed/organism/{file}" for file in ("manifest.json", "bias.parquet")}
    assert {"ccs/py.typed", *tables} <= names
    assert check_wheel.top_level(wheel) == {"ccs"}
    if GIT:
        known = subprocess.check_output(["git", "ls-files", "ccs"], cwd=ROOT, text=True).split()
    else:
        known = [
            str(one.relative_to(ROOT)) for one in ROOT.glob("ccs/**/*") if one.parent.name != "__pycache__"
        ]
    missing = [path for path in known if path not in names and (ROOT / path).is_file()]
    assert missing == []


def test_versions_agree():
    """Those of changelog, citation, pyproject.toml and a tag; and ruff's where a commit is checked."""
    assert check_version.disagreements() == []
    assert [line.partition(" has ")[0] for line in check_version.disagreements("v9.9.9")][:1] == ["The tag"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert f"ruff=={re.search(r'rev: v(.+)', hooks)[1]}" in project["optional-dependencies"]["test"]


def test_the_command_line_fits_a_screen(capsys):
    assert command_line.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert all(find_spec(module) for module, _ in command_line.COMMANDS.values())
