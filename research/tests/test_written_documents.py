"""The parts of a clone's documents that programs write."""

from pathlib import Path

from ccs import results
from research.paper import __main__ as docs


def test_the_counts_in_the_documents_are_those_of_the_audit():
    assert docs.counts() in Path("research/paper/audit.md").read_text()


def test_documents_of_a_clone_are_updated(tmp_path, monkeypatch):
    """Each document is written again from its results.

    Args:
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    marked = "<!-- audit: written by python -m research.paper -->\nold\n<!-- end of audit -->\n"
    (tmp_path / "audit.md").write_text(marked)
    monkeypatch.setattr(docs, "AUDIT", tmp_path / "audit.md")
    monkeypatch.setattr(docs, "DOCS", tmp_path)
    monkeypatch.setattr(docs.results, "load", lambda: results.Collection({}, "nowhere"))
    assert docs.main([]) == 0
    assert "With equal numbers" in (tmp_path / "audit.md").read_text()
