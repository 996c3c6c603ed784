"""Models in which it is known which heads carry a bias, and that truth: for methods that look for such heads.

>>> from ccs import benchmark
>>> benchmark.names()[0]
'organism-planted-01'
>>> benchmark.truth("organism-planted-01").carries["gender"]     # the heads to find
>>> model = benchmark.load("organism-planted-01")
"""

from ccs.benchmark.planted_models import Truth, load, names, truth

__all__ = ["Truth", "load", "names", "truth"]
