"""Ways to lower the bias of a CLIP, each fitted on one half of the people and judged on the other.

    >>> from ccs import mitigate
    >>> "LEACE" in mitigate.names(), len(mitigate.names())
    (True, 15)

`mitigate.score(method)` of a function from `ccs.locate.Evidence` to `Fitted` is a table beside the known
ones.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ccs.mitigate.base import Affine as Affine
from ccs.mitigate.base import Fitted as Fitted

if TYPE_CHECKING:
    from ccs.mitigate.scoring import kept, names, score, table

__all__ = ["Affine", "Fitted", "kept", "names", "score", "table"]


def __getattr__(name: str) -> object:
    # Loaded when first used: most of PyTorch's users here score nothing.
    if name not in ("kept", "names", "score", "table"):
        raise AttributeError(f"module 'ccs.mitigate' has no attribute {name!r}")
    return getattr(import_module("ccs.mitigate.scoring"), name)
