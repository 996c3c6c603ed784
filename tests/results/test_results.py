"""Tables and manifests are read as written or rejected; queries choose rows."""

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from ccs import InputError, results
from ccs.results import Results, queries, schema
from tests.support.results_sample import make_manifest, sample_rows


@pytest.mark.parametrize("name", list(schema.TABLES))
def test_table_round_trips(tmp_path, name):
    rows = sample_rows("organism")[name]
    entry = results.write_table(tmp_path, name, rows)
    frame = results.read_table(tmp_path / f"{name}.parquet")
    assert entry["rows"] == len(rows) == len(frame)
    assert list(frame.columns) == [column.name for column in schema.TABLES[name].columns]
    for row, stored in zip(rows, frame.to_dict("records"), strict=True):
        assert {key: None if pd.isna(value) else value for key, value in stored.items()} == row


def test_invalid_rows_and_manifests_are_not_written(tmp_path):
    for name, values, message in (
        ("spans", {"text": None}, "empty cells in column text"),
        ("spans", {"rank": 1}, "two rows for"),
        ("spans", {"layer": "six"}, "cannot be written"),
        ("scores", {"level": "medium"}, "has 'medium' in column level"),
    ):
        first, *others = sample_rows("organism")[name]
        with pytest.raises(InputError, match=message):
            results.write_table(tmp_path, name, [{**first, **values}, *others])
    manifest = make_manifest("organism", {})
    del manifest["seeds"]
    with pytest.raises(InputError, match="'seeds': Field required"):
        results.write_manifest(tmp_path, manifest)
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_and_empty_name_are_rejected(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        results.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no letter"):
        results.folder_name("../..")


ABLATIONS = [("none", None), ("high", None), ("random", 0), ("random", 1), ("random", None), ("high@7", None)]
ABLATIONS += [("equal-high", 0), ("random@7", 0), ("random@7", None), ("single:L7.H2", None)]


def make_results(**tables):
    return Results("m", Path(), {name: pd.DataFrame(rows) for name, rows in tables.items()}, {})


def test_queries_select_ablation_sets_by_name():
    def ablations(rows):
        return [(name, None if pd.isna(seed) else seed) for name, seed in rows[columns].to_numpy()]

    columns = ["ablation", "seed"]
    rows = pd.DataFrame(ABLATIONS, columns=columns).assign(dataset="d").astype({"seed": "Int64"})
    assert ablations(queries.of_ablation(rows, "random")) == [("random", None)]
    assert ablations(queries.of_ablation(rows, "equal-high")) == [("equal-high", 0)]
    assert ablations(queries.random_sets(rows)) == [("random", 0), ("random", 1)]
    assert ablations(queries.single_heads(rows)) == [("single:L7.H2", None)]


def test_max_skew_query_defaults_to_correct_mean():
    metrics = ("MaxSkew", "MaxSkew mean", "MaxSkew sum", "NDKL mean", "top share: woman")
    cells = product(metrics, ("correct", "as-published"), ("d", "d (one-pool)"))
    rows = pd.DataFrame(cells, columns=["metric", "mode", "dataset"])
    model_results = make_results(bias=rows.assign(target="pool", attribute="gender"))
    default = queries.max_skew(model_results)[["dataset", "metric", "mode"]]
    assert default.to_numpy().tolist() == [["d", "MaxSkew mean", "correct"]]
    assert len(queries.max_skew(model_results, mode=None)) == 2
    assert set(queries.max_skew(model_results, "occupation")["metric"]) == {"MaxSkew"}
    assert set(queries.max_skew(model_results, dataset="d (one-pool)")["dataset"]) == {"d (one-pool)"}
    assert queries.max_skew(model_results, attribute="race").empty


def test_queries_of_missing_tables_return_no_rows():
    no_tables = make_results()
    skew = queries.max_skew(no_tables)
    frames = [skew, queries.single_heads(skew), queries.of_ablation(skew, "high"), queries.top1(no_tables)]
    frames += [queries.recall(no_tables), queries.main_scores(no_tables), queries.main_judgments(no_tables)]
    assert all(frame.empty and len(frame.columns) for frame in frames)
    assert queries.main_k(no_tables) is None
