"""Named queries of one model's tables; no other code filters their columns.

Functions of `Results` select rows of one table, functions of a frame narrow such rows further, and functions
of a row turn it into figures. A table that was not computed gives a frame without rows.

    >>> from ccs import results
    >>> main_k(results.read_all(results.PRECOMPUTED, "").models["organism"])    # texts per head
    5
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal

import pandas as pd

from ccs.analysis.ablation_sets import AblationName, Alike
from ccs.heads import Head
from ccs.metrics.stats import Effect, Estimate
from ccs.results import Results
from ccs.results.schema import ONE_POOL
from ccs.texts.score import HeadScore

Over = Literal["mean", "sum", "occupation"]
Mode = Literal["correct", "as-published"]


# Scores -------------------------------------------------------------------------------------------------


def main_k(results: Results) -> int | None:
    """The main K, the smallest number of texts per head; None without scores."""
    scores = results.table("scores")
    return int(scores["k"].min()) if len(scores) else None


def main_scores(results: Results) -> pd.DataFrame:
    """The scores at the main K."""
    return _where(results.table("scores"), k=main_k(results))


def head_scores(results: Results) -> dict[Head, HeadScore]:
    """Each head's CCS (None where unknown) and label at the main K."""
    return {
        head: HeadScore(None if pd.isna(row.ccs) else int(row.ccs), None if pd.isna(row.label) else row.label)
        for head, row in by_head(main_scores(results))
    }


def by_head(rows: pd.DataFrame) -> Iterator[tuple[Head, Any]]:
    """The rows of a table, as named tuples, each after the head that it is of."""
    row: Any
    for row in rows.itertuples():
        yield Head(int(row.layer), int(row.head)), row


def decided_by(manifest: Mapping[str, Any]) -> str:
    """Which models labeled and judged, and the study's judges that they stand for; "" where none did."""

    def named(one: Mapping[str, Any]) -> str:
        instead = one.get("instead_of")
        return str(one["name"]) + (f" (in place of {instead})" if instead else "")

    labeler, judges = manifest.get("labeler"), ", ".join(map(named, manifest.get("judges", ())))
    said = [f"labels by {named(labeler)}" if labeler else "", f"verdicts by {judges}" if judges else ""]
    return "; ".join(filter(None, said))


def high_labels(results: Results) -> dict[Head, tuple[str | None, str | None]]:
    """The high heads at the main K: label as given, label normalized."""
    known, normal = head_scores(results), results.table("labels").set_index(["layer", "head"])["label"]
    labels = {head: known[head].label for head, _ in by_head(_where(main_scores(results), level="high"))}
    return {head: (own, normal.get((head.layer, head.head), own)) for head, own in labels.items()}


def ccr(results: Results, spelling: str, layer: int | None = None) -> float:
    """One ratio, of a layer or (None) of all together; NaN without high heads."""
    rows = _where(results.table("ccr"), labels=spelling)
    rows = rows[rows["layer"].isna() if layer is None else rows["layer"] == layer]
    return _numbers(rows.iloc[0], "ccr")[0] if len(rows) else float("nan")


def ccs_alone(results: Results, provider: str, k: int) -> list[int]:
    """The CCS of each head by the provider's first judge alone, over its first k texts; known ones only."""
    rows = results.table("judgments")
    rows = rows[(rows["rank"] < k) & rows["judge"].str.startswith(f"{provider}:")]
    said = rows[rows["judge"] == rows["judge"].min()].groupby(["layer", "head"])["verdict"]
    return [int(score) for score in said.sum()[said.count() == k]]


def main_judgments(results: Results) -> pd.DataFrame:
    """The judgments of the first K texts, K being the main one; all judgments without scores."""
    judgments, k = results.table("judgments"), main_k(results)
    return judgments if k is None else judgments[judgments["rank"] < k]


# Measurements -------------------------------------------------------------------------------------------


def top1(results: Results, *, subset: str | None = "") -> pd.DataFrame:
    """Top-1 accuracy of every plan on every set, over all classes, one `subset` of them, or (None) each."""
    return _where(results.table("pruning"), metric="top1", subset=subset)


def recall(
    results: Results, metrics: Collection[str] = ("R@1",), *, direction: str | None = None
) -> pd.DataFrame:
    """Recall of every plan on every set, in one direction of retrieval or (None) both."""
    rows = _where(results.table("retrieval"), direction=direction)
    return rows[rows["metric"].isin(metrics)]


