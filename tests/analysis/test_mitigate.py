"""The command `mitigate`: its recommendation, the documented steps, and the published model."""

import re
import shlex
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
from huggingface_hub import ModelCard

from ccs.analysis.mitigate import choose
from ccs.batch import mitigate as command
from ccs.cli import command_line
from ccs.data import synthetic
from ccs.metrics.stats import Effect, Estimate
from tests.support.datasets_sample import write_images
from tests.support.processes import ROOT


def make_option(name, skew, accuracy, high=-0.1):
    change, lost = Effect(skew - 1, -1.0, high, 0.01), Effect(*[accuracy - 1] * 3, 0.01)
    max_skew = Estimate(*[skew] * 3)
    return SimpleNamespace(name=name, max_skew=max_skew, max_skew_change=change, accuracy_change=lost)


def test_recommendation_is_lowest_significant_within_budget():
    options = [make_option("nothing", 1.0, 1.0, high=0.0), make_option("not significant", 0.2, 1.0, high=0.1)]
    sizes = {"costly": (0.1, 0.9), "good": (0.4, 0.99), "worse": (0.5, 0.99)}
    options += [make_option(name, *values) for name, values in sizes.items()]
    assert (choose(options, 0.02).name, choose(options, 0.2).name) == ("good", "costly")
    assert choose(options[:1], 0.02) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a folder of people with their groups, one of control images by class, and a model."""
    folder = tmp_path_factory.mktemp("custom")
    people, controls = synthetic.bias_set("faces"), synthetic.classification_set("subjects", 40)
    names = write_images(folder / "faces", people.images[::5])
    rows = pd.DataFrame({"file": names, "gender": people.groups["gender"][::5]})
    rows.to_csv(folder / "faces" / "labels.csv", index=False)
    write_images(folder / "control", controls.images, [controls.classes[label] for label in controls.labels])
    shutil.copytree(ROOT / "ccs" / "bundled" / "organism-planted", folder / "clip")
    return folder


def test_documented_steps_lead_to_fairer_model(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = (ROOT / "docs" / "reduce-bias.md").read_text("utf-8")
    steps = text.partition("## Choose heads yourself")[0]
    commands = re.findall(r"^clip-ccs (.*)$", steps, re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["bias", "mitigate", "mitigate", "bias", "accuracy"]
    assert commands[2] == commands.pop(1) + " --method projection --out fairer"
    commands[2] += " --csv fairer.csv"
    for line in commands:
        assert command_line.main(shlex.split(line)) == 0, line
    tables = (pd.read_csv(name).set_index(["occupation", "metric"]) for name in ("bias.csv", "fairer.csv"))
    before, after = (table.loc[("mean", "MaxSkew"), "after"] for table in tables)
    assert after < before - 0.1


def test_chosen_method_is_published_without_recommendation(folder, monkeypatch, capsys, hub):
    monkeypatch.chdir(folder)
    options = '--occupations "judge, nurse" --method projection --out one --repo user/fairer'
    assert command.main(shlex.split(f"--model clip --gallery faces --preserve control {options}")) == 0
    warning = "It is not recommended: its change of MaxSkew is not surely below 0."
    printed, card = capsys.readouterr().out, ModelCard.load(folder / "one" / "README.md")
    assert "Answer: none." in printed
    assert f"clip with projection. {warning}" in printed
    assert warning in card.text
    results = {result.metric_type: result for result in card.data.eval_results}
    assert f"{results['accuracy'].metric_value:.1%} after" in card.text
    files = hub.repositories["models", "user/fairer"].commits[-1][1]
    assert files["README.md"] == (folder / "one" / "README.md").read_bytes()
