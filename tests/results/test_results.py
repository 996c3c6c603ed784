"""Tables and manifests: valid ones are read as written, invalid ones are refused in a sentence."""

import json
from pathlib import Path

import pandas as pd
import pytest

from ccs import results
from ccs.errors import InputError
from ccs.results import schema
from scripts.tables_page import as_markdown
from tests.support.results_sample import manifest_for, sample_rows, write_model


def test_docs_say_what_the_schema_says():
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    assert page.read_text(encoding="utf-8") == as_markdown()


@pytest.mark.parametrize("name", list(schema.TABLES))
def test_every_table_comes_back_as_written(tmp_path, name):
    rows = sample_rows("organism")[name]
    entry = results.write_table(tmp_path, name, rows)
    frame = results.read_table(tmp_path / f"{name}.parquet")
    assert entry["rows"] == len(rows) == len(frame)
    assert list(frame.columns) == [column.name for column in schema.TABLES[name].columns]
    for row, got in zip(rows, frame.to_dict("records"), strict=True):
        assert {key: None if pd.isna(value) else value for key, value in got.items()} == row


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("spans", {"text": None}, "empty cells in column text"),
        ("spans", {"rank": 1}, "two rows for"),
        ("spans", {"layer": "six"}, "cannot be written"),
        ("scores", {"level": "medium"}, "has 'medium' in column level"),
    ],
)
def test_wrong_rows_are_refused(tmp_path, name, values, said):
    first, *others = sample_rows("organism")[name]
    with pytest.raises(InputError, match=said):
        results.write_table(tmp_path, name, [{**first, **values}, *others])
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_read_whole(tmp_path):
    folder = write_model(tmp_path, "ViT-B-32/openai")
    read = results.read(folder)
    assert folder.name == "ViT-B-32--openai"
    assert read.model == "ViT-B-32/openai"
    assert set(read.tables) == set(schema.TABLES)
    assert read.table("judgments")["verdict"].isna().sum() == 1


def test_manifest_must_be_complete(tmp_path):
    manifest = manifest_for("organism", {})
    del manifest["seeds"]
    with pytest.raises(InputError, match="lacks seeds"):
        results.write_manifest(tmp_path, manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="'seeds': Field required"):
        results.read_manifest(tmp_path)


def test_what_is_loaded_by_default_and_what_is_not_there(tmp_path):
    assert results.load(precomputed=tmp_path).source.startswith("the results shipped")
    with pytest.raises(InputError, match="no folder"):
        results.load(tmp_path / "nowhere")


def test_folder_names():
    assert results.folder_name("ViT-B-32/openai") == "ViT-B-32--openai"
    with pytest.raises(InputError, match="holds no letter"):
        results.folder_name("../..")
