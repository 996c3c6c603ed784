"""Helpers for tests of encoders: random pixels and plans, what heads send, and a count of layers run."""

import copy
import random

import numpy as np
import torch

from ccs import Head, HeadSet
from ccs.model.encoders.parts import Block

TOLERANCE = 1e-5


def pixels(model, n):
    """Draw random pixels.

    Args:
        model: Model whose image size they have.
        n: Number of images.

    Returns:
        Tensor [n, 3, height, width].
    """
    return torch.randn(n, 3, *model.encoder.image_size, generator=torch.Generator().manual_seed(0))


def some_plans(model, n, seed, first_layer=0):
    """Draw sets of up to six heads.

    Args:
        model: Model that has the heads.
        n: Number of sets.
        seed: Seed.
        first_layer: First layer of the heads.

    Returns:
        The sets.
    """
    rng = random.Random(seed)
    all_heads = [Head(i, j) for i in range(first_layer, model.n_layers) for j in range(model.n_heads)]
    return [HeadSet(rng.sample(all_heads, rng.randint(0, min(6, len(all_heads))))) for _ in range(n)]


def count_layers(model, monkeypatch):
    """Record which layers run.

    Args:
        model: Model whose layers are counted.
        monkeypatch: pytest's fixture.

    Returns:
        A list that grows by the number of each layer of the model that is run.
    """
    passes = []
    finish = Block.finish

    def counting(self, x, values):
        passes.extend(number for number, layer in enumerate(model.encoder.layers) if layer is self)
        return finish(self, x, values)

    monkeypatch.setattr(Block, "finish", counting)
    return passes


def plain_parts(model, x):
    """Decompose images one head at a time, in float64, with all shares spelled out.

    Args:
        model: Model of open_clip's plain ViT.
        x: Pixels [n, 3, height, width].

    Returns:
        The CLS query's attention [n, L, H, T], what each token sends through each head to the unit embedding
        [n, L, H, T, D], and the remainder [n, D].
    """
    visual = copy.deepcopy(model.clip.visual).double()
    layers, n_heads, d, tokens = model.n_layers, model.n_heads, model.head_dim, model.encoder.n_tokens
    terms = 2 * layers + 1
    looks = np.zeros((len(x), layers, n_heads, tokens))
    sent, remainder = np.zeros((*looks.shape, model.dim)), np.zeros((len(x), model.dim))
    with torch.no_grad():
        for i in range(len(x)):
            stream = visual._embeds(x[i : i + 1].double())[0]  # [T, W]
            others, heads = [stream[0]], []
            for number, block in enumerate(visual.transformer.resblocks):
                y, middle = block.ln_1(stream), stream + block.attn.out_proj.bias
                q, k, v = (y @ block.attn.in_proj_weight.T + block.attn.in_proj_bias).chunk(3, -1)
                for h in range(n_heads):
                    part = slice(h * d, (h + 1) * d)
                    weights = (q[:, part] @ k[:, part].T / d**0.5).softmax(-1)
                    projection = block.attn.out_proj.weight[:, part].T
                    sources = (weights[0, :, None] * v[:, part]) @ projection
                    heads.append((number, h, sources + block.attn.out_proj.bias / n_heads / tokens))
                    looks[i, number, h] = weights[0]
                    middle = middle + weights @ v[:, part] @ projection
                mlp = block.mlp(block.ln_2(middle))
                others.append(mlp[0])
                stream = middle + mlp
            length = (visual.ln_post(stream[0]) @ visual.proj).norm()
            for number, h, head_terms in heads:
                share = terms * n_heads * tokens
                sent[i, number, h] = _normed_share(visual, head_terms, stream[0], share) / length
            remainder[i] = sum(_normed_share(visual, term, stream[0], terms) / length for term in others)
    return looks, sent, remainder


def _normed_share(visual, term, cls, share):
    """Terms of the CLS state through ln_post, with one part in `share` of its mean and bias, projected."""
    std = (cls.var(correction=0) + visual.ln_post.eps).sqrt()
    normed = (term - cls.mean() / share) / std * visual.ln_post.weight + visual.ln_post.bias / share
    return normed @ visual.proj
