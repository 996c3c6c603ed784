"""What a Space needs of this repository."""

from __future__ import annotations

from pathlib import Path

from ccs.errors import InputError

_PARTS = (
    "README.md",
    "LICENSE",
    "NOTICE",
    "app.py",
    "requirements.txt",
    "pyproject.toml",
    "ccs",
    "precomputed",
    "docs",
)


def space_files(root: Path) -> dict[str, bytes]:
    """The files by path, without caches and what is hidden. Raises InputError where app.py is missing."""
    if not (root / "app.py").is_file():
        raise InputError(
            f"{root} holds no app.py, so there is no Space to publish; run this in the repository."
        )
    paths = [path for name in _PARTS for path in [root / name, *(root / name).rglob("*")] if path.is_file()]
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in paths
        if not any(
            part == "__pycache__" or part.startswith(".") or part.endswith(".tmp")
            for part in path.relative_to(root).parts
        )
    }
