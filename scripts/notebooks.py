"""Run the notebooks of docs/ and save their outputs: `python -m scripts.notebooks [NAME ...]`.

The picture of the cell tagged "picture" becomes the attachment `result.png` of the first cell.
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
PICTURE = "result.png"
SECONDS = 120
"""Time limit of a notebook on two cores."""


def run_notebook(path: Path, seconds: float = SECONDS) -> nbformat.NotebookNode:
    """Run a notebook and return it with its outputs and picture.

    Args:
        path: The notebook.
        seconds: Time limit of a cell.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    book = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(book, timeout=seconds, resources=resources, record_timing=False).execute()
    book.metadata = {"kernelspec": book.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in book.cells:
        if cell.cell_type == "code":  # progress bars
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        if "picture" in cell.metadata.get("tags", ()):
            (picture,) = (
                output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})
            )
            book.cells[0].attachments = {PICTURE: {"image/png": picture}}
    return book


def main(names: Sequence[str]) -> None:
    """Run the notebooks with these names, or all."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            start = time.monotonic()
            text = nbformat.writes(run_notebook(path, 10 * SECONDS))
            path.write_text(text.rstrip() + "\n", "utf-8")
            print(f"{path.name}: {time.monotonic() - start:.0f} s, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
