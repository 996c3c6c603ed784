"""MaxSkew, MinSkew and NDKL of a model's rankings of people for occupations, beside what chance gives.

For each occupation the images are ranked by cosine with the occupation's text embedding; `skew` holds the
formulas and what an empty group counts as. Every figure comes with
- a chance level: rankings drawn at random, without regard to groups (mean, 2.5 and 97.5%);
- a 95% interval: images and occupations drawn again with replacement, the same draws for every plan and
  metric, so that differences between plans are paired (`compare`).
Equal scores are put in the images' order, and `BiasResult.ties` says where that decided who is in the top K.
"""

from ccs.measures.bias.chance import above_chance, chance_shares
from ccs.measures.bias.groups import GENDERS, RACES_SEVEN, RACES_SIX, merge_groups
from ccs.measures.bias.measurement import measure, measure_plans
from ccs.measures.bias.result import METRICS, BiasResult, Metric, MetricName, alignment, compare
from ccs.measures.bias.top import mean_max_skew
from ccs.measures.skew import max_skew, min_skew, ndkl

__all__ = [
    "GENDERS",
    "METRICS",
    "RACES_SEVEN",
    "RACES_SIX",
    "BiasResult",
    "Metric",
    "MetricName",
    "above_chance",
    "alignment",
    "chance_shares",
    "compare",
    "max_skew",
    "mean_max_skew",
    "measure",
    "measure_plans",
    "merge_groups",
    "min_skew",
    "ndkl",
]
