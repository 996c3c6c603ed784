"""Run the notebooks of docs/ and write their outputs and pictures: `python -m scripts.notebooks [NAME ...]`.

A notebook opens with the picture of its result: that of the cell with the tag "picture", which is put into
the first cell as its attachment `result.png`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
PICTURE, SECONDS = "result.png", 120
"""The longest that a notebook may take, on two cores."""


def executed(path: Path, seconds: float = SECONDS) -> nbformat.NotebookNode:
    """The notebook with what its cells print, and its picture. Raises what nbclient raises of a cell."""
    book = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(book, timeout=seconds, resources=resources, record_timing=False).execute()
    book.metadata = {"kernelspec": book.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in book.cells:
        if cell.cell_type == "code":  # a bar is for who waits
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        if "picture" in cell.metadata.get("tags", ()):
            (picture,) = (one.data["image/png"] for one in cell.outputs if "image/png" in one.get("data", {}))
            book.cells[0].attachments = {PICTURE: {"image/png": picture}}
    return book


def main(names: Sequence[str]) -> None:
    """Run those of these names, or all."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            start = time.monotonic()
            text = nbformat.writes(executed(path, 10 * SECONDS))
            path.write_text(text.rstrip() + "\n", "utf-8")
            print(f"{path.name}: {time.monotonic() - start:.0f} s, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
