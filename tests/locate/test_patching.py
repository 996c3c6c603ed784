"""Activation patching and its gradient against slow references."""

from __future__ import annotations

import pytest
import torch

from ccs import Head
from ccs.locate.ablation import counterparts, fallen
from ccs.locate.patching import gradient
from tests.support.locate_sample import sample

HEADS = [Head(2, 1), Head(3, 2), Head(4, 0), Head(5, 3)]


@pytest.fixture(scope="module")
def evidence(tiny_folder, pictures):
    return sample(tiny_folder, pictures, 24)


def plain_pass(clip, tokens, swapped, theirs, share):
    """Unit embeddings by open_clip's own modules, each head's output formed alone from its attention; at the
    head `swapped`, moved by `share` of the way to `theirs`. Returns the heads' outputs too, by layer."""
    visual, x, outputs = clip.visual, tokens, {}
    for layer, block in list(enumerate(visual.transformer.resblocks))[2:]:
        normed = block.ln_1(x)
        attention = block.attn(normed, normed, normed, average_attn_weights=False)[1]
        width = x.shape[-1]
        values = normed @ block.attn.in_proj_weight[2 * width :].T + block.attn.in_proj_bias[2 * width :]
        heads = attention.shape[1]
        out = [attention[:, h] @ values.chunk(heads, dim=-1)[h] for h in range(heads)]
        outputs[layer] = out
        if swapped is not None and layer == swapped.layer:
            h = swapped.head
            out[h] = out[h] + share * (theirs[layer][h] - out[h])
        x = x + torch.cat(out, dim=-1) @ block.attn.out_proj.weight.T + block.attn.out_proj.bias
        x = x + block.mlp(block.ln_2(x))
    embedded = visual.ln_post(x[:, 0]) @ visual.proj
    return torch.nn.functional.normalize(embedded, dim=-1), outputs


@torch.no_grad()
def slow(evidence, head, share):
    clip, tokens = evidence.model.clip, evidence.people.tokens
    theirs = plain_pass(clip, tokens[torch.from_numpy(counterparts(evidence))], None, None, 0)[1]
    lost = 0.0
    for row in range(len(tokens)):  # one person at a time
        one = {layer: [out[row : row + 1] for out in outs] for layer, outs in theirs.items()}
        before = plain_pass(clip, tokens[row : row + 1], None, None, 0)[0]
        after = plain_pass(clip, tokens[row : row + 1], head, one, share)[0]
        lost += float(((before - after).numpy() * evidence.toward[row]).sum())
    return lost


def test_patching_is_what_is_lost_when_each_head_is_swapped_by_hand(evidence):
    found = fallen(evidence, "resample", "signed lean")
    for head in HEADS:
        assert found[head] == pytest.approx(slow(evidence, head, 1.0), rel=1e-3, abs=1e-8)


def test_the_gradient_is_the_slope_of_a_small_swap(evidence):
    found, step = gradient(evidence), 0.05
    for head in HEADS:
        slope = (slow(evidence, head, step) - slow(evidence, head, -step)) / (2 * step)
        assert found[head] == pytest.approx(slope, rel=0.03, abs=1e-7)


def test_everybody_is_paired_with_someone_of_another_group(evidence):
    other = counterparts(evidence)
    assert (evidence.codes[other] != evidence.codes).all()
    assert len(set(other.tolist())) == len(other)  # groups of equal size: nobody twice
