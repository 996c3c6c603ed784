"""Imports follow the layers of docs/architecture.md, without circles."""

import ast
import os
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

from tests.support.processes import ROOT, run_python


def test_imports_follow_layers():
    # In a subprocess, because import-linter's logging configuration disables all existing loggers.
    command = Path(sys.executable).with_name("lint-imports"), "--no-cache"
    run_python(*command, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmark'}"})


def test_no_circular_imports():
    graph = grimp.build_graph("ccs", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imported).prepare()


def test_imports_of_scripts_and_documents_resolve():
    """Some run once a month and import in functions, so a renamed import would go unnoticed."""
    folders = ("scripts", "benchmark", "benchmarks", "research")
    sources = [path.read_text("utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py")]
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        sources += re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ccs"):
            exec(ast.unparse(node), {})
