"""Activation patching and its gradient against slow references."""

import pytest
import torch

from ccs import Head
from ccs.analysis.carriers import counterparts, gradient
from ccs_benchmark.interventions import fallen
from ccs_benchmark.modified_gradients import integrated, modified
from tests.support.reference_encoder import reference_pass

HEADS = [Head(2, 1), Head(3, 2), Head(5, 3)]


@torch.no_grad()
def reference_passes(evidence):
    """Embeddings and heads' outputs of each person and of their counterpart in another group."""
    people, visual = evidence.people.tokens, evidence.model.clip.visual
    others = people[torch.from_numpy(counterparts(evidence))]
    return [reference_pass(visual, tokens, first=2) for tokens in (people, others)]


@torch.no_grad()
def score_loss(evidence, swapped, distance, share=1.0):
    """Change in score if a head's output moves by `distance` toward the counterpart's.

    Inputs are a mean of the person's, with weight `share`, and the counterpart's.
    """
    (_, ours), (_, theirs) = reference_passes(evidence)
    others = evidence.people.tokens[torch.from_numpy(counterparts(evidence))]
    visual, tokens = evidence.model.clip.visual, share * evidence.people.tokens + (1 - share) * others

    def swap(layer, outputs):
        if layer == swapped.layer:
            outputs[swapped.head] += distance * (theirs[layer][swapped.head] - ours[layer][swapped.head])

    (before, _), (after, _) = (reference_pass(visual, tokens, *change, first=2) for change in ((), (swap,)))
    return float(((before - after).numpy() * evidence.toward).sum())


def test_patching_equals_swapping_each_head(evidence):
    scores = fallen(evidence, "resample", "signed score gap")
    for head in HEADS:
        assert scores[head] == pytest.approx(score_loss(evidence, head, 1.0), rel=1e-3, abs=1e-8)


@pytest.mark.parametrize(("find", "shares"), [(gradient, [1.0]), (integrated, [0.2, 0.4, 0.6, 0.8, 1.0])])
def test_gradients_equal_slopes_of_small_swaps(evidence, find, shares):
    scores, step = find(evidence), 0.02
    for head in HEADS:
        lost = [score_loss(evidence, head, distance, share) for share in shares for distance in (step, -step)]
        slope = (sum(lost[::2]) - sum(lost[1::2])) / (2 * step) / len(shares)
        assert scores[head] == pytest.approx(slope, rel=0.03, abs=1e-7)


def scale_gradient(x, share):
    """The same values, with a share of the gradient."""
    return x.detach() + share * (x - x.detach())


def reference_norm(x, norm):
    deviation = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return (x - x.mean(-1, keepdim=True)) / deviation.detach() * norm.weight + norm.bias


def attend_by_gim(q, k, v):
    """A head's output by the paper's rules: backward, softmax has its slope at temperature 2."""
    q, k, v = map(scale_gradient, (q, k, v), (0.25, 0.25, 0.5))
    scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    slope = 2 * torch.softmax(scores / 2, dim=-1)
    out = (torch.softmax(scores, dim=-1).detach() + slope - slope.detach()) @ v
    return out if out.requires_grad else out.requires_grad_()


def test_gim_follows_the_papers_gradient_rules(evidence):
    (_, ours), (_, theirs) = reference_passes(evidence)
    clip, rules = evidence.model.clip.requires_grad_(False), {"attend": attend_by_gim, "norm": reference_norm}
    embedded, outputs = reference_pass(clip.visual, evidence.people.tokens, first=2, **rules)
    flat = [out for outs in outputs.values() for out in outs]
    slopes = iter(torch.autograd.grad((embedded * torch.from_numpy(evidence.toward)).sum(), flat))
    scores, plain = modified(evidence), gradient(evidence)
    for layer, outs in outputs.items():
        for head, out in enumerate(outs):
            # The forward pass is unchanged.
            torch.testing.assert_close(out, ours[layer][head], atol=1e-5, rtol=0)
            lost = ((ours[layer][head] - theirs[layer][head]) * next(slopes)).sum()
            assert scores[Head(layer, head)] == pytest.approx(float(lost), rel=1e-3, abs=1e-7)
    assert any(abs(scores[head] - plain[head]) > 0.01 * abs(plain[head]) for head in HEADS)


def test_counterparts_are_of_another_group(evidence):
    other = counterparts(evidence)
    assert (evidence.codes[other] != evidence.codes).all()
    assert len(set(other.tolist())) == len(other)  # groups of equal size: every person once
