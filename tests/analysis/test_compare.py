"""Which heads of two models correspond, and which changed: copies of which both are known."""

import json

import numpy as np
import pytest
import torch

import ccs
from ccs import Head
from ccs.analysis.compare import pair_heads
from ccs_benchmark import planted_models
from tests.support.tiny_model import write_tiny_model

PIXELS = torch.randn(32, 3, 32, 32, generator=torch.Generator().manual_seed(0))
TEXTS = ["a dog", "two cats in the snow", "a red house", "the letter A"]


def permuted(model, source_of):
    """The model with each head's weights from another place in its layer."""
    weights = {name: values.clone() for name, values in model.clip.state_dict().items()}
    for name, values in weights.items():
        if ".attn." in name and "visual" in name and not name.endswith("out_proj.bias"):
            shape = (3, 4, 8, -1) if "in_proj" in name else (-1, 4, 8)
            heads, layer = values.view(shape).transpose(0, 1), int(name.split(".")[3])
            heads[:] = heads[[source_of(Head(layer, head)).head for head in range(4)]]
    return model.with_weights(weights)


def test_a_permuted_copy_matches_head_by_head(tiny_model):
    def source_of(head):
        return Head(head.layer, (head.head + 1 + head.layer) % 4)

    other = permuted(tiny_model, source_of)
    np.testing.assert_allclose(other.embed_images(PIXELS), tiny_model.embed_images(PIXELS), atol=1e-5)
    pairs = pair_heads(tiny_model, other, PIXELS, TEXTS)
    assert {pair.second: pair.first for pair in pairs} == {head: source_of(head) for head in tiny_model.heads}
    assert min(pair.alike for pair in pairs) == pytest.approx(1, abs=1e-4)
    assert max(pair.changed or 0 for pair in pairs) < 1e-6


@pytest.mark.parametrize("built", [{"embed_dim": 20, "width": 64}, {}])
def test_models_of_which_none_was_made_from_the_other(tiny_model, tmp_path, built):
    wide = ccs.load(str(write_tiny_model(tmp_path / "wide", seed=7, **built)))
    pairs = pair_heads(tiny_model, wide, PIXELS, TEXTS)
    assert len(pairs) == len(tiny_model.heads)
    assert {pair.changed for pair in pairs} == {None}
    assert [pair.alike for pair in pairs] == sorted(pair.alike for pair in pairs)


def test_the_heads_that_changed_come_first(tmp_path):
    """Of a model with planted heads and its base."""
    models = [planted_models.load(name) for name in ("organism-first", "organism-planted-03")]
    comparison = ccs.compare(*models, max_images=8)
    table, known = comparison.rows, planted_models.truth("organism-planted-03").heads
    assert comparison.related
    assert set(table["first"][table["changed"] > 0]) == set(map(str, known))
    assert json.loads(comparison.to_json())["rows"][0]["first"] in set(map(str, known))
    assert comparison.plot().get_xlabel() == "changed"
