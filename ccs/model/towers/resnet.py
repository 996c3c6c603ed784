"""open_clip's ResNets: their only heads are those of the pool, whose query is the mean of the positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ccs.model.towers.parts import Module, Parts, by_head
from ccs.model.towers.readouts import AttentionPool, Linear, Pool


def take_apart(visual: Module) -> Parts | None:
    from open_clip.modified_resnet import ModifiedResNet

    if not isinstance(visual, ModifiedResNet):
        return None
    pool = visual.attnpool
    n_tokens, width = pool.positional_embedding.shape
    size = visual.image_size
    height, wide = size if isinstance(size, tuple | list) else (size, size)
    heads = int(pool.num_heads)

    def stem(pixels: Tensor) -> Tensor:
        x: Tensor = visual.stem(pixels)
        for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = layer(x)
        x = x.flatten(2).transpose(1, 2)
        tokens: Tensor = torch.cat([x.mean(1, keepdim=True), x], dim=1) + pool.positional_embedding
        return tokens

    return Parts(
        stem=stem,
        blocks=[],
        readout=AttentionPool(
            Pool(
                n_heads=heads,
                head_dim=width // heads,
                norm=lambda x: x,
                query=lambda x: by_head(F.linear(x[:, 0], pool.q_proj.weight, pool.q_proj.bias), heads),
                key=lambda: (pool.k_proj.weight, pool.k_proj.bias),
                value=lambda: (pool.v_proj.weight, pool.v_proj.bias),
                projection=pool.c_proj,
            ),
            Linear(lambda: None),
        ),
        width=int(width),
        dim=int(pool.c_proj.out_features),
        tokens=int(n_tokens),
        prefix=1,
        image_size=(int(height), int(wide)),
    )
