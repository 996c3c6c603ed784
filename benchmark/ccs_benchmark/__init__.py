"""Models whose bias is known to be in certain heads, and scores of methods that look for these heads.

    >>> import ccs_benchmark
    >>> ccs_benchmark.names()[0]
    'organism-planted-03'
    >>> len(ccs_benchmark.truth("organism-planted-03").carriers("gender"))    # the heads to find, of 24
    3
    >>> ccs_benchmark.load("organism-planted-03")
    <Model organism-planted-03: 8 layers of 6 heads, 72 px>

`ccs_benchmark.score(method)` returns a table of your method, a function of `ccs.analysis.evidence.Evidence`,
and the known methods.
"""

from ccs_benchmark.planted_models import Truth, load, names, truth
from ccs_benchmark.scoring import read_cells, score, table

__all__ = ["Truth", "load", "names", "read_cells", "score", "table", "truth"]
