"""`clip-ccs audit`: its files hold the numbers of `ccs.audit`, on disk and on the Hub."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from huggingface_hub import DatasetCard, parse_eval_result_entries

import ccs
from ccs.batch import audit
from ccs.cli import command_line
from tests.support.hub_server import TOKEN
from tests.support.tiny_model import write_tiny_model

SMALL = ("--prompts", "gallery", "--attribute", "gender", "--ablate", "L7.H1")
ROOT = Path(__file__).parents[2]


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

    monkeypatch.setattr(audit, "write_audit", measured_again)
    argv = ["audit", "--model", "organism", "--model", "organism-control", *SMALL, "--out", str(out)]
    assert command_line.main(argv) == 0
    assert "organism is already in" in capsys.readouterr().err
    with pytest.raises(AssertionError):  # another setting is another audit
        command_line.main([*argv, "--smallest", "9"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--prompts", "nope"], "no prompt set 'nope'"),
        (["--attribute", "gender,age"], "no attribute 'age'"),
        (["--model", "organism", "--model", "organism"], "same folder"),
        (["--publish", "user/audits"], "could not be reached for user/audits"),
    ],
)
def test_mistakes_are_sentences(argv, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert command_line.main(["audit", *argv, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def check_leaderboard(files, models):
    """Check the files of a leaderboard dataset by the Hub's conventions, and that all fit together."""
    card = DatasetCard(files["README.md"].decode())
    (config,) = card.data.configs
    benchmark = yaml.safe_load(files["eval.yaml"])
    tasks = [task["id"] for task in benchmark["tasks"]]
    for task in benchmark["tasks"]:
        assert re.fullmatch(r"[a-z0-9-]+", task["id"])
        assert task["config"] == config["config_name"]
    (table_file,) = (part["path"] for part in config["data_files"])
    table = pd.read_csv(pd.io.common.BytesIO(files[table_file]), index_col="model")
    assert sorted(table.index) == sorted(models)
    for model in models:
        entries = parse_eval_result_entries(yaml.safe_load(files[f"{model}/.eval_results/user--audits.yaml"]))
        assert {entry.task_id for entry in entries} == set(tasks)
        assert {entry.dataset_id for entry in entries} == {"user/audits"}
        assert [entry.value for entry in entries] == pytest.approx(list(table.loc[model]), abs=1e-4)
        assert f"{model}/audit.html" in files


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub's uploads
def test_audits_are_published_as_a_leaderboard_that_grows(out, hub, tmp_path):
    models = ["organism", "organism-control"]
    for known in (models[:1], models[1:]):
        argv = ["audit", "--model", *known, *SMALL, "--out", str(out), "--publish", "user/audits"]
        assert command_line.main(argv) == 0
    assert hub.repositories["datasets", "user/audits"].private
    check_leaderboard(hub.files("user/audits"), models)


@pytest.mark.weekly
@pytest.mark.timeout(600)
def test_ten_models_under_two_processes_killed_resumed_and_published(hub, tmp_path):
    models = [f"tiny{seed}" for seed in range(10)]
    for seed, name in enumerate(models):
        write_tiny_model(tmp_path / name, seed=seed)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command += ["-m", "ccs.batch.audit", "--prompts", "gallery", "--attribute", "gender", "--device", "cpu"]
    command += [word for name in models for word in ("--model", name)]
    command += ["--out", "audits", "--publish", "user/audits"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process_options = {"cwd": tmp_path, "env": env, **pipes}

    def finished():
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("audits/*/audit.json")}

    with subprocess.Popen(command, start_new_session=True, **process_options) as running:
        while len(finished()) < 3 and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, 9)
    before = finished()
    assert 3 <= len(before) < 10
    done = subprocess.run(command, check=False, **process_options)
    assert done.returncode == 0, done.stdout
    assert before.items() <= finished().items()  # none was measured again
    assert done.stdout.count("is already in") == len(before)
    check_leaderboard(hub.files("user/audits"), models)
