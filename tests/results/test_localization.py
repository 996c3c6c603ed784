"""The table `localization`, one file for all models: rows that are kept and rows that are replaced."""

from __future__ import annotations

import pandas as pd

from ccs.results import localization


def rows(model="organism", weights="a" * 16, method="search", attribute="gender", score=1.0, heads=2, seed=0):
    about = {"model": model, "weights": weights, "dataset": "world/faces", "attribute": attribute}
    figures = {"max_skew_none": 0.5, "accuracy_none": 0.9, "chance": 0.1, "seed": seed}
    figures |= {"planted": None, "carries": None}
    return [
        about
        | figures
        | {"method": method, "layer": 4, "head": head, "rank": head + 1, "score": score - head}
        | {"max_skew": 0.4 if head == 0 else None, "accuracy": 0.9 if head == 0 else None}
        for head in range(heads)
    ]


def test_rows_of_the_same_question_are_replaced_and_others_stay(tmp_path):
    localization.keep(tmp_path, rows() + rows(method="random"))
    localization.keep(tmp_path, rows(attribute="skin tone"))
    localization.keep(tmp_path, rows(model="other"))
    localization.keep(tmp_path, rows(score=7.0, heads=3))
    localization.keep(tmp_path, rows(model="other", seed=1))
    found = localization.read(tmp_path)
    assert len(found) == 3 + 2 + 2 + 2 + 2
    again = found[(found["model"] == "organism") & (found["attribute"] == "gender")]
    assert again[again["method"] == "search"]["score"].tolist() == [7.0, 6.0, 5.0]
    assert found[found["rank"] > 1]["max_skew"].isna().all()


def test_orders_are_those_of_one_question(tmp_path):
    localization.keep(tmp_path, rows(heads=3) + rows(method="random") + rows(attribute="skin tone", heads=1))
    found = localization.orders(localization.read(tmp_path), model="organism", attribute="gender")
    assert {name: " ".join(map(str, heads)) for name, heads in found.items()} == {
        "random": "L4.H0 L4.H1",
        "search": "L4.H0 L4.H1 L4.H2",
    }
    assert localization.orders(localization.read(tmp_path), weights="b" * 16) == {}


def test_the_order_over_several_splits_is_that_of_the_mean_places():
    turned = [row | {"seed": 1, "rank": {0: 3, 1: 1, 2: 2}[row["head"]]} for row in rows(heads=3)]
    found = localization.orders(pd.DataFrame(rows(heads=3) + turned + rows(method="random")))
    assert [str(head) for head in found["search"]] == ["L4.H1", "L4.H0", "L4.H2"]  # 1.5, 2 and 2.5
    assert len(found["random"]) == 2


def test_rows_of_weights_that_are_gone_go(tmp_path):
    localization.keep(tmp_path, rows() + rows(method="random") + rows(model="other"))
    localization.keep(tmp_path, rows(weights="b" * 16))
    found = localization.read(tmp_path)
    assert set(zip(found["model"], found["weights"], found["method"], strict=True)) == {
        ("organism", "b" * 16, "search"),
        ("other", "a" * 16, "search"),
    }
