"""What the attention heads of a CLIP model have learned, and what happens when some are switched off.

The names below load with their modules when first used, so that `import ccs` does not wait for PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccs.errors import InputError
    from ccs.heads import Head, HeadSet
    from ccs.models import Model, load
    from ccs.skew import max_skew

_HOMES = {
    "Head": "ccs.heads",
    "HeadSet": "ccs.heads",
    "InputError": "ccs.errors",
    "Model": "ccs.models",
    "load": "ccs.models",
    "max_skew": "ccs.skew",
}
__all__ = ["Head", "HeadSet", "InputError", "Model", "load", "max_skew"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ccs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
