"""What a Space needs of this repository."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import open_clip

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


def space_files(root: Path, models: Iterable[str] = ()) -> dict[str, bytes]:
    """The files by path, without caches and what is hidden. The weights of `models` (names, each with a tag)
    are fetched when the Space is built: its README.md says so. Raises InputError where app.py is missing.
    """
    if not (root / "app.py").is_file():
        raise InputError(
            f"{root} holds no app.py, so there is no Space to publish; run this in the repository."
        )
    paths = [path for name in _PARTS for path in [root / name, *(root / name).rglob("*")] if path.is_file()]
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in paths
        if not any(
            part == "__pycache__" or part.startswith(".") or part.endswith(".tmp")
            for part in path.relative_to(root).parts
        )
    }
    if preloaded := sorted(filter(None, map(_weights, models))):
        lines = "\n".join(f"  - {weights}" for weights in preloaded)
        start, opened, rest = files["README.md"].decode("utf-8").partition("---\n")
        files["README.md"] = f"{start}{opened}preload_from_hub:\n{lines}\n{rest}".encode()
    return files


def _weights(model: str) -> str | None:
    """Where the Hub has a model's weights, as a Space names them: repository and file; None if nowhere."""
    name, _, tag = model.partition("/")
    config = open_clip.get_pretrained_cfg(name, tag) if tag else None
    repository, _, file = str((config or {}).get("hf_hub") or "").rpartition("/")
    return f"{repository} {file or 'open_clip_model.safetensors'}" if repository else None
