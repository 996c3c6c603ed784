"""On PYTHONPATH, makes open_clip's ViT-B-32 a small one of as many heads, in every process of a test."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

CONFIG = json.loads((Path(__file__).parent / "ViT-B-32.json").read_text("utf-8"))


class _Finder:
    """Finds open_clip.factory as ever, and changes what it knows once it has run."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "open_clip.factory":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            run(module)
            module._MODEL_CONFIGS["ViT-B-32"] = CONFIG  # type: ignore[attr-defined]

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
