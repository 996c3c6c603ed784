"""The command that makes a model fairer: what it recommends, what it saves, and that others can load it."""

import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from huggingface_hub import ModelCard

import ccs
from ccs.analysis.mitigate import choose
from ccs.batch import mitigate as command
from ccs.cli import command_line
from ccs.data import synthetic
from ccs.metrics.stats import Effect, Estimate
from tests.support.datasets_sample import write_images


def option(name, skew, accuracy, high=-0.1):
    change, lost = Effect(skew - 1, -1.0, high, 0.01), Effect(*[accuracy - 1] * 3, 0.01)
    max_skew = Estimate(*[skew] * 3)
    return SimpleNamespace(name=name, max_skew=max_skew, max_skew_change=change, accuracy_change=lost)


def test_recommended_is_the_lowest_within_the_budget_that_is_sure():
    options = [option("nothing", 1.0, 1.0, high=0.0), option("unsure", 0.2, 1.0, high=0.1)]
    options += [option("dear", 0.1, 0.9), option("good", 0.4, 0.99), option("worse", 0.5, 0.99)]
    assert (choose(options, 0.02).name, choose(options, 0.2).name) == ("good", "dear")
    assert choose(options[:1], 0.02) is None


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Make a folder of people with their groups, one of control images by class, and a model."""
    place = tmp_path_factory.mktemp("own")
    people, things = synthetic.bias_set("faces"), synthetic.classification_set("subjects", 40)
    names = write_images(place / "faces", people.images[::5])
    rows = pd.DataFrame({"file": names, "gender": people.groups["gender"][::5]})
    rows.to_csv(place / "faces" / "labels.csv", index=False)
    write_images(place / "control", things.images, [things.classes[label] for label in things.labels])
    shutil.copytree(Path(ccs.__file__).parent / "bundled" / "organism-planted", place / "clip")
    return place


def test_the_steps_of_reduce_bias_end_with_a_fairer_model(faces, monkeypatch):
    monkeypatch.chdir(faces)
    text = (Path(ccs.__file__).parents[1] / "docs" / "reduce-bias.md").read_text("utf-8")
    steps = text.partition("## Choose heads yourself")[0]
    commands = re.findall(r"^clip-ccs (.*)$", steps, re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["bias", "mitigate", "mitigate", "bias", "accuracy"]
    assert commands[2] == commands.pop(1) + " --method projection --out fairer"
    for line in commands:
        assert command_line.main(shlex.split(line)) == 0, line
    before, after = (ccs.bias(name, "faces", attribute="gender").of("MaxSkew") for name in ("clip", "fairer"))
    assert after.loc["mean", "after"] < before.loc["mean", "after"] - 0.1


def test_a_chosen_method_is_saved_and_published_recommended_or_not(faces, monkeypatch, capsys, hub):
    monkeypatch.chdir(faces)
    arguments = ["--model", "clip", "--gallery", "faces", "--preserve", "control"]
    arguments += ["--occupations", "judge, nurse"]
    arguments += ["--method", "projection", "--out", "one", "--repo", "user/fairer"]
    assert command.main(arguments) == 0
    against = "It is not recommended: its change of MaxSkew is not surely below 0."
    printed, card = capsys.readouterr().out, ModelCard.load(faces / "one" / "README.md")
    assert "Answer: none." in printed
    assert f"clip with projection. {against}" in printed
    assert against in card.text
    results = {result.metric_type: result for result in card.data.eval_results}
    assert f"{results['accuracy'].metric_value:.1%} after" in card.text
    files = hub.repositories["models", "user/fairer"].commits[-1][1]
    assert files["README.md"] == (faces / "one" / "README.md").read_bytes()
