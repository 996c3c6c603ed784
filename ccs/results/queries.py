"""Named questions to one model's tables, the only code that filters their columns.

Functions of `Results` choose rows of one table; functions of a frame narrow such rows further, and functions
of a row turn it into figures. A table that was not computed gives a frame without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import pandas as pd

from ccs.heads import Head, HeadSet
from ccs.measures.stats import Effect, Estimate
from ccs.plans import Alike, PlanName
from ccs.results.schema import ONE_POOL, TOP_SHARE
from ccs.results.store import Results
from ccs.texts.score import HeadScore

Over = Literal["mean", "sum", "occupation"]
Mode = Literal["correct", "as-published"]


# Scores -------------------------------------------------------------------------------------------------


def main_k(results: Results) -> int | None:
    """The main number of texts per head, the smallest of several; None without scores."""
    scores = results.table("scores")
    return int(scores["k"].min()) if len(scores) else None


def scores_at(results: Results, k: int) -> pd.DataFrame:
    """The scores from k texts per head."""
    return _where(results.table("scores"), k=k)


def main_scores(results: Results) -> pd.DataFrame:
    """The scores at the main K."""
    return _where(results.table("scores"), k=main_k(results))


def head_scores(results: Results) -> dict[Head, HeadScore]:
    """Each head's CCS (None where unknown) and label at the main K."""
    rows: list[dict[Any, Any]] = main_scores(results).to_dict("records")
    return {
        Head(int(row["layer"]), int(row["head"])): HeadScore(
            None if pd.isna(row["ccs"]) else int(row["ccs"]), None if pd.isna(row["label"]) else row["label"]
        )
        for row in rows
    }


def variances(results: Results) -> dict[Head, float]:
    """The variance of each head's contribution."""
    rows = main_scores(results)
    heads = (Head(int(layer), int(head)) for layer, head in zip(rows["layer"], rows["head"], strict=True))
    return dict(zip(heads, rows["variance"].astype(float).tolist(), strict=True))


def stability(results: Results) -> pd.DataFrame:
    """The scores of every head where one thing is different."""
    return results.table("stability")


def of_level(scores: pd.DataFrame, level: str) -> pd.DataFrame:
    """The scores of one level: `high`, `moderate`, `low`, `unknown`, or "" between the levels."""
    return _where(scores, level=level)


def main_judgments(results: Results) -> pd.DataFrame:
    """The judgments of the texts that count at the main K; all of them without scores."""
    judgments, k = results.table("judgments"), main_k(results)
    return judgments if k is None else judgments[judgments["rank"] < k]


# Measurements -------------------------------------------------------------------------------------------


def top1(results: Results, *, subset: str | None = "") -> pd.DataFrame:
    """Top-1 accuracy of every plan on every set; over all classes, a `subset`, or (None) each of them."""
    return _where(results.table("pruning"), metric="top1", subset=subset)


def recall(
    results: Results, metrics: Collection[str] = ("R@1",), *, direction: str | None = None
) -> pd.DataFrame:
    """Recall of every plan on every set, in one direction of retrieval or (None) in both."""
    rows = _where(results.table("retrieval"), direction=direction)
    return rows[rows["metric"].isin(metrics)]


def max_skew(
    results: Results,
    over: Over = "mean",
    *,
    mode: Mode | None = "correct",
    target: str | None = "pool",
    dataset: str | None = None,
    attribute: str | None = None,
) -> pd.DataFrame:
    """MaxSkew of every plan: its mean or sum over occupations, or a row per occupation.

    By default as measured correctly and against the pool, of every set and attribute; None means all. A set's
    images in one pool are another view of the set: they come only where `dataset` names them.
    """
    metric = "MaxSkew" if over == "occupation" else f"MaxSkew {over}"
    chosen = {"metric": metric, "mode": mode, "target": target, "dataset": dataset, "attribute": attribute}
    rows = _where(results.table("bias"), **chosen)
    return rows if dataset is not None else _once(rows)


