"""README and docs: their commands parse, their links and examples work, and the demo runs."""

import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.utils.yaml import yaml_load

import ccs
from ccs.cli import command_line
from ccs.results import schema
from scripts import notebooks, reference_pages, site_pages
from tests.support.processes import ROOT, start_app
from tests.support.visitor import Visitor

DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
# Commands of other programs:
EXTERNAL = (
    "pip",
    "git",
    "ollama",
    "echo",
    "export",
    "for",
    "done",
    "hf",
    "./run ruff",
    "./run mkdocs",
)


def read_commands():
    """Read the commands in all fenced shell blocks, without leading variable assignments."""
    words_by_command = {}
    fenced = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    for path in DOCUMENTS:
        blocks = fenced.findall(path.read_text("utf-8"))
        shell = "".join(block for language, block in blocks if language in ("", "sh", "bash"))
        for line in shell.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words and words[0] not in EXTERNAL and shlex.join(words[:2]) not in EXTERNAL:
                words_by_command.setdefault(f"{path.name}: {shlex.join(words)}", tuple(words))
    return words_by_command


COMMANDS = read_commands()


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if not name.endswith(("run demo", "run test", "--version"))]
)
def test_documented_command_parses(command):
    words = [word for word in COMMANDS[command] if word != "..."]
    if words[0] == "clip-ccs":
        command_line.command(words[1]).parse(words[2:])
    else:  # python, torchrun and accelerate run modules alike
        _, name, *argv = words[words.index("-m") :]
        module = importlib.import_module(name)
        module = module if hasattr(module, "main") else importlib.import_module(f"{name}.__main__")
        module.main.parse(argv)


def test_document_links_and_variables_exist():
    code = "".join(path.read_text("utf-8") for path in (ROOT / "ccs").rglob("*.py"))
    for path in (*DOCUMENTS, ROOT / "CHANGELOG.md", ROOT / "docs" / "llms.txt"):
        text = path.read_text("utf-8")
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            exists = link.startswith(("http:", "https:")) or (path.parent / link).exists()
            assert exists, f"{path.name}: {link}"
        variables = set(re.findall(r"\bCCS_[A-Z]+\b", text))
        assert {name for name in variables if f'"{name}"' not in code} == set(), path.name


def test_options_page_lists_every_option():
    table = (ROOT / "docs" / "options.md").read_text("utf-8")
    rows = re.findall(r"^\| `--([\w-]+)` \| ([\w, ]+) \| .+ \|$", table, re.MULTILINE)
    documented = {(command, option) for option, commands in rows for command in commands.split(", ")}
    existing = set()
    for section in f"\n{reference_pages.command_reference()}".split("\n## ")[1:]:
        name = section.split("\n", 1)[0].removeprefix("clip-ccs ")
        for usage in re.findall(r"^\* `([^`]+)`", section, re.MULTILINE):
            existing |= {(name, option) for option in re.findall(r"--([a-z][\w-]*)", usage)}
    assert documented == existing


REVIEW = (ROOT / "docs" / "independent-checks.md").read_text("utf-8")


