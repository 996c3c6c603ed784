"""The benchmark on the Hub with its leaderboard, what others submit to it, and which method leads."""

import hashlib
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

import ccs_benchmark
from ccs import InputError
from ccs_benchmark import check_submission, leaderboard, methods, planted_models, publish, scoring
from ccs_benchmark import document as tables
from ccs_benchmark import folder as benchmark_folder
from ccs_benchmark.__main__ import main

pytestmark = pytest.mark.usefixtures("small")

MODEL = "organism-planted-32"
"""A model with one planted attribute."""


def test_benchmark_is_published_and_loaded_from_the_hub(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    names = planted_models.names()[:2]
    arguments = [str(tmp_path / "made"), "--repo", "user/planted", "--public"]
    assert publish.main(arguments) == 2
    assert "has no truth.csv" in capsys.readouterr().err
    benchmark_folder.write([planted_models.file_of(name) for name in names], tmp_path / "made")
    assert publish.main(arguments) == 0
    assert "models=hf://user/planted" in capsys.readouterr().out
    space = hub.files("user/planted", "spaces")
    assert yaml.safe_load(space["README.md"].decode().split("---\n")[1])["sdk"] == "static"
    assert re.search(r"<td>learned mask</td><td>[01]\.", space["index.html"].decode())
    files = hub.files("user/planted", "models")
    assert {"README.md", "LICENSE", "truth.csv", "cells.parquet", "croissant.json"} < set(files)
    truth = pd.read_csv(io.BytesIO(files["truth.csv"]))
    rows_to_find = truth[truth["to_find"] & (truth["model"] == names[0]) & (truth["attribute"] == "gender")]
    assert set(rows_to_find["head"]) == set(map(str, planted_models.truth(names[0]).carriers("gender")))
    for distribution in json.loads(files["croissant.json"])["distribution"]:
        assert hashlib.sha256(files[distribution["@id"]]).hexdigest() == distribution["sha256"]
    paths = planted_models.located("hf://user/planted")
    assert [Path(path).stem for path in paths] == list(names)
    assert len(planted_models.located(tmp_path / "made")) == len(names)
    assert planted_models.located([names[0], paths[1]]) == (names[0], paths[1])
    assert planted_models.load(paths[0]).weights_hash == planted_models.load(names[0]).weights_hash
    monkeypatch.setattr(planted_models, "MAX_BYTES", 99)
    for address, error in (("hf://user/nothing", "status 404"), ("hf://user/planted", "too much")):
        with pytest.raises(InputError, match=error):
            planted_models.located(address)


def test_submission_is_checked_and_partly_recomputed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "submissions"
    folder.mkdir()
    file, table = folder / "last.py", folder / "last.parquet"
    file.write_text("def find(evidence):\n    return {head: head.layer for head in evidence.model.heads}\n")
    command = ["--models", MODEL, "--splits", "1", "--cells", str(table), "--method", "submissions.last:find"]
    assert main(command) == 0
    monkeypatch.setattr(check_submission, "SPLITS", 1)
    assert "1 cells, 1 of them recomputed" in check_submission.check(file, models=[MODEL])
    cells, bundled = ccs_benchmark.read_cells(table), ccs_benchmark.read_cells()
    bundled = bundled[(bundled["model"] == MODEL) & (bundled["seed"] == 0)]
    joined_cells = scoring.joined([bundled, *leaderboard.submitted(folder, bundled)])
    board = leaderboard.page(joined_cells, {MODEL: ccs_benchmark.truth(MODEL)}, "user/planted")
    assert '<tr class="submitted"><td>find</td>' in board
    is_submitted = cells["method"] != "planted heads"
    for column, value, error in (
        ("average_precision", 1.5, "shares outside 0 to 1"),
        ("max_skew_taken", "<b>", "not numbers"),
        ("method", "learned mask", r"holds cells of \['learned mask'\]"),
        ("max_skew_taken", 0.9, "max_skew_taken is .* but last.parquet has 0.900"),
        ("seed", 1, "lacks 1 of 1 cases"),
    ):
        changed = cells[is_submitted].assign(**{column: value})
        pd.concat([cells[~is_submitted], changed]).astype({column: type(value)}).to_parquet(table)
        with pytest.raises(InputError, match=error):
            check_submission.check(file, models=[MODEL])
    table.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="isn't a Parquet file"):
        leaderboard.read_submission(table)


def test_default_method_leads_on_development_models():
    """Of both tracks' first figures, on the bases that are for development and in no table."""
    leads = tables.development({track: tables.tabled(track, development=True) for track in tables.TITLES})
    assert set(leads.index) == set(methods.METHODS)
    assert leads.idxmax() == methods.DEFAULT
    assert not set(tables.bundled_cells("planted")["base"]) & set(scoring.DEVELOPMENT)
