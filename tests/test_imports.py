"""The house stays as docs/architecture.md draws it: imports go one way, in no circles."""

import ast
import os
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

from tests.support.app_process import ROOT, run_python


def test_imports_go_one_way():
    # In a process of its own: import-linter's logging configuration silences every logger that is there.
    command = Path(sys.executable).with_name("lint-imports"), "--no-cache"
    run_python(*command, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmark'}"})


def test_no_module_imports_itself_in_a_circle():
    graph = grimp.build_graph("ccs", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imported).prepare()


def test_what_scripts_benchmarks_and_research_import_of_the_product_is_there():
    """Some run once a month, and import in functions, where nobody would notice a name that has moved."""
    for folder in ("scripts", "benchmark", "benchmarks", "research"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ccs"):
                    exec(compile(ast.unparse(node), str(file), "exec"), {})
