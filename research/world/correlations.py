"""Rank correlation of CCS with a measurement of each head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ccs.batch.pages import interval, p_text
from ccs.heads import Head
from ccs.metrics import stats
from ccs.metrics.stats import Effect
from ccs.results import Results, queries
from research.rank_correlation import correlation

WORDS = {"confirmed": "a positive", "rejected": "a negative", "inconclusive": "no evidence of a"}


@dataclass(frozen=True)
class Correlated:
    """A correlation over `n` heads; its effect is NaN if it can't be computed."""

    name: str
    n: int
    effect: Effect

    def __str__(self) -> str:
        """Return the conclusion with rho, its 95% interval, p, and n."""
        effect = self.effect
        if np.isnan(effect.value):
            return f"no correlation can be computed ({'too few heads' if self.n < 4 else 'all equal'})"
        numbers = f"rho {effect.value:+.2f}, 95% CI {interval(effect, digits=2)}, p {p_text(effect.p_value)}"
        return f"{WORDS[stats.conclusion(effect, expected='above')]} correlation ({numbers}, {self.n} heads)"


def with_ccs(name: str, results: Results, measured: Mapping[Head, float]) -> Correlated:
    """Compute Spearman's correlation of CCS with a measurement, over the heads that have both.

    Args:
        name: Name of the correlation.
        results: Results with the CCS of each head.
        measured: Head -> measured value.
    """
    scored = queries.by_head(queries.main_scores(results).dropna(subset="ccs"))
    known = {head: float(row.ccs) for head, row in scored if head in measured}
    if len(known) < 4:
        return Correlated(name, len(known), Effect(*[float("nan")] * 4))
    effect = correlation(list(known.values()), [measured[head] for head in known])
    return Correlated(name, len(known), effect)
