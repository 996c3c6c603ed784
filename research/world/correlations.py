"""Does CCS go with what heads carry?"""

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


@dataclass(frozen=True)
class Correlated:
    """A correlation over `n` heads; its effect is NaN where there is none."""

    name: str
    n: int
    effect: Effect

    def __str__(self) -> str:
        """Answer whether the correlation is above zero."""
        effect = self.effect
        if np.isnan(effect.value):
            return f"cannot be asked ({'too few heads' if self.n < 4 else 'all alike'})"
        figures = f"rho {effect.value:+.2f}, {interval(effect, digits=2)}, p {p_text(effect.p_value)}"
        return f"{stats.conclusion(effect, expected='above')} ({figures}, {self.n} heads)"


def with_ccs(name: str, results: Results, figures: Mapping[Head, float]) -> Correlated:
    """Compute Spearman's correlation of the heads' CCS with a figure, over the heads that have both.

    Args:
        name: of the correlation.
        results: with the CCS.
        figures: head -> figure.
    """
    scored = queries.by_head(queries.main_scores(results).dropna(subset="ccs"))
    known = {head: float(row.ccs) for head, row in scored if head in figures}
    if len(known) < 4:
        return Correlated(name, len(known), Effect(*[float("nan")] * 4))
    effect = correlation(list(known.values()), [figures[head] for head in known])
    return Correlated(name, len(known), effect)