@pytest.mark.parametrize("section", REVIEW.split("\n## ")[1:], ids=lambda section: section.partition("\n")[0])
def test_independent_check_prints_documented_output(section, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "organism-whole" in section:
        assert "clip-ccs export --model organism --out organism-whole" in REVIEW
        assert command_line.main(["export", "--model", "organism", "--out", "organism-whole"]) == 0
        capsys.readouterr()
    code, expected = re.findall(r"^```(?:python|text)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    exec(compile(code, "script", "exec"), {})
    assert capsys.readouterr().out == expected


def read_output(cell):
    """Read the text output of a notebook cell, without images and progress bars."""
    outputs = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
    return "".join(output.get("text") or output.data["text/plain"] for output in outputs)


@pytest.mark.weekly
@pytest.mark.parametrize("path", sorted(notebooks.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_reproduces_stored_outputs(path):
    executed, stored = notebooks.run_notebook(path), nbformat.read(path, 4)
    assert [*map(read_output, executed.cells)] == [*map(read_output, stored.cells)]
    assert stored.cells[0].attachments[notebooks.PICTURE]["image/png"]


@pytest.fixture
def clone(tmp_path):
    """Make a copy of the repository, with symbolic links, that uses the current environment."""
    folder = tmp_path / "clone"
    (folder / ".venv").mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in (".venv", ".git", "results"):
            (folder / path.name).symlink_to(path)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (folder / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    stamp = "cat pyproject.toml benchmark/pyproject.toml locks/all.txt | cksum > .venv/.installed-all"
    subprocess.run(stamp, shell=True, cwd=folder, check=True)  # without it, ./run installs again
    return folder


def test_demo_computes_tables_and_opens_app(clone):
    assert "README.md: ./run demo" in COMMANDS
    small = ("--max-images", "4", "--workers", "0", "--suite", "none")
    started = start_app(os.environ, ["./run", "demo", *small], clone)
    with started as (address, output), Visitor(address) as page:
        assert (clone / "results" / "organism" / "scores.parquet").is_file()
        bundled_model = page.open(model="organism-control", tab="paradox")["left"]
        assert " of 5, " in bundled_model  # its tables are still there
        for path in ("api", "gradio_api/mcp/"):
            assert f"{address}{path}" in output


@pytest.mark.filterwarnings("ignore")  # of MkDocs and its plugins
def test_site_builds_strictly_with_all_public_names(tmp_path):
    """Build the site as .github/workflows/site.yml does, without the search index, which takes long."""
    file = ROOT / "mkdocs.yml"
    plugins = [plugin for plugin in yaml_load(file.read_text("utf-8"))["plugins"] if plugin != "search"]
    options = {"strict": True, "repo_url": "https://example.org/clip-ccs", "plugins": plugins}
    build(load_config(str(file), site_dir=str(tmp_path), **options))
    page = (tmp_path / "reference" / "index.html").read_text("utf-8")
    assert {name for name in ccs.__all__ if f'id="ccs.{name}"' not in page} == set()
    page = (tmp_path / "tables" / "index.html").read_text("utf-8")
    columns = {column.name for table in schema.TABLES.values() for column in table.columns}
    assert {name for name in columns if f"<td>{name}</td>" not in page} == set()
    page = (tmp_path / "commands" / "index.html").read_text("utf-8")
    assert {name for name in command_line.COMMANDS if f"clip-ccs {name} " not in page} == set()


SLOW = {"compare", "localize", "mitigate", "search"}
"""Functions that take minutes; tests/analysis tests them."""
NAMES = sorted({name for name in ccs.__all__ if not name.endswith("Table")} - SLOW)
MODULES = [name for modules in site_pages.MODULES.values() for name in modules]
PASSED_EXAMPLES = set()
MODULES.remove("ccs.analysis.carriers")  # its example calls localize


@pytest.mark.parametrize("name", [*NAMES, *MODULES])
def test_public_name_has_passing_doctest(name):
    documented = getattr(ccs, name) if name in NAMES else importlib.import_module(name)
    scope = {public: getattr(ccs, public) for public in ccs.__all__} if name in NAMES else None
    tests = [test for test in doctest.DocTestFinder().find(documented, name, globs=scope) if test.examples]
    assert tests
    for test in tests:
        # Objects of a module that `ccs` exports run as cases of `ccs`.
        of_ccs = name not in NAMES and test.name.removeprefix(f"{name}.").split(".")[0] in NAMES
        examples = {(example.source, example.want) for example in test.examples}
        if not of_ccs and not examples <= PASSED_EXAMPLES:
            assert not doctest.DocTestRunner().run(test).failed, test.name
            PASSED_EXAMPLES.update(examples)
