"""`clip-ccs audit`: its files have the numbers of `ccs.audit`, on disk and on the Hub."""

import json
import re

import pandas as pd
import pytest
import yaml
from huggingface_hub import DatasetCard, parse_eval_result_entries

import ccs
from ccs.batch import audit
from ccs.cli import command_line

OPTIONS = ("--prompts", "gallery", "--attribute", "gender", "--ablate", "L7.H1", "--max-images", "40")
MODELS = ["organism", "organism-control"]


def audit_models(out, *options, models=MODELS):
    arguments = [word for model in models for word in ("--model", model)]
    return command_line.main(["audit", *arguments, *OPTIONS, "--out", str(out), *options])


@pytest.fixture(scope="module")
def audits(tmp_path_factory, few_people):
    """The folder of the audits of both models."""
    folder = tmp_path_factory.mktemp("audit")
    assert audit_models(folder) == 0
    return folder


def test_audit_files_equal_library_without_remote_content(audits):
    values = json.loads((audits / "organism" / "audit.json").read_text())
    options = {"attributes": ["gender"], "ablate": "L7.H1", "max_images": 40}
    result = ccs.audit("organism", "world/faces", prompts="gallery", **options)
    assert values["rows"] == json.loads(result.to_json())["rows"]
    page = (audits / "organism" / "audit.html").read_text()
    row = ccs.bias("organism", "world/faces", attribute="gender", ablate="L7.H1").of("MaxSkew").loc["mean"]
    for column in ("before", "after", "low", "high", "chance"):
        assert f"{row[column]:.2f}" in page
    assert "<script" not in page
    assert set(re.findall(r'(?:src|href)="(https?:[^"]+)"', page)) == {"https://arxiv.org/abs/2503.11103"}
    card = (audits / "organism" / "audit.md").read_text()
    assert "first K (10 by gender)" in page
    assert "first K (10 by gender)" in card
    assert f"| {row['after']:.2f} | {row['low']:.2f} to {row['high']:.2f} |" in card


def test_audit_compares_models_and_skips_finished_ones(audits, monkeypatch, capsys):
    table = pd.read_csv(audits / "models.csv", index_col="model")
    assert list(table.index) == MODELS
    assert table.notna().all(axis=None)
    monkeypatch.delattr(audit, "write_audit")
    assert audit_models(audits) == 0
    assert "organism is already in" in capsys.readouterr().err
    with pytest.raises(NameError, match="write_audit"):  # other options, so audited again
        audit_models(audits, "--smallest", "9")


def test_published_audits_form_a_leaderboard(audits, hub):
    for model in MODELS:
        assert audit_models(audits, "--publish", "user/audits", models=[model]) == 0
    assert hub.repositories["datasets", "user/audits"].private
    files = hub.files("user/audits")
    card = DatasetCard(files["README.md"].decode())
    (config,) = card.data.configs
    tasks = yaml.safe_load(files["eval.yaml"])["tasks"]
    for task in tasks:
        assert re.fullmatch(r"[a-z0-9-]+", task["id"])
        assert task["config"] == config["config_name"]
    (table_file,) = (file["path"] for file in config["data_files"])
    table = pd.read_csv(pd.io.common.BytesIO(files[table_file]), index_col="model")
    assert sorted(table.index) == sorted(MODELS)
    for model in MODELS:
        entries = parse_eval_result_entries(yaml.safe_load(files[f"{model}/.eval_results/user--audits.yaml"]))
        assert {entry.task_id for entry in entries} == {task["id"] for task in tasks}
        assert {entry.dataset_id for entry in entries} == {"user/audits"}
        assert [entry.value for entry in entries] == pytest.approx(list(table.loc[model]), abs=1e-4)
        assert f"{model}/audit.html" in files
