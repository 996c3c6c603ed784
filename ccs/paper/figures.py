"""A former name of this package, for one file that is being edited."""

from ccs.paper import head_sets as head_sets
from ccs.paper import models as models
