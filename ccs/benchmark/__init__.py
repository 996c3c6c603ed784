"""Models in which it is known which heads carry a bias, and how well a method finds these heads.

>>> from ccs import benchmark
>>> benchmark.names()[0]
'organism-planted-01'
>>> benchmark.truth("organism-planted-01").carries["gender"]     # the heads to find
>>> model = benchmark.load("organism-planted-01")
>>> benchmark.score(method)     # of a function of ccs.locate.Evidence: a table, beside the known methods
"""

from ccs.benchmark.planted_models import Truth, load, names, truth
from ccs.benchmark.scoring import kept, score, table

__all__ = ["Truth", "kept", "load", "names", "score", "table", "truth"]
