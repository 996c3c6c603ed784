"""Queries choose the rows that their names promise, also from tables that were not computed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ccs.results import Results, queries

PLANS = [("none", None), ("high", None), ("random", 0), ("random", 1), ("random", None), ("equal-high", 0)]
PLANS += [("high@7", None), ("random@7", 0), ("random@7", None), ("single:L7.H2", None)]


def results(**tables: list[dict[str, object]]) -> Results:
    return Results("m", Path(), {name: pd.DataFrame(rows) for name, rows in tables.items()}, {})


def rows() -> pd.DataFrame:
    made = [{"plan": plan, "seed": seed, "dataset": "d", "value": i} for i, (plan, seed) in enumerate(PLANS)]
    return pd.DataFrame(made).astype({"seed": "Int64"})


def named(frame: pd.DataFrame) -> list[str]:
    return [
        f"{plan} {seed}" if pd.notna(seed) else plan
        for plan, seed in zip(frame["plan"], frame["seed"], strict=True)
    ]


def test_plans_by_their_names():
    every = rows()
    assert named(queries.of_plan(every, "random")) == ["random"]
    assert named(queries.of_plan(every, "equal-high")) == ["equal-high 0"]
    assert named(queries.random_sets(every)) == ["random 0", "random 1"]
    assert named(queries.group_plans(every)) == ["none", "high", "random", "equal-high 0"]
    assert named(queries.single_plans(every)) == ["single:L7.H2"]


def test_max_skew_is_the_correct_one_unless_asked():
    found = results(
        bias=[
            {"metric": metric, "mode": mode, "target": "pool", "dataset": "d", "attribute": "gender"}
            for metric in ("MaxSkew", "MaxSkew mean", "MaxSkew sum", "NDKL mean", "top share: woman")
            for mode in ("correct", "as-published")
        ]
    )
    assert queries.max_skew(found)[["metric", "mode"]].to_numpy().tolist() == [["MaxSkew mean", "correct"]]
    assert len(queries.max_skew(found, mode=None)) == 2
    assert set(queries.max_skew(found, "occupation")["metric"]) == {"MaxSkew"}
    assert queries.max_skew(found, attribute="race").empty
    whole = results(
        bias=[
            {"metric": "MaxSkew mean", "mode": "correct", "target": "pool", "dataset": name, "attribute": "a"}
            for name in ("d", "d (one-pool)")
        ]
    )
    assert list(queries.max_skew(whole)["dataset"]) == ["d"]
    assert list(queries.max_skew(whole, dataset="d (one-pool)")["dataset"]) == ["d (one-pool)"]


def test_tables_that_were_not_computed_have_no_rows():
    none = results()
    assert queries.main_k(none) is None
    asked = [
        queries.main_scores(none),
        queries.main_judgments(none),
        queries.top1(none),
        queries.recall(none),
    ]
    skew = queries.max_skew(none)
    asked += [skew, queries.group_plans(skew), queries.of_plan(skew, "high")]
    assert all(frame.empty and len(frame.columns) for frame in asked)
