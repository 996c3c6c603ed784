"""The house stays as docs/architecture.md draws it: imports go one way, in no circles."""

import ast
import importlib
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]


def test_imports_go_one_way():
    # In a process of its own: import-linter's logging configuration silences every logger that is there.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmark'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_itself_in_a_circle():
    graph = grimp.build_graph("ccs", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imported).prepare()


def test_what_scripts_benchmarks_and_research_import_of_the_product_is_there():
    """Some run once a month, and import in functions, where nobody would notice a name that has moved."""
    gone, folders = [], ("scripts", "benchmark", "benchmarks", "research")
    for file in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("ccs"):
                continue
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names if not hasattr(module, alias.name)):
                try:
                    importlib.import_module(f"{node.module}.{name}")
                except ModuleNotFoundError:
                    gone.append(f"{file.relative_to(ROOT)}: {node.module}.{name}")
    assert not gone
