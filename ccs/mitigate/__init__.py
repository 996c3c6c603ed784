"""Ways to lower the bias of a CLIP, each fitted on one half of the people and judged on the other.

    >>> from ccs import mitigate
    >>> "LEACE" in mitigate.names(), len(mitigate.names())
    (True, 15)

`mitigate.score(method)` of a function from `ccs.locate.Evidence` to `Fitted` is a table beside the known
ones.
"""

from ccs.mitigate.base import Affine, Fitted
from ccs.mitigate.scoring import kept, names, score, table

__all__ = ["Affine", "Fitted", "kept", "names", "score", "table"]
