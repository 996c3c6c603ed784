"""Which methods of a table differ: letters, and the minimum detectable difference.

Two methods differ if Student's 95% interval of their difference over bases excludes 0. Methods that share a
letter don't differ (compact letter display, Piepho 2004, doi.org/10.1198/1061860043515).

    >>> letters(["a", "b", "c"], lambda first, second: {first, second} == {"a", "c"})
    {'a': 'a', 'b': 'ab', 'c': 'b'}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from string import ascii_lowercase

import numpy as np
import pandas as pd

from ccs_benchmark.bases import across_bases


def letters(methods: Sequence[str], differ: Callable[[str, str], bool]) -> dict[str, str]:
    """Assign letters to methods, by insertion and absorption.

    Args:
        methods: Names, best first.
        differ: Whether two methods differ.

    Returns:
        Letters of each method. Two methods share a letter exactly if they don't differ.
    """
    groups = [frozenset(methods)]
    for first, second in combinations(methods, 2):
        if not differ(first, second):
            continue
        split = [group for group in groups if {first, second} <= group]
        groups = [group for group in groups if group not in split]
        groups += [group - {method} for group in split for method in (first, second)]
        groups = [group for group in dict.fromkeys(groups) if not any(group < other for other in groups)]
    order = {method: place for place, method in enumerate(methods)}
    groups.sort(key=lambda group: sorted(order[method] for method in group))
    return {
        method: "".join(
            letter for letter, group in zip(ascii_lowercase, groups, strict=False) if method in group
        )
        for method in methods
    }


def differences(models: pd.DataFrame, methods: Sequence[str], score: str) -> pd.DataFrame:
    """Compare each pair of methods.

    Args:
        models: A row per model and method (`scoring.by_model`), with the columns `base`, `model`, `method`.
        methods: Methods to compare.
        score: Column to compare.

    Returns:
        A row per pair: `first`, `second`, and the fields of `bases.Replicated`, first minus second.
    """
    values = models.pivot(index=["base", "model"], columns="method", values=score)
    rows = []
    for first, second in combinations(methods, 2):
        difference = (values[first] - values[second]).dropna()
        effect = across_bases(difference.to_numpy(), difference.index.get_level_values("base"))
        rows.append({"first": first, "second": second} | vars(effect))
    return pd.DataFrame(rows)


def display(models: pd.DataFrame, methods: Sequence[str], score: str) -> tuple[dict[str, str], float]:
    """Summarize which methods differ in a score.

    Args:
        models: As in `differences`.
        methods: Methods to compare.
        score: Column to compare.

    Returns:
        Each method's letters, and the median minimum detectable difference of a pair (80% power).
    """
    means = models[models["method"].isin(methods)].groupby(["method", "base"])[score].mean()
    order = means.groupby("method").mean().sort_values(ascending=False).index.tolist()
    pairs = differences(models, order, score)
    separated = pairs[(pairs["low"] > 0) | (pairs["high"] < 0)]
    apart = {frozenset(pair) for pair in zip(separated["first"], separated["second"], strict=True)}
    detectable = float(np.median(pairs["detectable"]))
    return letters(order, lambda first, second: frozenset((first, second)) in apart), detectable
