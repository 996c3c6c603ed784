"""Which heads of two models correspond, and which changed: copies of which both are known."""

import json

import numpy as np
import pytest
import torch

import ccs
from ccs.analysis.compare import pair_heads
from ccs_benchmark import planted_models
from tests.support.tiny_model import write_tiny_model

PIXELS = torch.randn(32, 3, 32, 32, generator=torch.Generator().manual_seed(0))
TEXTS = ["a dog", "two cats in the snow", "a red house", "the letter A"]


def rotate(head):
    return ccs.Head(head.layer, (head.head + 1 + head.layer) % 4)


def with_rotated_heads(model):
    """Copy the model with each head's weights from another place in its layer."""
    weights = {name: values.clone() for name, values in model.clip.state_dict().items()}
    for name, values in weights.items():
        if ".attn." in name and "visual" in name and not name.endswith("out_proj.bias"):
            shape = (3, 4, 8, -1) if "in_proj" in name else (-1, 4, 8)
            heads, layer = values.view(shape).transpose(0, 1), int(name.split(".")[3])
            heads[:] = heads[[rotate(ccs.Head(layer, head)).head for head in range(4)]]
    return model.with_weights(weights)


def test_permuted_heads_are_paired(tiny_model):
    permuted = with_rotated_heads(tiny_model)
    np.testing.assert_allclose(permuted.embed_images(PIXELS), tiny_model.embed_images(PIXELS), atol=1e-5)
    pairs = pair_heads(tiny_model, permuted, PIXELS, TEXTS)
    assert {pair.second: pair.first for pair in pairs} == {head: rotate(head) for head in tiny_model.heads}
    assert min(pair.alike for pair in pairs) == pytest.approx(1, abs=1e-4)
    assert max(pair.changed or 0 for pair in pairs) < 1e-6


@pytest.mark.parametrize("config", [{"embed_dim": 20, "width": 64}, {}], ids=["other sizes", "same sizes"])
def test_unrelated_models_have_no_changed_heads(tiny_model, tmp_path, config):
    other = ccs.load(str(write_tiny_model(tmp_path, seed=7, **config)))
    pairs = pair_heads(tiny_model, other, PIXELS, TEXTS)
    assert len(pairs) == len(tiny_model.heads)
    assert {pair.changed for pair in pairs} == {None}
    assert [pair.alike for pair in pairs] == sorted(pair.alike for pair in pairs)


def test_compare_lists_changed_heads_first():
    """A model with planted heads, next to its base model."""
    models = [planted_models.load(name) for name in ("organism-first", "organism-planted-03")]
    comparison = ccs.compare(*models, max_images=8)
    table, planted = comparison.rows, planted_models.truth("organism-planted-03").heads
    assert comparison.related
    assert set(table["first"][table["changed"] > 0]) == set(map(str, planted))
    assert json.loads(comparison.to_json())["rows"][0]["first"] in set(map(str, planted))
    assert comparison.plot().get_xlabel() == "changed"