def _once(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without those of a set's images in one pool, which are in its own pools too."""
    return rows[~rows["dataset"].str.endswith(ONE_POOL)]


def preferences(results: Results, metric: str = "logit gap") -> pd.DataFrame:
    """A measure of whole rankings, without a ceiling, of every plan: its mean over occupations."""
    return _once(_where(results.table("bias"), metric=f"{metric} mean", mode="correct"))


def of_a_person(results: Results) -> pd.DataFrame:
    """MaxSkew of every plan's ranking for a plain person, whatever the occupations."""
    return _once(_where(results.table("bias"), metric="MaxSkew person"))


def skew_over_k(results: Results) -> pd.DataFrame:
    """The mean MaxSkew of every plan at each K it was measured at, K by K, but for the main one."""
    rows = _once(results.table("bias"))
    return rows[rows["metric"].str.fullmatch(r"MaxSkew@\d+ mean")].sort_values("k", kind="stable")


def at_ceiling(rows: pd.DataFrame) -> pd.Series[bool]:
    """Of each row of bias whether its value is the largest that it can be."""
    return rows["ceiling"].notna() & (rows["value"] >= rows["ceiling"] - 1e-9)


def with_full(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of means with the column `full`: of how many occupations the ranking is at its ceiling."""
    each = without_seeds(max_skew(results, "occupation"))
    where = ["plan", "dataset", "attribute"]
    counts = each[at_ceiling(each)].groupby(where).size().rename("full")
    return rows.join(counts, on=where).fillna({"full": 0})


def top_shares(results: Results, dataset: str, attribute: str) -> pd.DataFrame:
    """Each group's share of each occupation's top K, with the column `group`."""
    rows = _where(results.table("bias"), mode="correct", target="pool", dataset=dataset, attribute=attribute)
    rows = rows[rows["metric"].str.startswith(TOP_SHARE)]
    return rows.assign(group=rows["metric"].str.removeprefix(TOP_SHARE))


def is_main_figure(row: Any) -> bool:
    """Whether a row of pruning or bias holds top-1 over all classes or the correct mean MaxSkew.

    These two say what a model can do and how biased it is; effects are changes of them.
    """
    if row["metric"] == "top1":
        return not row.get("subset")
    if row["metric"] != "MaxSkew mean" or row["dataset"].endswith(ONE_POOL):
        return False
    return bool(row["mode"] == "correct")


# Single heads -------------------------------------------------------------------------------------------


def head_effects(
    results: Results,
    metric: str | None = None,
    measure: str | None = "total effect",
    *,
    dataset: str | None = None,
    factor: str | None = None,
) -> pd.DataFrame:
    """Effects of switching single heads off, `total effect`, `direct effect` or (None) both."""
    rows = _where(results.table("heads"), metric=metric, measure=measure, dataset=dataset, factor=factor)
    return _once(rows[rows["measure"] != "selectivity"])


def selectivity(results: Results) -> pd.DataFrame:
    """The share of each head's variance that each factor of the scenes explains."""
    return _where(results.table("heads"), measure="selectivity")


def correlations(results: Results, method: str = "spearman") -> pd.DataFrame:
    """How direct and total effects of single heads go together."""
    return _where(results.table("correlations"), method=method)


def of_head(rows: pd.DataFrame, head: Head) -> pd.DataFrame:
    """The rows of one head, of any table that has the columns layer and head."""
    return _where(rows, layer=head.layer, head=head.head)


# Plans --------------------------------------------------------------------------------------------------


def of_plan(rows: pd.DataFrame, plan: str, dataset: str | None = None) -> pd.DataFrame:
    """A plan's rows, on every set or one; of random plans those of the mean over seeds."""
    return without_seeds(_where(rows, plan=plan, dataset=dataset))


def of_kinds(rows: pd.DataFrame, kinds: Collection[str]) -> pd.DataFrame:
    """The rows of plans of these kinds at the main K, with zero in the heads' place."""
    return rows[_plans(rows, lambda p: p.kind in kinds and p.k is None and p.ablation == "zero")]


def of_attribute(rows: pd.DataFrame, attribute: str) -> pd.DataFrame:
    """The rows of bias of one attribute."""
    return _where(rows, attribute=attribute)


def of_heads(rows: pd.DataFrame, off: HeadSet) -> pd.DataFrame:
    """The rows of plans that put the same in the place of exactly these heads, whatever their names."""
    rows = _where(rows, heads=str(off), n_heads=len(off))
    return rows[_plans(rows, lambda plan: plan.ablation == off.ablation)]


def without_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without those of single seeds of random plans: their means over seeds stay."""
    return rows[rows["seed"].isna() | _plans(rows, lambda plan: plan.kind != "random")]


def few_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without random sets but the first five, alike in number; the mean over all of them stays."""
    few = rows["seed"].isna() | ((rows["plan"] == "random") & (rows["seed"] < 5))
    return rows[few | _plans(rows, lambda plan: plan.kind != "random")]


def random_sets(rows: pd.DataFrame, alike: Alike = "number") -> pd.DataFrame:
    """The rows of random sets, one set by one, that are like the high heads in this."""
    rows = _where(rows, plan=str(PlanName.random(alike)))
    return rows[rows["seed"].notna()]


def group_plans(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of plans of many heads at the main K; of random plans those of the mean over seeds."""
    rows = without_seeds(rows)
    return rows[_plans(rows, lambda plan: plan.kind != "single" and plan.k is None)]


def single_plans(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of plans of one head alone, named after it."""
    return rows[_plans(rows, lambda plan: plan.kind == "single")]


def further_plans(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of plans at further K, without single seeds, with the columns of `with_plan`."""
    rows = with_plan(without_seeds(rows))
    return rows[rows["plan_k"].notna()]


def in_place(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of plans that put more than zero in the heads' place, all named alike: column `ablation`."""
    plans = [PlanName.parse(name) for name in rows["plan"]]
    rows = rows.assign(plan=[str(p.ablated("zero")) for p in plans], ablation=[p.ablation for p in plans])
    return rows[rows["plan"].isin(rows["plan"][rows["ablation"] != "zero"])]


def with_plan(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the parts of their plans' names: columns `kind` and `plan_k` (empty at the main K)."""
    plans = [PlanName.parse(name) for name in rows["plan"]]
    ks = pd.array([plan.k for plan in plans], dtype="Int64")
    return rows.assign(kind=[plan.kind for plan in plans], plan_k=ks)


# Figures of a row ---------------------------------------------------------------------------------------


def estimate(row: Any) -> Estimate:
    """The value with its interval; NaN where a cell is empty."""
    return Estimate(*(_number(row[name]) for name in ("value", "low", "high")))


def chance(row: Any) -> Estimate:
    """The chance level with the range of random rankings; NaN where a cell is empty."""
    return Estimate(*(_number(row[name]) for name in ("chance", "chance_low", "chance_high")))


def effect(row: Any) -> Effect:
    """The value of a row of heads or correlations as an effect; NaN where a cell is empty."""
    return Effect(*(_number(row[name]) for name in ("value", "low", "high", "p_value")))


def difference(row: Any) -> Effect:
    """The difference from nothing off, paired; NaN where a cell is empty."""
    names = ("difference", "difference_low", "difference_high", "p_value")
    return Effect(*(_number(row[name]) for name in names))


def _number(cell: Any) -> float:
    return float("nan") if pd.isna(cell) else float(cell)


def _plans(rows: pd.DataFrame, test: Callable[[PlanName], bool]) -> pd.Series[bool]:
    """Of each row whether its plan passes the test."""
    return pd.Series([test(PlanName.parse(name)) for name in rows["plan"]], index=rows.index, dtype=bool)


def _where(rows: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows whose columns hold these values; None means any."""
    for column, value in wanted.items():
        if value is not None:
            rows = rows[rows[column].fillna("") == value if value == "" else rows[column] == value]
    return rows
