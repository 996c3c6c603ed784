"""`clip-ccs audit`: its files hold the numbers of `ccs.audit`, on disk and on the Hub."""

import json
import re

import pandas as pd
import pytest
import yaml
from huggingface_hub import DatasetCard, parse_eval_result_entries

import ccs
from ccs.batch import audit
from ccs.cli import command_line

SMALL = ("--prompts", "gallery", "--attribute", "gender", "--ablate", "L7.H1")
MODELS = ["organism", "organism-control"]


def audit_models(out, *options, models=MODELS):
    arguments = [word for model in models for word in ("--model", model)]
    return command_line.main(["audit", *arguments, *SMALL, "--out", str(out), *options])


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    assert audit_models(folder) == 0
    return folder


def test_the_numbers_are_those_of_the_library_without_foreign_content(out):
    values = json.loads((out / "organism" / "audit.json").read_text())
    result = ccs.audit("organism", "world/faces", prompts="gallery", attributes=["gender"], ablate="L7.H1")
    assert values["rows"] == json.loads(result.to_json())["rows"]
    page = (out / "organism" / "audit.html").read_text()
    row = ccs.bias("organism", "world/faces", attribute="gender", ablate="L7.H1").of("MaxSkew").loc["mean"]
    for number in ("before", "after", "low", "high", "chance"):
        assert f"{row[number]:.2f}" in page
    assert "<script" not in page
    assert set(re.findall(r'(?:src|href)="(https?:[^"]+)"', page)) == {"https://arxiv.org/abs/2503.11103"}
    card = (out / "organism" / "audit.md").read_text()
    assert "first K (60 by gender)" in page
    assert "first K (60 by gender)" in card
    assert f"| {row['after']:.2f} | {row['low']:.2f} to {row['high']:.2f} |" in card


def test_models_are_compared_and_not_measured_twice(out, monkeypatch, capsys):
    table = pd.read_csv(out / "models.csv", index_col="model")
    assert list(table.index) == MODELS
    assert table.notna().all(axis=None)

    def measured_again(*_):
        raise AssertionError

    monkeypatch.setattr(audit, "write_audit", measured_again)
    assert audit_models(out) == 0
    assert "organism is already in" in capsys.readouterr().err
    with pytest.raises(AssertionError):  # another setting is another audit
        audit_models(out, "--smallest", "9")


def test_audits_are_published_as_a_leaderboard_that_grows(out, hub):
    """By the Hub's conventions."""
    for model in MODELS:
        assert audit_models(out, "--publish", "user/audits", models=[model]) == 0
    assert hub.repositories["datasets", "user/audits"].private
    files = hub.files("user/audits")
    card = DatasetCard(files["README.md"].decode())
    (config,) = card.data.configs
    benchmark = yaml.safe_load(files["eval.yaml"])
    tasks = {task["id"] for task in benchmark["tasks"]}
    for task in benchmark["tasks"]:
        assert re.fullmatch(r"[a-z0-9-]+", task["id"])
        assert task["config"] == config["config_name"]
    (table_file,) = (part["path"] for part in config["data_files"])
    table = pd.read_csv(pd.io.common.BytesIO(files[table_file]), index_col="model")
    assert sorted(table.index) == sorted(MODELS)
    for model in MODELS:
        entries = parse_eval_result_entries(yaml.safe_load(files[f"{model}/.eval_results/user--audits.yaml"]))
        assert {entry.task_id for entry in entries} == tasks
        assert {entry.dataset_id for entry in entries} == {"user/audits"}
        assert [entry.value for entry in entries] == pytest.approx(list(table.loc[model]), abs=1e-4)
        assert f"{model}/audit.html" in files
