"""Whether the study's heads are found again: those that it lists at each level against those scored here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as distributions

from ccs.heads import Head, HeadSet
from ccs.measures import stats
from ccs.paper import figures
from ccs.results import Results


@dataclass(frozen=True)
class Overlap:
    """The heads of one level of one model.

    printed, found: how many the study lists and how many were found, of `heads` that were scored. both: in
    both sets. alike: of these, how many have the printed label, as given. jaccard: both over either.
    expected: the mean Jaccard of a random set of as many heads. p_value: how often such a set shares as many
    heads or more; `adjusted` by Holm over all rows.
    """

    model: str
    level: str
    heads: int
    printed: int
    found: int
    both: int
    alike: int
    jaccard: float
    expected: float
    p_value: float
    adjusted: float = float("nan")


def by_chance(heads: int, printed: int, found: int, both: int) -> tuple[float, float]:
    """The mean Jaccard of `printed` heads and `found` random ones, and how often they share so many."""
    shared = np.arange(max(0, printed + found - heads), min(printed, found) + 1)
    law = distributions.hypergeom(heads, printed, found)
    jaccard = shared / np.maximum(1, printed + found - shared)
    return float(law.pmf(shared) @ jaccard), float(law.sf(both - 1))


def overlaps(models: Mapping[str, Results]) -> Sequence[Overlap]:
    """A row for each of the study's models that was scored at K = 5, and each level."""
    rows: list[Overlap] = []
    for model in figures.models():
        scores = models[model.name].table("scores") if model.name in models else None
        if scores is None or not len(scores := scores[scores["k"] == 5]):
            continue
        labels = {
            Head(int(row["layer"]), int(row["head"])): (row["level"], row["label"])
            for _, row in scores.iterrows()
        }
        scored = model.heads & HeadSet(labels)
        for level, listed in figures.head_labels(model.name).items():
            ours = HeadSet(head for head in scored if labels[head][0] == level)
            theirs = HeadSet(listed) & scored
            both = ours & theirs
            n = len(scored), len(theirs), len(ours), len(both)
            alike = sum(labels[head][1] == listed[head] for head in both)
            jaccard = len(both) / max(1, len(ours | theirs))
            rows.append(Overlap(model.paper_name, level, *n, alike, jaccard, *by_chance(*n)))
    adjusted = stats.holm([one.p_value for one in rows])
    return [replace(one, adjusted=float(p)) for one, p in zip(rows, adjusted, strict=True)]
