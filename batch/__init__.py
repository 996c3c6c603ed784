"""`python -m batch.compute` and `python -m batch.audit`, from a clone: the programs are in `ccs/batch`."""

from ccs import batch

__path__ = batch.__path__
