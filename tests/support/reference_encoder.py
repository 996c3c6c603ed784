"""Slow references of encoders, random pixels, and a record of the layers that run."""

import copy

import torch

from ccs.model.encoders.parts import Block

TOLERANCE = 1e-5


def random_pixels(model, n):
    """Draw random pixels.

    Args:
        model: Model whose image size they have.
        n: Number of images.

    Returns:
        Tensor [n, 3, height, width].
    """
    return torch.randn(n, 3, *model.encoder.image_size, generator=torch.Generator().manual_seed(0))


def record_layers(model, monkeypatch):
    """Record which layers run.

    Args:
        model: Model whose layers are counted.
        monkeypatch: The fixture of pytest.

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


def attend_head(q, k, v):
    """Compute the output [n, T, d] of one head."""
    return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1) @ v


def reference_pass(
    visual, tokens, change=lambda *_: None, first=0, attend=attend_head, norm=lambda x, module: module(x)
):
    """Run open_clip's plain ViT one head at a time.

    Args:
        visual: The image encoder.
        tokens: Tokens [n, T, W] that enter a layer.
        change: Function of a layer and its heads' outputs, which it may write to.
        first: The layer that the tokens enter.
        attend: Function of a head's queries, keys, and values that returns its output.
        norm: Function of tokens and a LayerNorm.

    Returns:
        Unit embeddings [n, D], and lists of the heads' outputs [n, T, d] by layer.
    """
    x, outputs = tokens, {}
    for layer, block in list(enumerate(visual.transformer.resblocks))[first:]:
        attn, normed = block.attn, norm(x, block.ln_1)
        parts = (normed @ attn.in_proj_weight.T + attn.in_proj_bias).chunk(3, dim=-1)
        heads = zip(*(part.chunk(attn.num_heads, dim=-1) for part in parts), strict=True)
        outputs[layer] = [attend(*head) for head in heads]
        change(layer, outputs[layer])
        x = x + torch.cat(outputs[layer], dim=-1) @ attn.out_proj.weight.T + attn.out_proj.bias
        x = x + block.mlp(norm(x, block.ln_2))
    embedded = norm(x[:, 0], visual.ln_post) @ visual.proj
    return torch.nn.functional.normalize(embedded, dim=-1), outputs


@torch.no_grad()
def reference_parts(model, x):
    """Decompose images one head and one token at a time, in float64.

    The final LayerNorm is linear once its deviation is known: each of the 2 L + 1 terms of the CLS state (the
    first tokens, and each layer's attention and MLP) has an equal part of its mean and its bias.

    Args:
        model: Model of open_clip's plain ViT.
        x: Pixels [n, 3, height, width].

    Returns:
        The CLS query's attention [n, L, H, T], what each token sends through each head to the unit embedding
        [n, L, H, T, D], and the remainder [n, D].
    """
    visual = copy.deepcopy(model.clip.visual).double()
    layers, n_heads, tokens = model.n_layers, model.n_heads, model.encoder.n_tokens
    looks, values, states, sent = [], [], [], []

    def attend(q, k, v):
        looks.append((q[:, :1] @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)[:, 0])
        values.append(v)
        return attend_head(q, k, v)

    visual.ln_post.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    units, _ = reference_pass(visual, visual._embeds(x.double()), attend=attend)
    (cls,), norm = states, visual.ln_post
    length = (norm(cls) @ visual.proj).norm(dim=-1)
    deviation, share = (cls.var(-1, correction=0) + norm.eps).sqrt(), (2 * layers + 1) * n_heads * tokens
    for place, (weights, v) in enumerate(zip(looks, values, strict=True)):
        projection = visual.transformer.resblocks[place // n_heads].attn.out_proj
        columns = projection.weight.chunk(n_heads, dim=1)[place % n_heads]
        terms = weights[..., None] * v @ columns.T + projection.bias / n_heads / tokens
        centered = (terms - cls.mean(-1)[:, None, None] / share) / deviation[:, None, None]
        sent.append((centered * norm.weight + norm.bias / share) @ visual.proj / length[:, None, None])
    looks, sent = (torch.stack(parts, 1).unflatten(1, (layers, n_heads)) for parts in (looks, sent))
    return looks.numpy(), sent.numpy(), (units - sent.sum((1, 2, 3))).numpy()
