"""Named queries of one model's tables; no other code filters their columns.

Functions of `Results` select rows of one table, functions of a frame narrow such rows further, and functions
of a row return its numbers. A table that was not computed gives a frame without rows.

    >>> from ccs import results
    >>> main_k(results.read_all(results.PRECOMPUTED, "").models["organism"])    # texts per head
    5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import pandas as pd

from ccs.analysis.ablation_sets import AblationName, Alike
from ccs.heads import Head
from ccs.metrics.stats import Effect, Estimate
from ccs.results import Results
from ccs.results.schema import ONE_POOL

Over = Literal["mean", "sum", "occupation"]
Mode = Literal["correct", "as-published"]


# Scores -------------------------------------------------------------------------------------------------


def main_k(results: Results) -> int | None:
    """Return the main K, the smallest number of texts per head; None without scores."""
    scores = results.table("scores")
    return int(scores["k"].min()) if len(scores) else None


def main_scores(results: Results) -> pd.DataFrame:
    """Return the scores at the main K."""
    return _where(results.table("scores"), k=main_k(results))


def by_head(rows: pd.DataFrame) -> Iterator[tuple[Head, Any]]:
    """Yield the rows of a table, as named tuples, each after its head."""
    row: Any
    for row in rows.itertuples():
        yield Head(int(row.layer), int(row.head)), row


def decided_by(manifest: Mapping[str, Any]) -> str:
    """Say which models labeled and judged, and which of the paper's judges they replace; "" if none did."""

    def describe(judge: Mapping[str, Any]) -> str:
        replaced = judge.get("instead_of")
        return str(judge["name"]) + (f" (in place of {replaced})" if replaced else "")

    labeler, judges = manifest.get("labeler"), ", ".join(map(describe, manifest.get("judges", ())))
    parts = [f"labels by {describe(labeler)}" if labeler else "", f"verdicts by {judges}" if judges else ""]
    return "; ".join(filter(None, parts))


def ccr(results: Results, spelling: str, layer: int | None = None) -> float:
    """Return one ratio, or NaN if there are no high heads.

    Args:
        results: The results of a model.
        spelling: The spelling of the labels, `as given` or `normalized`.
        layer: The layer. Default: None, all layers together.
    """
    rows = _where(results.table("ccr"), labels=spelling)
    rows = rows[rows["layer"].isna() if layer is None else rows["layer"] == layer]
    return _numbers(rows.iloc[0], "ccr")[0] if len(rows) else float("nan")


def ccs_alone(results: Results, provider: str, k: int) -> list[int]:
    """Return the CCS of each head by one judge alone, without unknown ones.

    Args:
        results: The results of a model.
        provider: The provider whose first judge counts.
        k: Texts per head.
    """
    rows = results.table("judgments")
    rows = rows[(rows["rank"] < k) & rows["judge"].str.startswith(f"{provider}:")]
    verdicts = rows[rows["judge"] == rows["judge"].min()].groupby(["layer", "head"])["verdict"]
    return [int(score) for score in verdicts.sum()[verdicts.count() == k]]


def main_judgments(results: Results) -> pd.DataFrame:
    """Return the judgments of the first K texts for the main K; without scores, all judgments."""
    judgments, k = results.table("judgments"), main_k(results)
    return judgments if k is None else judgments[judgments["rank"] < k]


# Measurements -------------------------------------------------------------------------------------------


def top1(results: Results, *, subset: str | None = "") -> pd.DataFrame:
    """Return the top-1 accuracy of every ablation set on every dataset.

    Args:
        results: The results of a model.
        subset: A subset of the classes, "" for all classes, or None for each.
    """
    return _where(results.table("pruning"), metric="top1", subset=subset)


def recall(results: Results) -> pd.DataFrame:
    """Return R@1 from texts to clips of every ablation set on every dataset."""
    return _where(results.table("retrieval"), metric="R@1", direction="text-to-clip")


def max_skew(
    results: Results,
    over: Over = "mean",
    *,
    mode: Mode | None = "correct",
    dataset: str | None = None,
    attribute: str | None = None,
) -> pd.DataFrame:
    """Return the MaxSkew of every ablation set.

    Args:
        results: The results of a model.
        over: The mean or sum over occupations, or a row per occupation.
        mode: `correct`, or with the faults of the paper's code; None for both.
        dataset: A dataset; by default all without their one-pool variants, which are another view of them.
        attribute: An attribute; None for all.
    """
    metric = "MaxSkew" if over == "occupation" else f"MaxSkew {over}"
    chosen = {"metric": metric, "mode": mode, "dataset": dataset, "attribute": attribute}
    rows = _where(results.table("bias"), **chosen)
    return rows if dataset is not None else rows[~rows["dataset"].str.endswith(ONE_POOL)]


def is_main_result(row: Any) -> bool:
    """Return True for top-1 over all classes, correct mean MaxSkew, and parts of the group scores."""
    if row["metric"] == "top1":
        return not row.get("subset")
    main = row["metric"] in ("MaxSkew mean", "general part", "specific part")
    return main and row["mode"] == "correct" and not row["dataset"].endswith(ONE_POOL)


# Ablation sets ------------------------------------------------------------------------------------------


def of_ablation(rows: pd.DataFrame, name: str, dataset: str | None = None) -> pd.DataFrame:
    """Return the rows of an ablation set; for random ones, only the means over sets.

    Args:
        rows: Rows of a table.
        name: The ablation set's name.
        dataset: One dataset; None for all.
    """
    rows = _where(rows, ablation=name, dataset=dataset)
    return rows[rows["seed"].isna() | _named(rows, lambda name: not name.is_random)]


def few_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with only the first five random sets alike in number, and with means over all sets."""
    few = rows["seed"].isna() | ((rows["ablation"] == "random") & (rows["seed"] < 5))
    return rows[few | _named(rows, lambda name: not name.is_random)]


def random_sets(rows: pd.DataFrame, alike: Alike = "number") -> pd.DataFrame:
    """Return the rows of single random sets.

    Args:
        rows: Rows of a table.
        alike: The property in which the sets match the high heads.
    """
    rows = _where(rows, ablation=str(AblationName.random(alike)))
    return rows[rows["seed"].notna()]


def single_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of ablation sets of a single head."""
    return rows[_named(rows, lambda name: name.kind == "single")]


# Numbers of a row ---------------------------------------------------------------------------------------


def estimate(row: Any) -> Estimate:
    """Return the value with its interval; NaN for empty cells."""
    return Estimate(*_numbers(row, "value", "low", "high"))


def chance(row: Any) -> Estimate:
    """Return the chance level with the range of random rankings; NaN for empty cells."""
    return Estimate(*_numbers(row, "chance", "chance_low", "chance_high"))


def difference(row: Any) -> Effect:
    """Return the paired difference from the baseline without ablation; NaN for empty cells."""
    return Effect(*_numbers(row, "difference", "difference_low", "difference_high", "p_value"))


def _numbers(row: Any, *columns: str) -> list[float]:
    """Return the row's numbers in these columns, NaN for empty cells."""
    return [float("nan") if pd.isna(row[column]) else float(row[column]) for column in columns]


def _named(rows: pd.DataFrame, test: Callable[[AblationName], bool]) -> pd.Series[bool]:
    """Return True for each row whose ablation set's name passes the test."""
    return rows["ablation"].map(lambda name: test(AblationName.parse(name))).astype(bool)


def _where(rows: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """Return the rows whose columns have these values; None allows any value."""
    for column, value in wanted.items():
        if value is not None:
            rows = rows[rows[column].fillna("") == value if value == "" else rows[column] == value]
    return rows
