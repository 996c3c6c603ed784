"""The parts of documents that programs write."""

from __future__ import annotations

from pathlib import Path

from ccs.files import read_text, write_text


def bring_up_to_date(document: Path, name: str, text: str, by: str) -> None:
    """Write a text between two markers of a document; nothing without text, document, or markers.

    Args:
        document: a Markdown file.
        name: of the markers.
        text: the new text.
        by: the command that writes it, which the first marker names.
    """
    start, end = f"<!-- {name}: written by {by} -->", f"<!-- end of {name} -->"
    before, opening, following = (read_text(document) if document.is_file() else "").partition(start)
    _, closed, after = following.partition(end)
    if text and opening and closed:
        write_text(document, f"{before}{start}\n{text}\n{end}{after}")
