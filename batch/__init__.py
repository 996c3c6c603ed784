"""`python -m batch.compute` and its siblings, from a clone: the programs are in `ccs/batch`."""

from ccs import batch

__path__ = batch.__path__
