"""The parts of docs/style.md that can be counted: filler names, docstrings, and phrases of the glossary."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = """
found one own asked said told given kept some every named called shown made seen each both rest about
most least first_one more less what how way with_ without all_ where it them
"""
FILLERS = frozenset(WORDS.split())
LIMITS = {"ccs": 0.5, "benchmark": 0.5, "research": 0.5, "tests": 0.5, "scripts": 0.5}
"""Filler names per 1,000 lines. The goal is 0.5; lower a limit with each rewrite, and never raise it."""
PHRASES = ("heads off", "switched off", "switch off", "that ships", "stand-in", "the study", "take apart")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md")
TEXTS = ("ccs/**/*.md", "ccs/**/*.toml", "ccs/**/*.txt", "ccs/paper/*.json")
DOCUMENTS = {path for page in (*PAGES, *TEXTS) for path in ROOT.glob(page)} - {ROOT / "docs" / "glossary.md"}

LOWER_CASE = re.compile(
    r"^( *)(?:Args|Attributes|Raises):\n(?:\1 {4}.*\n)*?\1 {4}[*\w][\w, ]*: [a-z].*|^ +Example:$", re.M
)
"""A section of a docstring with an entry that begins with a lower-case letter, or with another name."""


def filler_names(path):
    """Count the filler names that a module binds."""
    bound = Counter()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] += 1
        elif isinstance(node, ast.arg):
            bound[node.arg] += 1
        elif isinstance(node, ast.FunctionDef):
            bound[node.name] += 1
    return sum(count for name, count in bound.items() if name in FILLERS)


@pytest.mark.parametrize("package", LIMITS)
def test_filler_names_stay_within_limit(package):
    modules = list((ROOT / package).rglob("*.py"))
    lines = sum(path.read_text("utf-8").count("\n") for path in modules)
    assert 1000 * sum(map(filler_names, modules)) / lines <= LIMITS[package]


@pytest.mark.parametrize("package", [*LIMITS, "benchmarks"])
def test_docstring_entries_are_capitalized(package):
    texts = [path.read_text("utf-8") for path in (ROOT / package).rglob("*.py")]
    assert [match[0] for text in texts if (match := LOWER_CASE.search(text))] == []


@pytest.mark.parametrize("path", sorted(DOCUMENTS), ids=lambda path: path.name)
def test_documents_avoid_outdated_terms(path):
    text = path.read_text("utf-8").casefold()
    assert [phrase for phrase in PHRASES if phrase in text] == []
