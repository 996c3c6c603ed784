"""Models in which it is known which heads carry a bias, and how well a method finds these heads.

    >>> from ccs import benchmark
    >>> benchmark.names()[0]
    'organism-planted-03'
    >>> len(benchmark.truth("organism-planted-03").carriers("gender"))    # the heads to find, of 24
    3
    >>> benchmark.load("organism-planted-03")
    <Model organism-planted-03: 8 layers of 6 heads, 72 px>

`benchmark.score(method)` of a function of `ccs.locate.Evidence` is a table, beside the known methods.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ccs.benchmark.planted_models import Truth, load, names, truth

if TYPE_CHECKING:
    from ccs.benchmark.scoring import kept, score, table

__all__ = ["Truth", "kept", "load", "names", "score", "table", "truth"]


def __getattr__(name: str) -> object:
    # Loaded when first used: the page asks for the truth about a model and scores nothing.
    if name not in ("kept", "score", "table"):
        raise AttributeError(f"module 'ccs.benchmark' has no attribute {name!r}")
    return getattr(import_module("ccs.benchmark.scoring"), name)
