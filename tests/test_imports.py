"""The house stays as docs/architecture.md draws it: imports go one way, in no circles, folders stay small."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
MODULES = 12
"""At most so many in a folder, __init__ and __main__ apart."""


def test_imports_go_one_way() -> None:
    # In a process of its own: import-linter's logging configuration silences every logger that is there.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = grimp.build_graph("ccs", cache_dir=None)
    TopologicalSorter({one: graph.find_modules_directly_imported_by(one) for one in graph.modules}).prepare()


def test_a_folder_holds_few_modules() -> None:
    paths = list((ROOT / "ccs").rglob("*.py"))
    counts = Counter(
        path.parent.relative_to(ROOT) for path in paths if path.stem not in ("__init__", "__main__")
    )
    assert {str(folder): count for folder, count in counts.items() if count > MODULES} == {}
