"""`clip-ccs audit`: its files hold the numbers of `ccs.audit`, and finished models are not measured again."""

import json
import re

import pandas as pd
import pytest

import ccs
from ccs.batch import audit
from ccs.cli import command_line

SMALL = ("--prompts", "gallery", "--attribute", "gender", "--ablate", "L7.H1")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    argv = ["audit", "--model", "organism", "--model", "organism-control", *SMALL, "--out", str(folder)]
    assert command_line.main(argv) == 0
    return folder


def test_the_numbers_are_those_of_the_library(out):
    values = json.loads((out / "organism" / "audit.json").read_text())
    result = ccs.audit("organism", "world/faces", prompts="gallery", attributes=["gender"], ablate="L7.H1")
    assert values["rows"] == json.loads(result.to_json())["rows"]


def test_the_page_shows_them_without_foreign_content(out):
    page = (out / "organism" / "audit.html").read_text()
    row = ccs.bias("organism", "world/faces", attribute="gender", ablate="L7.H1").of("MaxSkew").loc["mean"]
    for number in ("before", "after", "low", "high", "chance"):
        assert f"{row[number]:.2f}" in page
    assert "<svg" in page
    assert "<script" not in page
    assert set(re.findall(r'(?:src|href)="(https?:[^"]+)"', page)) == {"https://arxiv.org/abs/2503.11103"}
    card = (out / "organism" / "audit.md").read_text()
    assert f"| {row['after']:.2f} | {row['low']:.2f} to {row['high']:.2f} |" in card


def test_models_are_compared_and_not_measured_twice(out, monkeypatch, capsys):
    table = pd.read_csv(out / "models.csv", index_col="model")
    assert list(table.index) == ["organism", "organism-control"]
    assert table.notna().all(axis=None)

    def measured_again(*_):
        raise AssertionError

    monkeypatch.setattr(audit, "_audit", measured_again)
    argv = ["audit", "--model", "organism", "--model", "organism-control", *SMALL, "--out", str(out)]
    assert command_line.main(argv) == 0
    assert "organism is already in" in capsys.readouterr().err
    with pytest.raises(AssertionError):  # another setting is another audit
        command_line.main([*argv, "--seed", "1"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--prompts", "nope"], "no prompt set 'nope'"),
        (["--attribute", "age"], "no attribute 'age'"),
        (["--attribute", "gender,age"], "no attribute 'age'"),
        (["--model", "organism", "--model", "organism"], "same folder"),
    ],
)
def test_mistakes_are_sentences(argv, message, tmp_path, capsys):
    assert command_line.main(["audit", *argv, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
