"""The command that makes a model fairer: what it recommends, what it saves, and that others can load it."""

import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import open_clip
import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModel

import ccs
from ccs import HeadSet, InputError, Intervention
from ccs.analysis.mitigate import Option, choose
from ccs.analysis.mitigations import Affine, Fitted, why_not_in_weights
from ccs.batch import mitigate as command
from ccs.cli import command_line
from ccs.data import synthetic
from ccs.metrics.stats import Effect, Estimate
from ccs.model.export import WeightChange, export
from tests.support.checkpoint import write_clip, write_siglip
from tests.support.datasets_sample import write_images


def maps(d):
    return np.eye(d) + 0.1 * np.random.default_rng(0).standard_normal((2, d, d))


def test_open_clip_and_transformers_alone_load_heads_and_maps(tiny_model, tmp_path, monkeypatch):
    """Where this package cannot be imported."""
    write_clip(tmp_path / "theirs")
    other = ccs.load(str(tmp_path / "theirs"))
    pixels, expected = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1)), {}
    for name, model, text in (
        ("open_clip", tiny_model, "L3.H1=0.3 L5.H2"),
        ("transformers", other, "L0.H1=0.3 L1.H2"),
    ):
        (images, texts), off = maps(model.dim), Intervention.parse(text)
        change = WeightChange(off, images, texts, ["It was measured."])
        assert export(model, change, tmp_path / name) <= 1e-5
        expected[name] = Affine(images)(model.embed_images(pixels, off))
    with torch.no_grad(), monkeypatch.context() as without_us:
        without_us.setitem(sys.modules, "ccs", None)
        ours = open_clip.create_model(f"local-dir:{tmp_path / 'open_clip'}").eval().encode_image(pixels)
        theirs = AutoModel.from_pretrained(tmp_path / "transformers").eval().get_image_features(pixels)
    for units, name in ((ours, "open_clip"), (getattr(theirs, "pooler_output", theirs), "transformers")):
        normalized = torch.nn.functional.normalize(units, dim=-1)
        np.testing.assert_allclose(normalized, expected[name], atol=1e-5)
    words, texts = ["a dog", "two cats"], maps(tiny_model.dim)[1]
    read = ccs.load(str(tmp_path / "open_clip")).embed_texts(words)
    np.testing.assert_allclose(read, Affine(texts)(tiny_model.embed_texts(words)), atol=1e-5)
    assert "- It was measured." in (tmp_path / "open_clip" / "README.md").read_text("utf-8")
    assert (tmp_path / "transformers" / "tokenizer.json").exists()


def test_siglips_heads_and_texts_can_be_saved_and_its_image_map_cannot(tmp_path):
    place = tmp_path / "theirs"
    write_siglip(place)
    model = ccs.load(str(place))
    images, texts = maps(model.dim)
    off = HeadSet.parse("L0.H1 L2.H3")  # the second is the pool's
    assert export(model, WeightChange(off, None, texts), tmp_path / "fairer") <= 1e-5
    with pytest.raises(InputError, match="images do not end in a linear map"):
        export(model, WeightChange(HeadSet(), images), tmp_path / "not")
    assert not (tmp_path / "not").exists()


def option(name, skew, accuracy, high=-0.1):
    change, lost = Effect(skew - 1, -1.0, high, 0.01), Effect(*[accuracy - 1] * 3, 0.01)
    known = {"max_skew": Estimate(*[skew] * 3), "max_skew_change": change, "accuracy_change": lost}
    known |= {"name": name, "fitted": Fitted(), "accuracy": Estimate(*[accuracy] * 3), "reason": ""}
    known |= {"group_accuracy": 1.0, "worst_group": 1.0, "other_skew": 0.0, "moved": 0.0}
    return Option(**known, chance=Estimate(0, 0, 0))


def test_recommended_is_the_lowest_within_the_budget_that_is_sure():
    nothing = replace(option("nothing", 1.0, 1.0), max_skew_change=Effect(0, 0, 0, 1))
    options = [nothing, option("dear", 0.1, 0.9), option("good", 0.4, 0.99), option("worse", 0.5, 0.99)]
    options.append(option("unsure", 0.2, 1.0, high=0.1))
    assert (choose(options, 0.02).name, choose(options, 0.2).name) == ("good", "dear")
    assert choose(options[:1], 0.02) is None


def test_why_weights_cannot_hold_a_mean_or_a_constant(tiny_model):
    d = tiny_model.dim
    for fitted, reason in (
        (Fitted(Intervention.parse("L3.H1=mean")), "L3.H1=mean is neither"),
        (Fitted(images=Affine(np.eye(d), np.ones(d))), "adds a constant"),
        (Fitted(images=lambda units: units), "depends on the direction"),
    ):
        assert reason in why_not_in_weights(tiny_model, fitted)
    fitted = Fitted(Intervention.parse("L3.H1=0.5"), Affine(np.eye(d)), Affine(np.eye(d)))
    assert not why_not_in_weights(tiny_model, fitted)


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


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub's uploads
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
