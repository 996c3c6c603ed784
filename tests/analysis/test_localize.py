"""`ccs.localize` and its command: the printed report, and no heads without evidence of bias."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import ccs
from ccs.analysis.carriers import DEFAULT
from ccs.batch import localize
from ccs.batch.pages import show


def test_command_prints_heads_and_uncertainty(tiny_folder, capsys, monkeypatch):
    monkeypatch.setattr("ccs.analysis.localize.RANDOM_SETS", 4)
    options = ["--max-images", "40", "--attribute", "gender"]
    with torch.no_grad():  # as in many notebooks
        assert localize.main(["--model", str(tiny_folder), *options]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert re.match(r"Is there any bias\? Yes: .* gap is 0\.\d+, by chance 0\.\d+ \(p = 0", lines[1])
    assert re.match(rf"Method: {DEFAULT}\. On small models .* is 0\.\d\d \(random 0\.\d\d\)", lines[2])
    assert re.match(r"Heads, most likely first: (L\d\.H\d ?)+$", lines[3])
    assert lines[10].split()[0] in lines[3]


def test_no_head_is_named_without_evidence_of_bias(tiny_model, faces):
    shuffled = np.random.default_rng(0).permutation(faces.groups["gender"])
    mixed = replace(faces, name="mixed", groups={"gender": shuffled})
    preserve = ccs.open_dataset("world/subjects", max_images=40)
    table = ccs.localize(tiny_model, mixed, method="total effect", preserve=preserve)
    assert (table.is_biased, table.heads) == (False, ())
    assert "No evidence of bias" in localize.format_carriers(table)


METHODS = {ccs.localize: {"method": "total effect"}, ccs.search: {}, ccs.mitigate: {"methods": "projection"}}


@pytest.mark.parametrize("analyze", METHODS)
def test_few_images_and_control_accuracy_near_chance_are_reported(analyze, tiny_model, faces, capsys):
    groups = {"gender": faces.groups["gender"][:24]}
    small = replace(faces, images=faces.images[:24], groups=groups, k={"gender": 4})
    controls = ccs.open_dataset("world/subjects", max_images=40)
    mislabeled = replace(controls, labels=np.roll(controls.labels, 1))
    with pytest.warns(UserWarning, match="Too few images"):
        result = analyze(tiny_model, small, preserve=mislabeled, **METHODS[analyze])
    assert "Too few images per group for bias: 5" in result.about["warning"]
    assert "Too few images for accuracy: 20" in result.about["warning"]
    show("", result)
    assert re.match(r"Warning: With all heads on \d", capsys.readouterr().err)
