"""Attention heads of CLIP: the concepts they encode, and the effects of ablating them.

Parts are imported on first use, so that `import ccs` is fast. `__init__.pyi` lists the public names.
"""

import ast
import gc
import sys
from importlib import import_module
from pathlib import Path

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
_MODULES = {
    alias.name: str(statement.module)
    for statement in _STUB.body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}

__all__ = sorted(_MODULES)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'ccs' has no attribute {name!r}")
    collects, had_torch = gc.isenabled(), "torch" in sys.modules
    gc.disable()  # imports allocate much and free nothing; collections take a seventh of PyTorch's
    try:
        module = import_module(_MODULES[name])
    finally:
        if "torch" in sys.modules and not had_torch:
            gc.freeze()  # its 200,000 objects last; searching them, also at the end, takes over half a second
        if collects:
            gc.enable()
    return getattr(module, name, module)
