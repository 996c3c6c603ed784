"""Activation patching and its gradient against slow references."""

import contextlib

import pytest
import torch

from ccs import Head
from ccs.locate import patching
from ccs.locate.ablation import fallen
from ccs.locate.base import counterparts
from ccs.locate.patching import gradient, modified
from ccs.model.tower import ImageTower
from tests.support import shrunk
from tests.support.locate_sample import sample

HEADS = [Head(2, 1), Head(3, 2), Head(5, 3)]


@pytest.fixture(scope="module")
def evidence(tiny_folder, pictures):
    return sample(tiny_folder, pictures, 16)


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


class SoftmaxAtTwo(torch.autograd.Function):
    """The paper's rule: softmax forward, and backward the slope of softmax at temperature 2."""

    @staticmethod
    def forward(ctx, scores):
        ctx.save_for_backward(scores)
        return torch.softmax(scores, dim=-1)

    @staticmethod
    def backward(ctx, g):
        soft = torch.softmax(ctx.saved_tensors[0] / 2, dim=-1)
        return soft * (g - (soft * g).sum(-1, keepdim=True))


def norm_by_hand(x, norm):
    deviation = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return (x - x.mean(-1, keepdim=True)) / deviation.detach() * norm.weight + norm.bias


def gim_by_hand(clip, tokens, toward, outputs):
    """The gradients by each head's output, [layer][head], with open_clip's weights and one head at a time."""
    visual, x, found = clip.visual, tokens, {}
    for layer, block in list(enumerate(visual.transformer.resblocks))[2:]:
        normed, heads, attn = norm_by_hand(x, block.ln_1), block.attn.num_heads, block.attn
        q, k, v = (normed @ attn.in_proj_weight.T + attn.in_proj_bias).chunk(3, dim=-1)
        found[layer] = []
        for h in range(heads):
            one_q, one_k, one_v = (whole.chunk(heads, dim=-1)[h] for whole in (q, k, v))
            if one_q.requires_grad:
                for tensor, share in ((one_q, 0.25), (one_k, 0.25), (one_v, 0.5)):
                    tensor.register_hook(lambda g, share=share: g * share)
            out = SoftmaxAtTwo.apply(one_q @ one_k.transpose(1, 2) / one_q.shape[-1] ** 0.5) @ one_v
            found[layer].append(out if out.requires_grad else out.requires_grad_())
            assert torch.allclose(
                found[layer][h], outputs[layer][h], atol=1e-5
            )  # the forward pass is the same
        x = x + torch.cat(found[layer], dim=-1) @ attn.out_proj.weight.T + attn.out_proj.bias
        x = x + block.mlp(norm_by_hand(x, block.ln_2))
    embedded = torch.nn.functional.normalize(norm_by_hand(x[:, 0], visual.ln_post) @ visual.proj, dim=-1)
    flat = [out for outs in found.values() for out in outs]
    slopes = iter(torch.autograd.grad((embedded * torch.from_numpy(toward)).sum(), flat))
    return {layer: [next(slopes) for _ in outs] for layer, outs in found.items()}


def test_gim_is_the_gradient_by_the_papers_rules(evidence):
    clip, tokens = evidence.model.clip.requires_grad_(False), evidence.people.tokens
    with torch.no_grad():
        ours = plain_pass(clip, tokens, None, None, 0)[1]
        theirs = plain_pass(clip, tokens[torch.from_numpy(counterparts(evidence))], None, None, 0)[1]
    slopes = gim_by_hand(clip, tokens, evidence.toward, ours)
    found, plain = modified(evidence), gradient(evidence)
    for layer, head in ((head.layer, head.head) for head in evidence.model.heads):
        lost = ((ours[layer][head] - theirs[layer][head]) * slopes[layer][head]).sum()
        assert found[Head(layer, head)] == pytest.approx(float(lost), rel=1e-3, abs=1e-7)
    assert any(abs(found[head] - plain[head]) > 0.01 * abs(plain[head]) for head in HEADS)


@pytest.mark.parametrize("name", ["ViT-B-16-SigLIP", "EVA02-B-16", "coca_ViT-B-32", "RN50"])
def test_gim_changes_the_gradient_and_nothing_else(name):
    tower = ImageTower(shrunk.tower(name))
    images = tower.trunk(torch.randn(3, 3, *tower.image_size, generator=torch.Generator().manual_seed(0)))
    start, slopes = images.tokens.requires_grad_(), []
    for rules, values in ((contextlib.nullcontext(), None), (patching.Modified(), patching.values)):
        with rules:
            embedded = tower.with_values(images, lambda _, own: own, values)
        torch.testing.assert_close(embedded.detach(), tower.embed(images)[0], atol=1e-5, rtol=0)
        slopes += torch.autograd.grad(embedded[:, 0].sum(), start)
    assert (slopes[0] - slopes[1]).norm() > 0.1 * slopes[0].norm()


def test_everybody_is_paired_with_someone_of_another_group(evidence):
    other = counterparts(evidence)
    assert (evidence.codes[other] != evidence.codes).all()
    assert len(set(other.tolist())) == len(other)  # groups of equal size: nobody twice
