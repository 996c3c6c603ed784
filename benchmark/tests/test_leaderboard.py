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
from ccs_benchmark import check_submission, leaderboard, methods, planted_models, scoring
from ccs_benchmark import document as tables
from ccs_benchmark import folder as benchmark_folder
from ccs_benchmark import publish as planted
from ccs_benchmark.__main__ import main

pytestmark = pytest.mark.usefixtures("small")

ONE = "organism-planted-32"
"""A model in which one attribute was planted."""


def test_a_submission_round_trip_through_the_hub(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    names = planted_models.names()[:2]
    line = [str(tmp_path / "made"), "--repo", "user/planted", "--public"]
    assert planted.main(line) == 2
    assert "has no truth.csv" in capsys.readouterr().err
    benchmark_folder.write([planted_models.file_of(name) for name in names], tmp_path / "made")
    assert planted.main(line) == 0
    assert "models=hf://user/planted" in capsys.readouterr().out
    board = hub.files("user/planted", "spaces")
    assert yaml.safe_load(board["README.md"].decode().split("---\n")[1])["sdk"] == "static"
    assert re.search(r"<td>learned mask</td><td>[01]\.", board["index.html"].decode())
    files = hub.files("user/planted", "models")
    assert {"README.md", "LICENSE", "truth.csv", "cells.parquet", "croissant.json"} < set(files)
    truth = pd.read_csv(io.BytesIO(files["truth.csv"]))
    rows_to_find = truth[truth["to_find"] & (truth["model"] == names[0]) & (truth["attribute"] == "gender")]
    assert set(rows_to_find["head"]) == set(map(str, planted_models.truth(names[0]).carriers("gender")))
    for distribution in json.loads(files["croissant.json"])["distribution"]:
        assert hashlib.sha256(files[distribution["@id"]]).hexdigest() == distribution["sha256"]
    places = planted_models.located("hf://user/planted")
    assert [Path(place).stem for place in places] == list(names)
    assert len(planted_models.located(tmp_path / "made")) == len(names)
    assert planted_models.located([names[0], places[1]]) == (names[0], places[1])
    assert planted_models.load(places[0]).weights_hash == planted_models.load(names[0]).weights_hash
    monkeypatch.setattr(planted_models, "MAX_BYTES", 99)
    for address, why in (("hf://user/nothing", "status 404"), ("hf://user/planted", "too much")):
        with pytest.raises(InputError, match=why):
            planted_models.located(address)


def test_a_submission_is_untrusted_and_a_sample_of_it_is_recomputed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "submissions"
    folder.mkdir()
    file, table = folder / "last.py", folder / "last.parquet"
    file.write_text("def find(evidence):\n    return {head: head.layer for head in evidence.model.heads}\n")
    command = ["--models", ONE, "--splits", "1", "--cells", str(table), "--method", "submissions.last:find"]
    assert main(command) == 0
    monkeypatch.setattr(check_submission, "SPLITS", 1)
    assert "1 cells, 1 of them recomputed" in check_submission.check(file, models=[ONE])
    cells, shipped = ccs_benchmark.read_cells(table), ccs_benchmark.read_cells()
    shipped = shipped[(shipped["model"] == ONE) & (shipped["seed"] == 0)]
    joined_cells = scoring.joined([shipped, *leaderboard.submitted(folder, shipped)])
    board = leaderboard.page(joined_cells, {ONE: ccs_benchmark.truth(ONE)}, "user/planted")
    assert '<tr class="submitted"><td>find</td>' in board
    theirs = cells["method"] != "planted heads"
    for column, value, says in (
        ("average_precision", 1.5, "shares outside 0 to 1"),
        ("max_skew_taken", "<b>", "not numbers"),
        ("method", "learned mask", r"holds cells of \['learned mask'\]"),
        ("max_skew_taken", 0.9, "max_skew_taken is .* but last.parquet has 0.900"),
        ("seed", 1, "lacks 1 of 1 cases"),
    ):
        changed = cells[theirs].assign(**{column: value})
        pd.concat([cells[~theirs], changed]).astype({column: type(value)}).to_parquet(table)
        with pytest.raises(InputError, match=says):
            check_submission.check(file, models=[ONE])
    table.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="isn't a Parquet file"):
        leaderboard.read_submission(table)


def test_the_default_method_leads_on_the_development_models():
    """Of both tracks' first figures, on the bases that are for development and in no table."""
    leads = tables.development({track: tables.tabled(track, development=True) for track in tables.TITLES})
    assert set(leads.index) == set(methods.METHODS)
    assert leads.idxmax() == methods.DEFAULT
    assert not set(tables.bundled_cells("planted")["base"]) & set(scoring.DEVELOPMENT)
