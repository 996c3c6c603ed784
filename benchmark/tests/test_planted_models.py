"""Planted models: a bundled base with the weights of a few heads replaced; loading and validation."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import ccs
from ccs import Head, HeadSet, InputError
from ccs_benchmark import planted_models
from ccs_benchmark.planted_models import Truth
from research.model_files import save_planted
from tests.support.tiny_model import randomize_weights, tiny_clip

HEADS = HeadSet.parse("L3.H0 L5.H1 L5.H3")
TRUTH = Truth(
    base="organism-control", heads=HEADS, carries={"gender": HeadSet.parse("L5.H1"), "skin tone": HEADS},
    shares={"gender": {Head(5, 1): 0.75}}, drawn="spread", seed=3, pictures=10, rate=0.5,
)  # fmt: skip


def test_only_weights_of_planted_heads_differ_from_base(tmp_path):
    """Layers 3 and 5 of the saved module differ from the base in all of their heads."""
    changed, expected = ccs.load("organism-control"), ccs.load("organism-control").clip.state_dict()
    for layer in (3, 5):
        randomize_weights(changed.clip.visual.transformer.resblocks[layer].attn, 4)
    save_planted(changed.clip, TRUTH, tmp_path / "mine.safetensors")
    model = planted_models.load(str(tmp_path / "mine.safetensors"))
    assert (model.name, planted_models.truth(str(tmp_path / "mine.safetensors"))) == ("mine", TRUTH)
    shaken = changed.clip.half().state_dict()
    for head in HEADS:
        attention = f"visual.transformer.resblocks.{head.layer}.attn"
        part = slice(model.head_dim * head.head, model.head_dim * (head.head + 1))
        weight = f"{attention}.out_proj.weight"
        expected[weight][:, part] = shaken[weight][:, part]
        for name in (f"{attention}.in_proj_weight", f"{attention}.in_proj_bias"):
            for base, planted in zip(expected[name].chunk(3), shaken[name].chunk(3), strict=True):
                base[part] = planted[part]  # of query, key, or value
    for name, values in model.clip.state_dict().items():
        assert torch.equal(values, expected[name]), name


LAST = "visual.transformer.resblocks.5.attn.out_proj.weight"


def rewrite_file(file, change=lambda weights: None, **truth):
    """Change weights and truth in a file of planted heads."""
    with safe_open(file, "pt") as opened:
        metadata = dict(opened.metadata())
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata | {"truth": json.dumps(json.loads(metadata["truth"]) | truth)})


def test_invalid_file_is_rejected(tmp_path):
    for corrupt, error in (
        (lambda file: rewrite_file(file, lambda w: w.update({LAST: w[LAST].float()})), "shape or type"),
        (lambda file: rewrite_file(file, lambda w: w.pop(LAST)), "expected exactly"),
        (lambda file: rewrite_file(file, lambda w: w[LAST].fill_(torch.nan)), "aren't finite"),
        (lambda file: rewrite_file(file, heads="L5.H1 L5.H9", carries={}), "does not have all"),
        (lambda file: save_file({"x": torch.zeros(1)}, file), "not of the format"),
        (lambda file: file.write_bytes(b"\x80\x04 a pickle"), r"Can't read bad\.safetensors"),
    ):
        save_planted(tiny_clip(1), TRUTH, tmp_path / "bad.safetensors")
        corrupt(tmp_path / "bad.safetensors")
        with pytest.raises(InputError, match=error):
            planted_models.apply(tiny_clip(0), tmp_path / "bad.safetensors")


def test_unbundled_base_is_rejected(tmp_path):
    save_planted(tiny_clip(1), replace(TRUTH, base="ViT-B-32/openai"), tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="which this package doesn't have"):
        planted_models.load(str(tmp_path / "other.safetensors"))
