"""Generated parts of documents."""

from __future__ import annotations

from pathlib import Path

from ccs.files import read_text, write_text


def bring_up_to_date(document: Path, name: str, text: str, by: str) -> None:
    """Write a text between two markers of a document, if text, document, and markers exist.

    Args:
        document: A Markdown file.
        name: Name of the markers.
        text: The new text.
        by: The command that writes it, named by the first marker.
    """
    start, end = f"<!-- {name}: written by {by} -->", f"<!-- end of {name} -->"
    before, opening, following = (read_text(document) if document.is_file() else "").partition(start)
    _, closed, after = following.partition(end)
    if text and opening and closed:
        write_text(document, f"{before}{start}\n{text}\n{end}{after}")