def max_skew(
    results: Results,
    over: Over = "mean",
    *,
    mode: Mode | None = "correct",
    dataset: str | None = None,
    attribute: str | None = None,
) -> pd.DataFrame:
    """MaxSkew of every plan: its mean or sum over occupations, or a row per occupation; None means all. A
    set's one-pool variant is another view of it and is included only if `dataset` names it.
    """
    metric = "MaxSkew" if over == "occupation" else f"MaxSkew {over}"
    chosen = {"metric": metric, "mode": mode, "dataset": dataset, "attribute": attribute}
    rows = _where(results.table("bias"), **chosen)
    return rows if dataset is not None else _once(rows)


def _once(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without one-pool variants, whose images are also ranked in pools of their own."""
    return rows[~rows["dataset"].str.endswith(ONE_POOL)]


def preferences(results: Results, metric: str) -> pd.DataFrame:
    """The mean over occupations of a measure of whole rankings, which has no ceiling, of every plan."""
    return _once(_where(results.table("bias"), metric=f"{metric} mean", mode="correct"))


def at_ceiling(rows: pd.DataFrame) -> pd.Series[bool]:
    """True for each row of bias whose value is at its ceiling."""
    return rows["ceiling"].notna() & (rows["value"] >= rows["ceiling"] - 1e-9)


def with_full(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of means with the column `full`: the number of occupations whose ranking is at its ceiling."""
    each = without_seeds(max_skew(results, "occupation"))
    where = ["ablation", "dataset", "attribute"]
    full = each[at_ceiling(each)]
    if full.empty:
        return rows.assign(full=0)
    counts = full.groupby(where).size().rename("full")
    return rows.join(counts, on=where).fillna({"full": 0})


def is_main_result(row: Any) -> bool:
    """True for a row with top-1 over all classes or the correct mean MaxSkew, which effects change."""
    if row["metric"] == "top1":
        return not row.get("subset")
    if row["metric"] != "MaxSkew mean" or row["dataset"].endswith(ONE_POOL):
        return False
    return bool(row["mode"] == "correct")


# Plans --------------------------------------------------------------------------------------------------


def of_ablation(rows: pd.DataFrame, plan: str, dataset: str | None = None) -> pd.DataFrame:
    """A plan's rows on every set or one of them; for random plans those of the mean over sets."""
    return without_seeds(_where(rows, ablation=plan, dataset=dataset))


def without_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without single random sets; their means over sets stay."""
    return rows[rows["seed"].isna() | _plans(rows, lambda plan: not plan.is_random)]


def few_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with only the first five random sets alike in number; means over all sets stay."""
    few = rows["seed"].isna() | ((rows["ablation"] == "random") & (rows["seed"] < 5))
    return rows[few | _plans(rows, lambda plan: not plan.is_random)]


def random_sets(rows: pd.DataFrame, alike: Alike = "number") -> pd.DataFrame:
    """The rows of single random sets that match the high heads in this property."""
    rows = _where(rows, ablation=str(AblationName.random(alike)))
    return rows[rows["seed"].notna()]


def group_plans(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of plans of many heads at the main K; for random plans those of the mean over sets."""
    rows = without_seeds(rows)
    return rows[_plans(rows, lambda plan: plan.kind != "single" and plan.k is None)]


def single_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of plans of a single head."""
    return rows[_plans(rows, lambda plan: plan.kind == "single")]


# Figures of a row ---------------------------------------------------------------------------------------


def estimate(row: Any) -> Estimate:
    """The value with its interval; NaN for empty cells."""
    return Estimate(*_numbers(row, "value", "low", "high"))


def chance(row: Any) -> Estimate:
    """The chance level with the range of random rankings; NaN for empty cells."""
    return Estimate(*_numbers(row, "chance", "chance_low", "chance_high"))


def difference(row: Any) -> Effect:
    """The paired difference from no head off; NaN for empty cells."""
    return Effect(*_numbers(row, "difference", "difference_low", "difference_high", "p_value"))


def _numbers(row: Any, *columns: str) -> list[float]:
    """The row's figures in these columns, NaN where a cell is empty."""
    return [float("nan") if pd.isna(row[column]) else float(row[column]) for column in columns]


def _plans(rows: pd.DataFrame, test: Callable[[AblationName], bool]) -> pd.Series[bool]:
    """True for each row whose plan passes the test."""
    return pd.Series(
        [test(AblationName.parse(name)) for name in rows["ablation"]], index=rows.index, dtype=bool
    )


def _where(rows: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows whose columns have these values; None means any value."""
    for column, value in wanted.items():
        if value is not None:
            rows = rows[rows[column].fillna("") == value if value == "" else rows[column] == value]
    return rows
