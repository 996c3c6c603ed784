"""Tables and manifests are read as written or refused; queries choose the rows that they promise."""

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from ccs import InputError, results
from ccs.results import Results, queries, schema
from tests.support.results_sample import make_manifest, sample_rows


@pytest.mark.parametrize("name", list(schema.TABLES))
def test_every_table_comes_back_as_written(tmp_path, name):
    rows = sample_rows("organism")[name]
    entry = results.write_table(tmp_path, name, rows)
    frame = results.read_table(tmp_path / f"{name}.parquet")
    assert entry["rows"] == len(rows) == len(frame)
    assert list(frame.columns) == [column.name for column in schema.TABLES[name].columns]
    for row, got in zip(rows, frame.to_dict("records"), strict=True):
        assert {key: None if pd.isna(value) else value for key, value in got.items()} == row


def test_wrong_rows_and_manifests_are_refused(tmp_path):
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


def test_folders_that_are_not_there_and_names_of_none(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        results.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no letter"):
        results.folder_name("../..")


SETS = [("none", None), ("high", None), ("random", 0), ("random", 1), ("random", None), ("equal-high", 0)]
SETS += [("high@7", None), ("random@7", 0), ("random@7", None), ("single:L7.H2", None)]


def make_results(**tables):
    return Results("m", Path(), {name: pd.DataFrame(rows) for name, rows in tables.items()}, {})


def names(rows):
    pairs = rows[["ablation", "seed"]].to_numpy()
    return [name if pd.isna(seed) else f"{name} {seed}" for name, seed in pairs]


def test_rows_of_an_ablation_set_by_its_name():
    rows = pd.DataFrame(SETS, columns=["ablation", "seed"]).assign(dataset="d").astype({"seed": "Int64"})
    assert names(queries.of_ablation(rows, "random")) == ["random"]
    assert names(queries.of_ablation(rows, "equal-high")) == ["equal-high 0"]
    assert names(queries.random_sets(rows)) == ["random 0", "random 1"]
    assert names(queries.single_heads(rows)) == ["single:L7.H2"]


def test_max_skew_is_the_correct_one_within_an_occupations_pool_by_default():
    metrics = ("MaxSkew", "MaxSkew mean", "MaxSkew sum", "NDKL mean", "top share: woman")
    cells = product(metrics, ("correct", "as-published"), ("d", "d (one-pool)"))
    rows = pd.DataFrame(cells, columns=["metric", "mode", "dataset"])
    read = make_results(bias=rows.assign(target="pool", attribute="gender"))
    default = queries.max_skew(read)[["dataset", "metric", "mode"]]
    assert default.to_numpy().tolist() == [["d", "MaxSkew mean", "correct"]]
    assert len(queries.max_skew(read, mode=None)) == 2
    assert set(queries.max_skew(read, "occupation")["metric"]) == {"MaxSkew"}
    assert set(queries.max_skew(read, dataset="d (one-pool)")["dataset"]) == {"d (one-pool)"}
    assert queries.max_skew(read, attribute="race").empty


def test_tables_that_were_not_computed_have_no_rows():
    none = make_results()
    skew = queries.max_skew(none)
    frames = [skew, queries.single_heads(skew), queries.of_ablation(skew, "high"), queries.top1(none)]
    frames += [queries.recall(none), queries.main_scores(none), queries.main_judgments(none)]
    assert all(frame.empty and len(frame.columns) for frame in frames)
    assert queries.main_k(none) is None
